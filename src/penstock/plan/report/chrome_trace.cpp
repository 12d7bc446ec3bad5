#include "penstock/plan/report/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "penstock/plan/report/internal/description.h"
#include "penstock/plan/report/internal/escape.h"
#include "penstock/plan/schedule/microbatch_grid.h"

namespace penstock {
namespace {

constexpr int kProcess = 1;  // process 0 means something else to Perfetto
constexpr std::size_t kPiece = std::size_t{1} << 16;

// The rows of a rank, in the order of the picture. Slices of one row must not overlap, so receives
// that are under way at the same time take several rows, from Receives on.
enum class Row { Compute, Parameters, Sends, Receives };

// A message, from its send until the receiving rank has it.
struct DrawnTransfer {
  Position send;
  Position receive;
  Duration begin{};
  Duration end{};
  int lane = 0;  // among the receives of its rank
};

std::string microseconds_text(Duration time) {
  constexpr std::int64_t kPerMicrosecond = 1000;
  const std::int64_t whole = time.count() / kPerMicrosecond;
  const std::int64_t rest = time.count() % kPerMicrosecond;
  return rest == 0 ? fmt::to_string(whole) : fmt::format("{}.{:03}", whole, rest);
}

class TraceWriter {
 public:
  TraceWriter(const ReportEntry& entry, const TextSink& sink) : entry_(entry), sink_(sink) {
    find_sends();
    for (int rank = 0; rank < entry.program.num_ranks(); ++rank) {
      for (const DrawnTransfer& transfer : transfers_into(rank)) {
        num_lanes_ = std::max(num_lanes_, transfer.lane + 1);
      }
    }
  }

  // Readers sort events by time and keep the order of the file among equals. An arrow starts and
  // ends in the slice that was written last on its row, so every send comes before any receive.
  void write() {
    write_head();
    explain_waits(entry_.program, entry_.timeline,
                  [this](int rank, std::span<const Wait> waits) { write_actions(rank, waits); });
    for (int rank = 0; rank < entry_.program.num_ranks(); ++rank) write_receives(rank);
    text_ += "\n]}\n";
    flush();
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }
  void flush() {
    sink_(text_);
    text_.clear();
  }
  void begin_event() {
    if (text_.size() >= kPiece) flush();
    text_ += std::exchange(is_first_, false) ? "\n" : ",\n";
  }

  const ActionTime& time_at(Position position) const { return entry_.timeline.at(position); }
  // Threads count from 2: the one with the number of its process would be its main thread.
  int thread(int rank, Row row, int lane = 0) const {
    return 2 + rank * (static_cast<int>(Row::Receives) + num_lanes_) + static_cast<int>(row) + lane;
  }

  void find_sends() {
    const Extent extent = extent_of(entry_.program);
    activation_sends_ = MicrobatchGrid<Position>(extent);
    gradient_sends_ = MicrobatchGrid<Position>(extent);
    for (int rank = 0; rank < entry_.program.num_ranks(); ++rank) {
      const std::vector<Action>& actions = entry_.program.actions_of(rank);
      for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
        const Action& action = actions[static_cast<std::size_t>(step)];
        if (action.kind == ActionKind::SendForward) {
          activation_sends_.at(action.stage, action.microbatch) = {rank, step};
        } else if (action.kind == ActionKind::SendBackward) {
          gradient_sends_.at(action.stage, action.microbatch) = {rank, step};
        }
      }
    }
  }

  std::vector<DrawnTransfer> transfers_into(int rank) const {
    std::vector<DrawnTransfer> transfers;
    const std::vector<Action>& actions = entry_.program.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Action& action = actions[static_cast<std::size_t>(step)];
      if (!is_receive(action.kind)) continue;
      const Position send = action.kind == ActionKind::ReceiveForward
                                ? activation_sends_.at(action.stage - 1, action.microbatch)
                                : gradient_sends_.at(action.stage + 1, action.microbatch);
      const Position receive{rank, step};
      const Duration begin = time_at(send).end;
      transfers.push_back({send, receive, begin, std::max(begin, time_at(receive).end)});
    }
    std::sort(transfers.begin(), transfers.end(),
              [](const DrawnTransfer& left, const DrawnTransfer& right) {
                return std::pair(left.begin, left.receive) < std::pair(right.begin, right.receive);
              });
    assign_lanes(transfers);
    return transfers;
  }

  // Gives every transfer the first lane that is free; they are sorted by their begin.
  static void assign_lanes(std::vector<DrawnTransfer>& transfers) {
    std::vector<Duration> free;
    for (DrawnTransfer& transfer : transfers) {
      const auto lane = std::find_if(free.begin(), free.end(),
                                     [&](Duration time) { return time <= transfer.begin; });
      transfer.lane = static_cast<int>(lane - free.begin());
      if (lane == free.end()) free.emplace_back();
      free[static_cast<std::size_t>(transfer.lane)] = transfer.end;
    }
  }

  void write_head() {
    const Timeline& timeline = entry_.timeline;
    add("{{\"displayTimeUnit\": \"ms\",\n"
        "\"otherData\": {{\"schedule\": {}, \"shape\": {}, \"is_measured\": {}, \"costs\": {}, "
        "\"makespan_ms\": {}, "
        "\"makespan_bubble\": {}, \"span_bubble\": {}}},\n"
        "\"traceEvents\": [",
        quote_json(entry_.name), quote_json(describe_shape(entry_.program)), entry_.is_measured,
        quote_json(describe_costs(entry_.costs)), milliseconds_text(timeline.makespan),
        timeline.makespan_bubble, timeline.span_bubble);
    write_name("process_name", kProcess, entry_.name + ": " + describe_shape(entry_.program));
    for (int rank = 0; rank < entry_.program.num_ranks(); ++rank) {
      write_row(thread(rank, Row::Compute), fmt::format("rank {}", rank));
      write_row(thread(rank, Row::Parameters), fmt::format("rank {} parameters", rank));
      write_row(thread(rank, Row::Sends), fmt::format("rank {} sends", rank));
      for (int lane = 0; lane < num_lanes_; ++lane) {
        const std::string number = lane == 0 ? "" : fmt::format(" {}", lane + 1);
        write_row(thread(rank, Row::Receives, lane),
                  fmt::format("rank {} receives{}", rank, number));
      }
    }
  }

  void write_name(std::string_view what, int thread, const std::string& name) {
    begin_event();
    add(R"({{"ph": "M", "pid": {}, "tid": {}, "name": "{}", "args": {{"name": {}}}}})", kProcess,
        thread, what, quote_json(name));
  }

  void write_row(int thread, const std::string& name) {
    write_name("thread_name", thread, name);
    begin_event();
    add(R"({{"ph": "M", "pid": {}, "tid": {}, "name": "thread_sort_index", )"
        R"("args": {{"sort_index": {}}}}})",
        kProcess, thread, thread);
  }

  // Everything but receives.
  void write_actions(int rank, std::span<const Wait> waits) {
    const std::vector<Action>& actions = entry_.program.actions_of(rank);
    for (int step = 0; step < static_cast<int>(actions.size()); ++step) {
      const Position here{rank, step};
      const Action& action = actions[static_cast<std::size_t>(step)];
      const Wait& wait = waits[static_cast<std::size_t>(step)];
      const ActionTime& time = time_at(here);
      if (is_compute(action.kind)) {
        write_slice(action, thread(rank, Row::Compute), "computation", time.start, time.end, &wait);
      } else if (is_send(action.kind)) {
        const int row = thread(rank, Row::Sends);
        write_slice(action, row, "communication", time.start, time.end, &wait);
        write_arrow('s', row, time.start, here);
      } else if (!is_receive(action.kind)) {
        write_slice(action, thread(rank, Row::Parameters), "parameters", time.start, time.end,
                    nullptr);
      }
    }
  }

  void write_receives(int rank) {
    for (const DrawnTransfer& transfer : transfers_into(rank)) {
      const Action& action = action_at(entry_.program, transfer.receive);
      const int row = thread(rank, Row::Receives, transfer.lane);
      write_slice(action, row, "communication", transfer.begin, transfer.end, nullptr);
      write_arrow('f', row, transfer.begin, transfer.send);
    }
  }

  void write_slice(const Action& action, int row, std::string_view category, Duration start,
                   Duration end, const Wait* wait) {
    begin_event();
    add(R"({{"ph": "X", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "name": "{}", "cat": "{}", )"
        R"("args": {{"kind": "{}")",
        kProcess, row, microseconds_text(start), microseconds_text(end - start), to_string(action),
        category, kind_text(action.kind));
    if (action.stage >= 0) add(R"(, "stage": {})", action.stage);
    if (action.microbatch >= 0) add(R"(, "microbatch": {})", action.microbatch);
    if (wait != nullptr && wait->time() > Duration::zero()) write_wait(*wait);
    text_ += "}}";
  }

  void write_wait(const Wait& wait) {
    add(R"(, "waited_ms": {})", milliseconds_text(wait.time()));
    if (wait.source.exists()) {
      add(R"(, "waited_for": "{} on rank {}")", to_string(action_at(entry_.program, wait.source)),
          wait.source.rank);
    }
    std::vector<std::string_view> causes;
    if (wait.computing > Duration::zero()) causes.push_back(idle_cause_name(wait.cause));
    if (wait.transfer > Duration::zero()) causes.push_back(idle_cause_name(IdleCause::Transfer));
    if (wait.overhead > Duration::zero()) causes.push_back(idle_cause_name(IdleCause::Overhead));
    add(R"(, "wait_cause": "{}")", fmt::join(causes, ", "));
  }

  // The start or end of the arrow of a message, which its send identifies.
  void write_arrow(char end, int row, Duration time, Position send) {
    begin_event();
    const std::int64_t id =
        static_cast<std::int64_t>(send.step) * entry_.program.num_ranks() + send.rank;
    add(R"({{"ph": "{}", "pid": {}, "tid": {}, "ts": {}, "name": "transfer", )"
        R"("cat": "communication", "id": {}{}}})",
        end, kProcess, row, microseconds_text(time), id, end == 'f' ? R"(, "bp": "e")" : "");
  }

  const ReportEntry& entry_;
  const TextSink& sink_;
  MicrobatchGrid<Position> activation_sends_;  // by the stage that sends
  MicrobatchGrid<Position> gradient_sends_;
  int num_lanes_ = 1;
  bool is_first_ = true;
  std::string text_;
};

}  // namespace

void write_chrome_trace(const ReportEntry& entry, const TextSink& sink) {
  TraceWriter(entry, sink).write();
}

std::string write_chrome_trace(const ReportEntry& entry) {
  std::string text;
  write_chrome_trace(entry, [&text](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace penstock
