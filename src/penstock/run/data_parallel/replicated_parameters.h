#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/run/data_parallel/data_parallel_parameters.h"

namespace penstock {

class PipelineStage;
struct Bucket;

// Parameters that every replica has as a whole. REDUCE_GRAD adds up the gradients: each replica
// adds those of its slice and tells the others, so all of them get the same bits.
//
// Only what the step itself adds is reduced. A gradient that was there before the step stays, and
// becomes before + (replica 0 + replica 1 + ...). A parameter that has a gradient on some replicas
// counts as zero on the others; one that has it on none stays without.
class ReplicatedParameters final : public DataParallelParameters {
 public:
  ReplicatedParameters(std::string owner, NamedTensors parameters, const BucketOptions& options);
  ReplicatedParameters(const ReplicatedParameters&) = delete;
  ReplicatedParameters& operator=(const ReplicatedParameters&) = delete;
  ReplicatedParameters(ReplicatedParameters&&) = delete;
  ReplicatedParameters& operator=(ReplicatedParameters&&) = delete;
  ~ReplicatedParameters() override;

  bool is_sharded() const override { return false; }
  std::vector<at::Tensor> parameters() const override { return tensors(); }
  int num_channels() const override;
  void connect(ReplicaLink& link, int first_channel) override;
  std::vector<std::int64_t> fingerprints() const override;

  void unshard() override {}
  void await_parameters() override {}
  void reshard() override {}
  void require_parameters() const override {}

 private:
  struct Reduction;

  void open_gradients() override;
  void drop_gradients() override;
  std::size_t start_reduction() override;
  void send_slices(std::size_t bucket);
  void add_slices(const std::shared_ptr<Reduction>& reduction);
  void take_sums(const Reduction& reduction);
  void give_back(std::size_t parameter, const at::Tensor& sum);

  std::int64_t bucket_bytes_;
  std::vector<bool> is_reduced_;     // by parameter; those that were frozen are not
  std::vector<at::Tensor> trained_;  // the others
  std::vector<std::size_t> index_of_trained_;
  std::vector<Bucket> buckets_;      // of trained_
  std::vector<at::Tensor> earlier_;  // gradients from before the step, by place in trained_
  std::vector<bool> is_open_;        // the gradient is that of the step and of this replica alone
};

// Has the gradients of `stage` reduced over all replicas. A pipeline does so by itself, with the
// default options, for stages that are neither replicated nor sharded. Parameters that other stages
// use too are left to the pipeline. Throws ArgumentError if the stage is replicated or sharded
// already.
std::shared_ptr<ReplicatedParameters> replicate_stage(PipelineStage& stage,
                                                      const BucketOptions& options = {});

}  // namespace penstock
