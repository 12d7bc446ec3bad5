#include "penstock/run/processes/internal/rank_position.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "penstock/plan/schedule/json.h"
#include "penstock/plan/schedule/placement.h"

namespace penstock {
namespace {

// The step at which `rank` sends the values of `stage`, or -1.
int find_send(const Schedule& program, int rank, ActionKind kind, int stage, int microbatch) {
  const std::vector<Action>& actions = program.actions_of(rank);
  for (std::size_t step = 0; step < actions.size(); ++step) {
    const Action& action = actions[step];
    if (action.kind == kind && action.stage == stage && action.microbatch == microbatch) {
      return static_cast<int>(step);
    }
  }
  return -1;
}

// Ranks that all have the stage of `action` are replicas, and wait for each other's parts.
bool add_waits_for_replicas(const Schedule& program, int rank, const Action& action,
                            std::vector<PeerWait>& waits) {
  bool has_replicas = false;
  for (int other = 0; other < program.num_ranks(); ++other) {
    if (other == rank) continue;
    int step = -1;
    const std::vector<Action>& actions = program.actions_of(other);
    for (std::size_t index = 0; index < actions.size() && step < 0; ++index) {
      for_each_part(actions[index], [&](const Action& part) {
        if (part.stage != action.stage) return;
        has_replicas = true;
        if (part.kind == action.kind) step = static_cast<int>(index);
      });
    }
    const bool waits_for_parts =
        action.kind == ActionKind::Unshard || action.kind == ActionKind::ReduceGrad;
    if (!has_replicas || !waits_for_parts) continue;
    waits.push_back(
        {.rank = other,
         .send_step = step,
         .text = fmt::format("to send its part of the {} of stage {}",
                             action.kind == ActionKind::Unshard ? "parameters" : "gradients",
                             action.stage)});
  }
  return has_replicas;
}

// Those that the action at `position` cannot do without.
std::vector<PeerWait> waits_at(const Schedule& program, Position position) {
  std::vector<PeerWait> waits;
  const int num_stages = extent_of(program).num_stages;
  const Placement placement = placement_of(program, num_stages);
  for_each_part(action_at(program, position), [&](const Action& action) {
    if (add_waits_for_replicas(program, position.rank, action, waits)) return;
    const bool is_forward =
        action.kind == ActionKind::Forward || action.kind == ActionKind::SendForward;
    const bool is_send =
        action.kind == ActionKind::SendForward || action.kind == ActionKind::SendBackward;
    if (!is_forward && !is_send && !makes_input_gradient(action.kind)) return;
    // Activations come from the stage before and go to the one after; gradients the other way.
    const int other = is_forward != is_send ? action.stage - 1 : action.stage + 1;
    if (other < 0 || other >= num_stages || placement.rank_of(other) == position.rank) return;
    const char* const what = is_forward ? "activations" : "gradients";
    const int rank = placement.rank_of(other);
    if (is_send) {
      waits.push_back(
          {.rank = rank,
           .text = fmt::format("to take the {} of microbatch {}", what, action.microbatch)});
      return;
    }
    const ActionKind send = is_forward ? ActionKind::SendForward : ActionKind::SendBackward;
    waits.push_back(
        {.rank = rank,
         .send_step = find_send(program, rank, send, other, action.microbatch),
         .text = fmt::format("to send the {} of microbatch {}", what, action.microbatch)});
  });
  return waits;
}

std::string action_text(const Schedule& program, int rank, int step) {
  const std::vector<Action>& actions = program.actions_of(rank);
  if (step >= static_cast<int>(actions.size())) return "the end of its step";
  return fmt::format("step {} ({})", step, to_string(actions[static_cast<std::size_t>(step)]));
}

const RankPosition& of(const std::vector<RankPosition>& positions, int rank) {
  return positions[static_cast<std::size_t>(rank)];
}

// What the rank that is waited for has done about it.
std::string describe_part(const RankPosition& peer, const PeerWait& wait, int num_steps) {
  if (!peer.is_known) return "which does not answer";
  if (wait.send_step < 0) return {};
  const bool has_sent =
      peer.num_steps > num_steps || (peer.num_steps == num_steps && peer.finished > wait.send_step);
  return has_sent ? "which has sent them" : "which has not sent them";
}

// What a rank waits for that is in an exchange.
const char* text_of(const ExchangeProgress& exchange) {
  if (exchange.kind == ExchangeKind::Values) {
    return exchange.is_sending ? "to take what all ranks tell each other"
                               : "to send what all ranks tell each other";
  }
  return exchange.is_sending ? "to take gradients of parameters that both use"
                             : "to send gradients of parameters that both use";
}

std::string place_text(const Schedule& program, int rank, const RankPosition& position) {
  const ExchangeProgress& exchange = position.exchange;
  if (exchange.partner != ExchangeProgress::kNobody && exchange.kind == ExchangeKind::Values) {
    return "the end of a list";
  }
  return action_text(program, rank, position.finished);
}

// `part_of` says what the rank of a wait has done about it.
template <typename PartOf>
std::string describe_known(const Schedule& program, int rank, const RankPosition& position,
                           const std::vector<std::string>& names, const PartOf& part_of) {
  if (position.has_left) return "has left";
  if (!position.is_in_step)
    return fmt::format("is outside of a step, after {}", position.num_steps);
  if (!position.is_waiting) {
    return fmt::format("works on {}", action_text(program, rank, position.finished));
  }
  std::string text = fmt::format("waits at {}", place_text(program, rank, position));
  for (const PeerWait& wait : waits_of(program, rank, position)) {
    const std::string part = part_of(wait);
    text += fmt::format(" for {} {}{}{}", names[static_cast<std::size_t>(wait.rank)], wait.text,
                        part.empty() ? "" : ", ", part);
  }
  return text;
}

std::string describe_position(const Schedule& program, const std::vector<RankPosition>& positions,
                              const std::vector<std::string>& names, int rank) {
  const RankPosition& position = of(positions, rank);
  if (!position.is_known) return "does not answer: stopped, or cut off";
  return describe_known(program, rank, position, names, [&](const PeerWait& wait) {
    return describe_part(of(positions, wait.rank), wait, position.num_steps);
  });
}

}  // namespace

std::string to_text(const RankPosition& position) {
  return fmt::format("{} {} {} {} {} {} {} {} {}", position.has_left ? 1 : 0,
                     position.is_in_step ? 1 : 0, position.is_waiting ? 1 : 0, position.finished,
                     position.num_steps, position.exchange.num_messages, position.exchange.partner,
                     position.exchange.is_sending ? 1 : 0,
                     position.exchange.kind == ExchangeKind::Values ? 1 : 0);
}

RankPosition parse_position(const std::string& text) {
  int has_left = 0;
  int is_in_step = 0;
  int is_waiting = 0;
  int is_sending = 0;
  int tells_values = 0;
  RankPosition position;
  ExchangeProgress& exchange = position.exchange;
  // NOLINTNEXTLINE(cert-err34-c): the result says whether all numbers were there
  const int count =
      std::sscanf(text.c_str(), "%d %d %d %d %d %d %d %d %d", &has_left, &is_in_step, &is_waiting,
                  &position.finished, &position.num_steps, &exchange.num_messages,
                  &exchange.partner, &is_sending, &tells_values);
  if (count != 9 || position.finished < 0) return {};
  position.is_known = true;
  position.has_left = has_left != 0;
  position.is_in_step = is_in_step != 0;
  position.is_waiting = is_waiting != 0;
  exchange.is_sending = is_sending != 0;
  exchange.kind = tells_values != 0 ? ExchangeKind::Values : ExchangeKind::SharedGradients;
  return position;
}

std::string to_text(const ToldPosition& told) {
  return fmt::format("{} {}", told.age.count(), to_text(told.position));
}

ToldPosition parse_told_position(const std::string& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  const long long age = std::strtoll(text.c_str(), nullptr, 10);
  return {.position = parse_position(text.substr(space + 1)),
          .age = std::chrono::milliseconds(age)};
}

std::vector<PeerWait> waits_of(const Schedule& program, int rank, const RankPosition& position) {
  const ExchangeProgress& exchange = position.exchange;
  if (exchange.partner >= 0 && exchange.partner < program.num_ranks()) {
    return {{.rank = exchange.partner, .text = text_of(exchange)}};
  }
  if (position.finished >= static_cast<int>(program.actions_of(rank).size())) return {};
  return waits_at(program, {rank, position.finished});
}

std::string describe_positions(const Schedule& program, const std::vector<RankPosition>& positions,
                               const std::vector<std::string>& names) {
  std::string text;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    text += fmt::format("\n  {} {}", names[static_cast<std::size_t>(rank)],
                        describe_position(program, positions, names, rank));
  }
  return text;
}

std::string describe_alone(const Schedule& program, int rank, const RankPosition& position,
                           const std::vector<std::string>& names) {
  return describe_known(program, rank, position, names,
                        [](const PeerWait& /*wait*/) { return std::string(); });
}

std::string blame(const Schedule& program, const std::vector<RankPosition>& positions,
                  const std::vector<std::string>& names) {
  std::vector<std::string> silent;
  std::vector<std::string> busy;
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const std::string& name = names[static_cast<std::size_t>(rank)];
    if (!of(positions, rank).is_known) {
      silent.push_back(name);
    } else if (!of(positions, rank).is_waiting) {
      busy.push_back(
          fmt::format("{} {}", name, describe_position(program, positions, names, rank)));
    }
  }
  if (!silent.empty()) {
    return fmt::format("{} {} not answer", fmt::join(silent, ", "),
                       silent.size() == 1 ? "does" : "do");
  }
  if (!busy.empty()) return fmt::format("{}", fmt::join(busy, "; "));
  return "every rank waits for another one, or a message was lost";
}

std::string write_replay(const Schedule& program, const std::vector<RankPosition>& positions,
                         const std::string& reason) {
  nlohmann::ordered_json json;
  json["format"] = "penstock-replay";
  json["version"] = 1;
  json["reason"] = reason;
  json["ranks"] = nlohmann::ordered_json::array();
  for (int rank = 0; rank < program.num_ranks(); ++rank) {
    const RankPosition& position = of(positions, rank);
    nlohmann::ordered_json entry;
    entry["rank"] = rank;
    entry["state"] = !position.is_known     ? "silent"
                     : position.has_left    ? "left"
                     : !position.is_in_step ? "outside"
                     : position.is_waiting  ? "waiting"
                                            : "working";
    if (position.is_known) {
      entry["steps"] = position.num_steps;
      entry["finished"] = position.finished;
      const std::vector<Action>& actions = program.actions_of(rank);
      if (position.is_in_step && position.finished < static_cast<int>(actions.size())) {
        entry["action"] = to_string(actions[static_cast<std::size_t>(position.finished)]);
      }
    }
    if (position.is_waiting) {
      for (const PeerWait& wait : waits_of(program, rank, position)) {
        entry["waits_for"].push_back({{"rank", wait.rank}, {"why", wait.text}});
      }
    }
    json["ranks"].push_back(std::move(entry));
  }
  json["program"] = nlohmann::ordered_json::parse(write_json(program));
  return json.dump(1) + "\n";
}

void write_replay_file(const std::string& path, const std::string& replay) {
  const std::string new_path = path + ".new";
  std::ofstream file(new_path);
  file << replay;
  file.close();
  if (file) std::rename(new_path.c_str(), path.c_str());
}

}  // namespace penstock
