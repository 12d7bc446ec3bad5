#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/launch/line_prefixer.h"
#include "penstock/launch/rank_environment.h"
#include "tests/cli/run_program.h"
#include "tests/support/temporary_folder.h"

// The ranks are shell scripts: what matters here is how processes start, talk and end.
namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::Pair;

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(LinePrefixer, LetsOnlyWholeLinesOut) {
  LinePrefixer lines("[1] ");
  EXPECT_EQ(lines.take("a"), "");
  EXPECT_EQ(lines.take("b\nc\n\nd"), "[1] ab\n[1] c\n[1] \n");
  EXPECT_EQ(lines.finish(), "[1] d\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, BreaksLinesWithoutEnd) {
  LinePrefixer lines("> ");
  const std::string endless(LinePrefixer::kLongestLine + 3, 'x');
  EXPECT_EQ(lines.take(endless).size(), LinePrefixer::kLongestLine + 3);  // prefix, line end
  EXPECT_EQ(lines.finish(), "> xxx\n");
}

TEST(RankEnvironment, LeavesTheUsersOwnTuningAlone) {
  const LaunchOptions options{.num_ranks = 2, .num_nodes = 3, .node_rank = 1};
  const Attempt attempt{.master_address = "a",
                        .master_port = 77,
                        .token = "secret",
                        .store_file = "",
                        .num_restarts = 4};
  const Environment found = rank_environment({{"OMP_NUM_THREADS", "8"}}, options, attempt, 1);
  EXPECT_THAT(
      found,
      ElementsAre(Pair("GROUP_RANK", "1"), Pair("LOCAL_RANK", "1"), Pair("LOCAL_WORLD_SIZE", "2"),
                  Pair("MALLOC_MMAP_THRESHOLD_", "1073741824"),
                  Pair("MALLOC_TRIM_THRESHOLD_", "2000000000"), Pair("MASTER_ADDR", "a"),
                  Pair("MASTER_PORT", "77"), Pair("OMP_NUM_THREADS", "8"),
                  Pair("OPENBLAS_NUM_THREADS", "1"), Pair("PENSTOCK_RESTARTS", "4"),
                  Pair("PENSTOCK_TOKEN", "secret"), Pair("RANK", "3"), Pair("WORLD_SIZE", "6")));
}

TEST(Launch, GivesEveryRankItsEnvironment) {
  const ProgramResult result = run_shell(
      "penstock launch -n 3 -- sh -c "
      "'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR ${#PENSTOCK_TOKEN}; "
      "test $MASTER_PORT -gt 0'");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_THAT(sorted_lines(result.output),
              ElementsAre("[0] 0/3 0/3 127.0.0.1 32", "[1] 1/3 1/3 127.0.0.1 32",
                          "[2] 2/3 2/3 127.0.0.1 32"));
  EXPECT_EQ(result.errors, "");
}

TEST(Launch, LetsRanksOfOneHostMeetInAFileThatIsGoneAtTheEnd) {
  const ProgramResult result = run_shell(
      "file=$(penstock launch -n 1 -- sh -c 'test -O $(dirname $PENSTOCK_STORE) && stat -c %a "
      "$(dirname $PENSTOCK_STORE); echo $PENSTOCK_STORE' | sed 's/^.0. //')\n"
      "echo $file; set -- $file; test ! -e $(dirname $2)");
  EXPECT_EQ(result.exit_status, 0) << result.output;
  EXPECT_THAT(result.output, MatchesRegex("700 /.*/store-0\n"));
  EXPECT_EQ(run_shell("PENSTOCK_TOKEN=x penstock launch -n 1 --nodes 2 --node-rank 0 --master-addr "
                      "a -- sh -c 'echo $PENSTOCK_STORE'")
                .output,
            "[0] \n");
}

TEST(Launch, PassesArgumentsOnAsTheyAre) {
  const ProgramResult result =
      run_shell("penstock launch -n 1 -- printf '%s|' -n 4 '' 'a b' --help -- '*'");
  EXPECT_EQ(result.output, "[0] -n|4||a b|--help|--|*|\n") << result.errors;
}

TEST(Launch, KeepsStreamsApartAndLinesWhole) {
  const ProgramResult result = run_shell(
      "penstock launch -n 4 -- sh -c "
      "'for i in 1 2 3 4 5 6 7 8 9; do printf a; printf b; echo c; printf x >&2; echo y >&2; "
      "done; printf end'");
  EXPECT_EQ(result.exit_status, 0);
  for (const std::string& line : sorted_lines(result.output)) {
    EXPECT_THAT(line, MatchesRegex("\\[[0-3]\\] (abc|end)"));
  }
  EXPECT_EQ(sorted_lines(result.output).size(), 40U);
  for (const std::string& line : sorted_lines(result.errors)) {
    EXPECT_THAT(line, MatchesRegex("\\[[0-3]\\] xy"));
  }
  EXPECT_EQ(sorted_lines(result.errors).size(), 36U);
}

TEST(Launch, ColoursOnATerminalOnly) {
  // script gives the launcher a terminal.
  const char* const command = "script -qec 'penstock launch -n 1 -- echo hello' /dev/null";
  EXPECT_THAT(run_shell(command).output, HasSubstr("\033[31m[0]\033[0m hello"));
  EXPECT_THAT(run_shell(std::string("NO_COLOR=1 ") + command).output,
              AllOf(HasSubstr("[0] hello"), Not(HasSubstr("\033["))));
}

TEST(Launch, ReturnsTheFirstFailureAndEndsTheOthers) {
  // Rank 0 would wait for an hour, rank 2 fails because rank 1 did.
  const ProgramResult result = run_shell(
      "mkfifo_dir=$(mktemp -d); mkfifo $mkfifo_dir/f\n"
      "export FIFO=$mkfifo_dir/f\n"
      "penstock launch -n 3 --grace 0.2 -- sh -c "
      "'case $RANK in 0) exec sleep 3600;; 1) exec 3>$FIFO; exit 7;; 2) cat $FIFO; exec sleep "
      "3600;; esac'\n"
      "status=$?; rm -r $mkfifo_dir; exit $status");
  EXPECT_EQ(result.exit_status, 7);
  EXPECT_THAT(result.errors,
              MatchesRegex("penstock: rank 1 \\(pid [0-9]+\\) exited with status 7\n"));
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const ProgramResult result =
      run_shell("penstock launch -n 2 --grace 0.1 -- sh -c 'test $RANK = 0 || kill -9 $$'");
  EXPECT_EQ(result.exit_status, 128 + 9);
  EXPECT_THAT(
      result.errors,
      MatchesRegex("penstock: rank 1 \\(pid [0-9]+\\) was killed by signal 9 \\(SIGKILL\\)\n"));
}

TEST(Launch, KillsRanksThatDoNotListen) {
  const ProgramResult result = run_shell(
      "penstock launch -n 3 --grace 0.1 -- sh -c "
      "'case $RANK in 0) exit 3;; 1) trap \"\" TERM; while :; do sleep 1; done;; "
      "2) kill -STOP $$;; esac'");
  EXPECT_EQ(result.exit_status, 3);
}

TEST(Launch, EndsWhatRanksHaveStarted) {
  // The rank leaves a child behind, which holds the output open.
  const ProgramResult result = run_shell(
      "pids=$(penstock launch -n 2 -- sh -c 'sleep 3600 & echo $!' | sed 's/.* //')\n"
      "test $(echo $pids | wc -w) = 2 || exit 8\n"
      "for pid in $pids; do grep -qs 'State:.[RSDT]' /proc/$pid/status && exit 9; done; exit 0");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

TEST(Launch, EndsWhatRanksHaveStartedInOtherProcessGroups) {
  // One is orphaned at once, the other when the rank ends; both are in sessions of their own.
  const ProgramResult result = run_shell(
      "export folder=$(mktemp -d)\n"
      "penstock launch -n 1 -- sh -c '"
      "(setsid sh -c \"echo \\$\\$ >$folder/1; exec sleep 3600\" &)\n"
      "setsid sh -c \"echo \\$\\$ >$folder/2; exec sleep 3600\" &\n"
      "until [ -s $folder/1 ] && [ -s $folder/2 ]; do sleep 0.01; done'\n"
      "pids=$(cat $folder/1 $folder/2); rm -r $folder; test $(echo $pids | wc -w) = 2 || exit 8\n"
      "for pid in $pids; do [ -e /proc/$pid ] && exit 9; done; exit 0");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

// Starts a job of two ranks, waits until both have run `first` and said their process id, and runs
// `then`.
std::string with_running_job(const std::string& rank, const std::string& then,
                             const std::string& first = ":") {
  return "folder=$(mktemp -d); trap 'rm -r $folder' EXIT; export folder\n"
         "penstock launch -n 2 --grace 0.3 -- sh -c '" +
         first +
         "; echo $$ >$folder/new.$RANK; "
         "mv $folder/new.$RANK $folder/pid.$RANK; " +
         rank +
         "' >$folder/out 2>&1 & job=$!\n"
         "until [ -e $folder/pid.0 ] && [ -e $folder/pid.1 ]; do kill -0 $job || exit 98; sleep "
         "0.01; done\n"
         "ranks=$(cat $folder/pid.0 $folder/pid.1)\n"
         "is_alive() { kill -0 $1 2>/dev/null && ! grep -qs 'State:.Z' /proc/$1/status; }\n" +
         then;
}

TEST(Launch, LeavesNoOrphansWhenItIsKilled) {
  const ProgramResult result = run_shell(
      with_running_job("while :; do sleep 1; done",
                       "kill -9 $job; wait $job\n"
                       "for i in $(seq 1000); do\n"
                       "  alive=0; for rank in $ranks; do is_alive $rank && alive=1; done\n"
                       "  [ $alive = 0 ] && exit 0; sleep 0.01\n"
                       "done; exit 1"));
  EXPECT_EQ(result.exit_status, 0) << result.output << result.errors;
}

TEST(Launch, LeavesNothingBehindWhenItIsKilled) {
  const ProgramResult result =
      run_shell(with_running_job("sleep 3600 & echo $! >$folder/child.$RANK; echo $PENSTOCK_STORE "
                                 ">$folder/store; while :; do sleep 0.1; done",
                                 "until [ -s $folder/child.0 ] && [ -s $folder/child.1 ] && "
                                 "[ -s $folder/store ]; do sleep 0.01; done\n"
                                 "store=$(cat $folder/store); [ -d $(dirname $store) ] || exit 97\n"
                                 "kill -9 $job; wait $job\n"
                                 "for i in $(seq 1000); do\n"
                                 "  left=0; [ -e $(dirname $store) ] && left=1\n"
                                 "  for child in $(cat $folder/child.0 $folder/child.1); do\n"
                                 "    is_alive $child && left=1; done\n"
                                 "  [ $left = 0 ] && exit 0; sleep 0.01\n"
                                 "done; exit 1"));
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

TEST(Launch, ForwardsSignals) {
  const ProgramResult result = run_shell(with_running_job(
      "while :; do sleep 0.05; done",
      "kill -TERM $job; wait $job; status=$?; grep got $folder/out | sort; exit $status",
      "trap \"echo got it; exit 5\" TERM"));
  EXPECT_EQ(result.exit_status, 128 + 15) << result.errors;
  EXPECT_EQ(result.output, "[0] got it\n[1] got it\n");
}

TEST(Launch, TakesSignalsThatComeTogetherForOne) {
  const ProgramResult result = run_shell(with_running_job(
      "while :; do sleep 0.05; done", "kill -TERM $job; kill -INT $job; wait $job; exit $?",
      "trap \"sleep 0.1; exit 0\" INT TERM"));
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

TEST(Launch, KillsRanksWhenASecondSignalComesLater) {
  const ProgramResult result = run_shell(
      "folder=$(mktemp -d); trap 'rm -r $folder' EXIT; export folder\n"
      "timeout --foreground -s KILL 30 penstock launch -n 1 --grace 600 -- sh -c 'trap \"\" INT; "
      "echo >$folder/ready; while :; do sleep 0.05; done' & job=$!\n"
      "until [ -e $folder/ready ]; do sleep 0.01; done\n"
      "kill -INT $job; sleep 1; kill -INT $job; wait $job");
  EXPECT_EQ(result.exit_status, 128 + 2) << result.errors;
}

TEST(Launch, EndsWithTheStatusOfTheSignalThatItGot) {
  const std::vector<std::pair<std::string, int>> signals = {
      {"HUP", 1}, {"INT", 2}, {"QUIT", 3}, {"TERM", 15}};
  for (const auto& [name, number] : signals) {
    // One rank takes it for an interrupt, as those of training do that have not got it themselves.
    const ProgramResult result = run_shell(
        with_running_job("while :; do sleep 0.05; done", "kill -" + name + " $job; wait $job",
                         "trap \"exit $((130 * RANK))\" HUP INT QUIT TERM"));
    EXPECT_EQ(result.exit_status, 128 + number) << result.errors;
  }
}

TEST(Launch, SurvivesAHangUpThatNohupIgnores) {
  const ProgramResult result = run_shell(
      "nohup() { trap '' HUP; \"$@\"; }\n"
      "folder=$(mktemp -d); mkfifo $folder/go; export folder\n"
      "nohup penstock launch -n 1 -- sh -c 'echo >$folder/ready; cat $folder/go' & job=$!\n"
      "until [ -e $folder/ready ]; do sleep 0.01; done\n"
      "kill -HUP $job; echo went on >$folder/go; wait $job; status=$?; rm -r $folder; exit "
      "$status");
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.output, "[0] went on\n");
}

TEST(Launch, PassesSignalsOfTheProgramOn) {
  // Each rank goes on after the first one, and longer than the grace period is.
  const ProgramResult result = run_shell(with_running_job(
      "while :; do sleep 0.05; done",
      "kill -USR1 $job; until [ $(grep -c first $folder/out) = 2 ]; do sleep 0.01; done\n"
      "sleep 0.7; kill -USR2 $job; wait $job; status=$?; sort $folder/out; exit $status",
      "trap \"echo first\" USR1; trap \"echo second; exit 0\" USR2"));
  EXPECT_EQ(result.exit_status, 0) << result.errors;
  EXPECT_EQ(result.output, "[0] first\n[0] second\n[1] first\n[1] second\n");
}

// Starts a job of two ranks whose output fills a pipe that nobody reads, and runs `then`.
std::string with_stalled_reader(const std::string& rank, const std::string& then) {
  return "folder=$(mktemp -d); trap 'rm -r $folder' EXIT; export folder\n"
         "mkfifo $folder/pipe; exec 3<>$folder/pipe\n"
         "timeout -s KILL 20 penstock launch -n 2 --grace 0.2 -- sh -c 'yes \"\" | head -c 100000; "
         "echo >$folder/ready.$RANK; " +
         rank +
         "' >$folder/pipe 2>$folder/errors & job=$!\n"
         "until [ -e $folder/ready.0 ] && [ -e $folder/ready.1 ]; do sleep 0.01; done\n" +
         then;
}

TEST(Launch, HearsSignalsWhileNobodyReadsItsOutput) {
  const ProgramResult result =
      run_shell(with_stalled_reader("while :; do sleep 0.05; done", "kill -TERM $job; wait $job"));
  EXPECT_EQ(result.exit_status, 128 + 15) << result.errors;
}

TEST(Launch, NoticesFailuresWhileNobodyReadsItsOutput) {
  const ProgramResult result = run_shell(with_stalled_reader(
      "[ $RANK = 0 ] && exit 7; while :; do sleep 0.05; done",
      "until grep -q 'status 7' $folder/errors || ! kill -0 $job; do sleep 0.01; done\n"
      "cat <&3 >/dev/null & reader=$!; wait $job; status=$?; kill $reader; exit $status"));
  EXPECT_EQ(result.exit_status, 7) << result.errors;
}

TEST(Launch, IsContentWithRanksThatEndWellAfterASignal) {
  const ProgramResult result = run_shell(with_running_job(
      "while :; do sleep 0.05; done", "kill -TERM $job; wait $job", "trap \"exit 0\" TERM"));
  EXPECT_EQ(result.exit_status, 0) << result.errors;
}

TEST(Launch, KillsRanksThatIgnoreAnInterrupt) {
  const ProgramResult result = run_shell(
      with_running_job("while :; do sleep 0.05; done",
                       "kill -INT $job; wait $job; status=$?\n"
                       "for rank in $ranks; do is_alive $rank && exit 99; done; exit $status",
                       "trap \"\" INT TERM"));
  EXPECT_EQ(result.exit_status, 128 + 2) << result.errors;
}

TEST(Launch, EndsWhenNobodyReadsItsOutput) {
  const ProgramResult result =
      run_shell("penstock launch -n 2 --grace 0.1 -- yes | head -n 1; echo done");
  EXPECT_THAT(result.output, HasSubstr("] y\ndone\n"));
}

TEST(Launch, StartsAgainAsOftenAsAllowed) {
  const std::string command =
      "penstock launch -n 2 --grace 0.1 --max-restarts 2 -- sh -c "
      "'echo $PENSTOCK_RESTARTS; test $RANK = 0 || test $PENSTOCK_RESTARTS = ";
  const ProgramResult works = run_shell(command + "2'");
  EXPECT_EQ(works.exit_status, 0);
  EXPECT_THAT(sorted_lines(works.output),
              ElementsAre("[0] 0", "[0] 1", "[0] 2", "[1] 0", "[1] 1", "[1] 2"));
  EXPECT_THAT(works.errors, AllOf(HasSubstr("penstock: starting all ranks again, restart 1 of 2\n"),
                                  HasSubstr("restart 2 of 2\n")));
  EXPECT_EQ(run_shell(command + "3'").exit_status, 1);
}

TEST(Launch, CountsRanksOverHosts) {
  const ProgramResult result = run_shell(
      "export PENSTOCK_TOKEN=secret\n"
      "penstock launch -n 2 --hosts a,b --node-rank 1 -- sh -c "
      "'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT "
      "$PENSTOCK_TOKEN'");
  EXPECT_THAT(sorted_lines(result.output),
              ElementsAre("[2] 2/4 0/2 a:29500 secret", "[3] 3/4 1/2 a:29500 secret"));
  const ProgramResult named =
      run_shell("PENSTOCK_TOKEN=x penstock launch -n 1 --hosts other,$(uname -n) -- printenv RANK");
  EXPECT_EQ(named.output, "[1] 1\n") << named.errors;
}

TEST(Launch, SaysWhatIsWrongWithTheQuestion) {
  const auto complaint = [](const std::string& arguments) {
    const ProgramResult result = run_shell("unset PENSTOCK_TOKEN; penstock launch " + arguments);
    EXPECT_EQ(result.exit_status, 2) << arguments;
    EXPECT_EQ(result.output, "") << arguments;
    return result.errors;
  };
  EXPECT_EQ(complaint("-n 2"), "penstock: there is no program to launch; name it after --\n");
  EXPECT_EQ(complaint("-n 2 -- ./no-such-program"),
            "penstock: cannot start \"./no-such-program\" as rank 0 (No such file or directory)\n");
  EXPECT_THAT(complaint("-n 0 -- true"), HasSubstr("--ranks: expected a whole number from 1"));
  EXPECT_THAT(complaint("-- true"), HasSubstr("--ranks"));
  EXPECT_THAT(complaint("-n 1 --hosts no-host,none -- true"),
              HasSubstr("is not among --hosts no-host,none; say which of them it is with"));
  EXPECT_THAT(complaint("-n 1 --nodes 2 -- true"), HasSubstr("several hosts need --node-rank"));
  EXPECT_THAT(complaint("-n 1 --nodes 2 --node-rank 2 --master-addr a -- true"),
              HasSubstr("host 2 is not one of 2 hosts; hosts are counted from 0"));
  EXPECT_THAT(complaint("-n 1 --nodes 2 --node-rank 0 -- true"),
              HasSubstr("several hosts need the address of the first one"));
  EXPECT_THAT(complaint("-n 1 --nodes 2 --node-rank 0 --master-addr a -- true"),
              HasSubstr("set PENSTOCK_TOKEN to the same random text on each of them"));
  EXPECT_THAT(complaint("-n 1 --master-port 70000 -- true"), HasSubstr("--master-port"));
  for (const std::string grace : {"-1", "inf", "nan", "1e300", "86401", "soon", "1,2"}) {
    EXPECT_EQ(complaint("-n 1 --grace " + grace + " -- true"),
              "penstock: --grace: expected a number from 0 to 86400, found \"" + grace +
                  "\" (see 'penstock launch --help')\n");
  }
  EXPECT_EQ(complaint("-n 1 --hosts a,,b -- true"),
            "penstock: --hosts: expected names with commas between them, found \"a,,b\", whose "
            "name 2 is empty (see 'penstock launch --help')\n");
  EXPECT_THAT(complaint("-n 1 --hosts a,b, -- true"), HasSubstr("whose name 3 is empty"));
}

}  // namespace
}  // namespace penstock::testing
