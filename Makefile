# One command per job. Each installs the Debian packages it misses, builds what it needs and says
# what it does; the work itself is in CMakePresets.json and tools/.

FUZZ_SECONDS ?= 60
DEMO := build/demo/zero_bubble.csv
PENSTOCK := build/dev/apps/penstock/penstock

say := @printf '==> %s\n'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build demo test lint asan tsan fuzz bench package clean

help:
	@echo 'make demo     generate a schedule, prove it, draw it, report on it, and train a small GPT'
	@echo 'make test     build everything and run all tests'
	@echo 'make build    build the program; it is left at build/penstock'
	@echo 'make lint     check format, clang-tidy findings, layers and headers'
	@echo 'make asan     run the tests under the address and undefined-behaviour sanitizers'
	@echo 'make tsan     run the tests of threads under the thread sanitizer'
	@echo 'make fuzz     fuzz the readers for FUZZ_SECONDS (now $(FUZZ_SECONDS))'
	@echo 'make bench    run the benchmarks'
	@echo 'make package  build the Debian packages; they are left in build/packages'
	@echo 'make clean    remove everything that was built'

build:
	$(say) 'Building the program (release)'
	@tools/install_packages.sh build run bench
	@tools/build.sh release penstock_program
	@ln -sfn release/apps/penstock/penstock build/penstock

demo:
	$(say) 'Building the program, as `make test` does'
	@tools/install_packages.sh build clang run bench run-test
	@tools/build.sh dev penstock_program
	$(say) 'Generating a zero-bubble schedule for 3 ranks and 3 microbatches, lowered to sends and receives'
	@mkdir -p $(dir $(DEMO))
	$(PENSTOCK) generate InterleavedZeroBubble --ranks 3 --microbatches 3 --lower --output $(DEMO)
	$(say) 'Proving that it is complete and that no rank can ever wait forever'
	$(PENSTOCK) check $(DEMO)
	$(say) 'Drawing its computations, time runs down: 5I0 works on stage 5, microbatch 0 (F forward, I and W the halves of a backward)'
	$(PENSTOCK) generate InterleavedZeroBubble --ranks 3 --microbatches 3 --format table
	$(say) 'Comparing it with others on a page to open in a browser'
	$(PENSTOCK) report 1f1b InterleavedZeroBubble zbv --ranks 4 --microbatches 8 --per-rank --output build/demo/report.html
	@echo 'The page is build/demo/report.html'
	$(say) 'Training a small GPT on the text of this project, in a pipeline of two ranks'
	$(PENSTOCK) train --report build/demo/training.html

test:
	$(say) 'Building and running all tests'
	@tools/install_packages.sh build clang run bench test
	@tools/build.sh dev
	@ctest --preset dev --progress

lint:
	$(say) 'Checking format, clang-tidy findings, layers and headers'
	@tools/install_packages.sh build clang run bench test lint
	@tools/check_format.sh
	@python3 tools/check_layers.py
	@tools/build.sh dev all_verify_interface_header_sets penstock_benchmarks
	@cmake --preset tidy >/dev/null
	@tools/run_clang_tidy.sh build/tidy src apps

asan:
	$(say) 'Building and running the tests with the address and undefined-behaviour sanitizers'
	@tools/install_packages.sh build sanitize run bench test
	@tools/build.sh asan
	@ctest --preset asan --progress

tsan:
	$(say) 'Building and running the tests of threads with the thread sanitizer'
	@tools/install_packages.sh build run bench test
	@tools/build.sh tsan autograd_tests pipeline_tests training_tests transport_tests
	@run() { \
	  TSAN_OPTIONS="report_mutex_bugs=0 suppressions=$(CURDIR)/tests/run/tsan.supp" \
	    build/tsan/tests/run/$$1 --gtest_brief=1 --gtest_filter="$$2"; \
	}; \
	run autograd_tests 'BackwardGraph.*Thread*' && \
	run transport_tests '-SharedMemory*:Gloo*:OpenTransport*:Mesh.*:LocalToken.*:SilentStore.*:World*' && \
	run pipeline_tests '-*_p4_*:*_p3_*:*_p1_*' && \
	run training_tests '-*Processes*:*CopiesOf*:PipelinePlan.*'

fuzz:
	$(say) 'Fuzzing the readers for $(FUZZ_SECONDS) seconds'
	@tools/install_packages.sh build sanitize
	@tools/build.sh fuzz
	@tools/run_fuzzers.sh $(FUZZ_SECONDS)

bench:
	$(say) 'Building and running the benchmarks (release)'
	@tools/install_packages.sh build run bench
	@tools/build.sh release
	@tools/run_benchmarks.sh build/release

package:
	$(say) 'Building the Debian packages (release)'
	@tools/install_packages.sh build run bench package
	@tools/build.sh release penstock_program penstock_run
	@cpack -G DEB -B build/packages --config build/release/CPackConfig.cmake >build/release/package.log || { cat build/release/package.log; exit 1; }
	@ls build/packages/*.deb

clean:
	$(say) 'Removing build/'
	@rm -rf build
