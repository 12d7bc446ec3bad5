# Makes the Debian packages of BINARY_DIR, looks into them, and unpacks them.
function(expect_in place text)
  foreach(expected IN LISTS ARGN)
    string(FIND "${text}" "${expected}" position)
    if(position EQUAL -1)
      message(FATAL_ERROR "${place} lacks \"${expected}\":\n${text}")
    endif()
  endforeach()
endfunction()

# unpack_debian_packages(<root>): into that folder, as if it were the root of a system.
function(unpack_debian_packages root)
  run("${CMAKE_CPACK_COMMAND}" -G DEB -B "${WORK_DIR}/packages" --config "${BINARY_DIR}/CPackConfig.cmake")
  file(GLOB packages "${WORK_DIR}/packages/*.deb")
  list(LENGTH packages count)
  if(NOT count EQUAL 2)
    message(FATAL_ERROR "expected the packages penstock and libpenstock-dev, found: ${packages}")
  endif()
  foreach(package IN LISTS packages)
    run(dpkg-deb --field "${package}")
    set(fields "${output}")
    run(dpkg-deb --contents "${package}")
    if(fields MATCHES "Package: libpenstock-dev\n")
      expect_in("libpenstock-dev" "${fields}" "libfmt-dev" "libtorch-dev" "Section: libdevel")
      expect_in("libpenstock-dev" "${output}" /libpenstock_plan.a /libpenstock_run.a
        /include/penstock/run/pipeline/schedules.h /cmake/penstock/penstockConfig.cmake
        /doc/penstock/examples/shortest.cpp)
      if(output MATCHES "/internal/")
        message(FATAL_ERROR "internal headers are in the package:\n${output}")
      endif()
    else()
      # What the programs need to start, found by dpkg-shlibdeps.
      expect_in("penstock" "${fields}" "Package: penstock\n" "Depends: " "libtorch" "libfmt" "libc6")
      expect_in("penstock" "${output}" ./usr/bin/penstock ./usr/bin/penstock-run
        /doc/penstock/README.md /doc/penstock/copyright /doc/penstock/docs/guide/first-pipeline.md
        ./usr/share/penstock/text/README.md ./usr/share/penstock/text/docs/guide/training.md
        ./usr/share/penstock/text/src/penstock/base/text.h)
    endif()
    run(dpkg-deb --extract "${package}" "${root}")
  endforeach()
  run("${root}/usr/bin/penstock" bench --help)  # one program finds the other
  expect_in("penstock bench --help" "${output}" "Measure pipelines")
  expect_training_on_text("${root}/usr")
endfunction()

# Trains on the installed text. The sources are still there, and would do as well; a part of the
# text is taken away, so that its size tells which one was read.
function(expect_training_on_text prefix)
  set(text "${prefix}/share/penstock/text")
  file(REMOVE_RECURSE "${text}/src")
  file(GLOB_RECURSE files "${text}/*")
  set(bytes 0)
  foreach(file IN LISTS files)
    file(SIZE "${file}" size)
    math(EXPR bytes "${bytes} + ${size}")
  endforeach()
  run("${prefix}/bin/penstock" train --layers 1 --width 8 --heads 1 --context 8 --steps 1 --sample 0 --no-report)
  string(REGEX REPLACE "([0-9]) ([0-9])" "\\1\\2" output "${output}")
  expect_in("penstock train" "${output}" "on text, ${bytes} bytes" "step 1/1")
endfunction()
