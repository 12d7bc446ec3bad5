#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/run/data_parallel/replica_link.h"
#include "penstock/run/stage/parameter_actions.h"
#include "penstock/run/stage/stage_module.h"

namespace penstock {

struct BucketOptions {
  // Parameters are gathered and reduced in pieces of about this size.
  std::int64_t bucket_bytes = std::int64_t{25} << 20U;
};

// What replicated and sharded parameters have in common: gradients that are final once those of
// all replicas are added, in the order replica 0, 1, 2, ...; and a link to the replicas, which the
// pipeline provides.
class DataParallelParameters : public ParameterActions {
 public:
  // Messages of its own, beyond those of the link: channels first_channel and up.
  virtual int num_channels() const = 0;
  virtual void connect(ReplicaLink& link, int first_channel) = 0;

  // Two numbers per parameter, which must be the same on all replicas: what it is, and its values
  // when training began. names() has the parameters' names.
  virtual std::vector<std::int64_t> fingerprints() const = 0;
  const std::string& owner() const { return owner_; }  // "stage 2"
  std::vector<std::string> names() const;

  void begin_step(bool is_training) override;
  void end_step() override;
  void reduce_gradients() override;
  void expect_gradients() override;
  void require_final_gradients() const override;

 protected:
  enum class Gradients {
    Final,
    Open,      // the step adds to them
    Reducing,  // on their way between replicas
    Lost,      // the step has ended without them
  };

  DataParallelParameters(std::string owner, NamedTensors parameters);

  // Around a step that trains.
  virtual void open_gradients() = 0;
  // The step ends while they are not final.
  virtual void drop_gradients() = 0;
  // Begins with each bucket; calls finish_bucket() as often as it returns.
  virtual std::size_t start_reduction() = 0;
  void finish_bucket();

  // Who sends what this object waits for.
  ReplicaWait wait_for(const char* what, int step) const;
  // The piece of this replica's slice that every replica has sent, added in their order. `has`
  // becomes true for the places of which one of them has a gradient.
  at::Tensor add_in_order(int channel, const at::Tensor& own, std::vector<bool>& has,
                          const ReplicaWait& wait) const;
  // Sends a piece to another replica, to be added there.
  void send_piece(int to_replica, int channel, const at::Tensor& piece,
                  const std::vector<bool>& has) const;
  // Takes the gradient away from a parameter. Throws StageError if it is of a kind that cannot be
  // added up.
  at::Tensor take_gradient(std::size_t parameter) const;

  const NamedTensors& named() const { return parameters_; }
  const at::Tensor& parameter(std::size_t index) const { return parameters_[index].second; }
  std::vector<at::Tensor> tensors() const;
  ReplicaLink& link() const { return *link_; }
  bool is_connected() const { return link_ != nullptr; }
  int channel(std::size_t bucket, int number) const;
  Gradients gradients() const { return gradients_; }
  void set_link(ReplicaLink& link, int first_channel);

 private:
  std::string owner_;
  NamedTensors parameters_;  // each once
  ReplicaLink* link_ = nullptr;
  int first_channel_ = 0;
  Gradients gradients_ = Gradients::Final;
  std::size_t num_open_buckets_ = 0;
};

}  // namespace penstock
