#include "penstock/run/processes/process_ranks.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "penstock/base/error.h"
#include "penstock/run/executor/step_error.h"
#include "penstock/run/processes/group_error.h"
#include "penstock/run/processes/internal/agreement.h"
#include "penstock/run/processes/internal/monitor.h"
#include "penstock/run/threads/shared_cores.h"

namespace penstock {
namespace {

// Waits are judged by the monitor, which knows how far the others are. The transport's own deadline
// only ends those that the monitor does not see, such as between the actions and the end of a step.
constexpr int kLastResort = 100;  // deadlines

// What a process has of all ranks.
struct Connection {
  int rank = 0;
  int num_ranks = 1;
  std::chrono::nanoseconds deadline;
  std::set<std::string> keywords;
};

class ProcessFabric final : public Fabric {
 public:
  ProcessFabric(std::shared_ptr<Monitor> monitor, std::unique_ptr<Transport> transport,
                Connection connection)
      : monitor_(std::move(monitor)),
        transport_(std::move(transport)),
        rank_(connection.rank),
        progress_(connection.num_ranks),
        deadline_(connection.deadline),
        keywords_(std::move(connection.keywords)) {}

  Transport& endpoint(int /*rank*/) override { return *transport_; }
  ProgressBoard& progress() override { return progress_; }

  void begin_step(const Schedule& program) override {
    progress_.set_finished(rank_, 0);
    if (program_ == nullptr || *program_ != program) {
      program_ = std::make_shared<const Schedule>(program);
    }
    monitor_->begin_step({.program = program_,
                          .progress = &progress_,
                          .transport = transport_.get(),
                          .deadline = deadline_});
  }
  void end_step() override { monitor_->end_step(); }
  std::optional<std::set<std::string>> keywords() const override { return keywords_; }

  std::exception_ptr fail_step(std::exception_ptr failure) override {
    std::exception_ptr result = explain(failure);
    monitor_->end_step();
    return result;
  }

 private:
  std::exception_ptr explain(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const StoppedError&) {
      return std::make_exception_ptr(GroupError(monitor_->explain("this rank was stopped")));
    } catch (const TransportError& error) {
      return std::make_exception_ptr(GroupError(monitor_->explain(error.what())));
    } catch (const StepError& error) {
      if (error.origin() == StepError::Origin::Transport) {
        return std::make_exception_ptr(GroupError(monitor_->explain(error.what())));
      }
      return tell(failure, error);
    } catch (const std::exception& error) {
      return tell(failure, error);
    } catch (...) {
      monitor_->report(fmt::format("{} has failed", name()));
      return failure;
    }
  }

  // This rank has failed by itself: the others quote it.
  std::exception_ptr tell(const std::exception_ptr& failure, const std::exception& error) {
    monitor_->report(fmt::format("{} has failed: {}", name(), error.what()));
    return failure;
  }

  const std::string& name() const { return monitor_->names()[static_cast<std::size_t>(rank_)]; }

  std::shared_ptr<Monitor> monitor_;
  std::unique_ptr<Transport> transport_;
  int rank_;  // in the group
  ProgressBoard progress_;
  std::shared_ptr<const Schedule> program_;  // of the last step
  std::chrono::nanoseconds deadline_;
  std::set<std::string> keywords_;  // that stages of all processes take
};

ProcessRankOptions complete(ProcessRankOptions options, const World& world) {
  if (options.group.ranks.empty()) options.group = world.everyone();
  if (options.group.rank_of(world.rank()) == Group::kNotAMember) {
    throw ArgumentError(
        fmt::format("rank {} is not in the group {}; only the processes of a group "
                    "can be ranks of its pipeline",
                    world.rank(), options.group.name));
  }
  return options;
}

}  // namespace

std::string own_replay_path(const std::string& replay_path, int rank) {
  std::filesystem::path path(replay_path);
  path.replace_extension(fmt::format("rank-{}{}", rank, path.extension().string()));
  return path;
}

ProcessRanks::ProcessRanks(World& world, ProcessRankOptions options)
    : world_(world),
      options_(complete(std::move(options), world)),
      monitor_(std::make_shared<Monitor>(world_, MonitorOptions{.group = options_.group,
                                                                .replay_path = options_.replay_path,
                                                                .deadline = options_.deadline})) {}

ProcessRanks::~ProcessRanks() = default;

std::vector<int> ProcessRanks::local_ranks() const {
  return {options_.group.rank_of(world_.rank())};
}

SharedCores ProcessRanks::processes_on_cores() const {
  return shared_cores(world_.processes_on_this_host());
}

void ProcessRanks::require_healthy() const {
  monitor_->require_healthy();
}

void ProcessRanks::give_up(const std::string& reason) {
  monitor_->give_up(reason);
}

std::unique_ptr<Fabric> ProcessRanks::connect(const Schedule& program,
                                              const FabricOptions& options) {
  const Agreement own = make_agreement(program, options, options_.model);
  const std::chrono::milliseconds patience = std::min(world_.timeout(), options_.deadline);
  const std::vector<std::string> told =
      monitor_->exchange(fmt::format("agreement/{}", num_connections_), to_text(own), patience);
  const Agreement first = parse_agreement(told.front());
  std::set<std::string> keywords = options.keywords;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    Agreement agreement = parse_agreement(told[rank]);
    keywords.merge(agreement.keywords);
    const std::string problem = difference(first, agreement);
    if (problem.empty()) continue;
    throw GroupError(
        monitor_->report(fmt::format("{} {}, which is what {} has; start all ranks alike",
                                     monitor_->names()[rank], problem, monitor_->names().front())));
  }
  Extent messages = options.extent;
  messages.num_stages += options.num_exchange_stages;
  std::unique_ptr<Transport> transport;
  monitor_->connect(fmt::format("transport/{}", num_connections_++), patience, [&] {
    transport = open_transport(world_, options_.group,
                               {.kind = options_.transport,
                                .extent = messages,
                                .fingerprint = fingerprint_of(own),
                                .make_backend = options_.make_backend,
                                .deadline = kLastResort * options.deadline,
                                .last_wait = options.deadline,
                                .connect_timeout = patience,
                                .look = [this] { require_healthy(); }});
  });
  return std::make_unique<ProcessFabric>(monitor_, std::move(transport),
                                         Connection{.rank = local_ranks().front(),
                                                    .num_ranks = num_ranks(),
                                                    .deadline = options.deadline,
                                                    .keywords = std::move(keywords)});
}

}  // namespace penstock
