#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/run/data_parallel/data_parallel_parameters.h"

namespace penstock {

class PipelineStage;
struct Bucket;
struct BucketPlace;

// What one replica has of a parameter: a run of its elements, in the order of its memory.
struct ParameterSlice {
  std::string name;        // of the parameter
  at::Tensor tensor;       // one dimension, a leaf; without elements if all are on other replicas
  std::int64_t begin = 0;  // of the run, in the parameter
};

// Parameters of which each of d replicas keeps a part of 1 / d, and of their gradients and the
// state of an optimizer too. UNSHARD gathers them, RESHARD frees the memory, also of what autograd
// graphs have saved of them; REDUCE_GRAD adds up the gradients, in the order of the replicas, each
// replica those of its slices, and frees the whole gradients.
//
// While they are not gathered, the tensors of the module have shapes but no memory: whoever reads
// their elements crashes. Parameters that are frozen are sharded too, but not reduced. A gradient
// that a slice had before the step stays, and becomes before + (replica 0 + replica 1 + ...). A
// parameter without gradient counts as zero on that replica; without on all, its slices get none.
class ShardedParameters final : public DataParallelParameters {
 public:
  ShardedParameters(std::string owner, NamedTensors parameters, ReplicaPosition replica,
                    const BucketOptions& options);
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;
  ShardedParameters(ShardedParameters&&) = delete;
  ShardedParameters& operator=(ShardedParameters&&) = delete;
  ~ShardedParameters() override;

  bool is_sharded() const override { return true; }
  std::vector<at::Tensor> parameters() const override;  // slices that have elements
  int num_channels() const override;
  void connect(ReplicaLink& link, int first_channel) override;
  std::vector<std::int64_t> fingerprints() const override { return fingerprints_; }

  void end_step() override;
  void unshard() override;
  void await_parameters() override;
  void reshard() override;
  void require_parameters() const override;
  void expect_gradients() override;

  // By parameter.
  const std::vector<ParameterSlice>& slices() const { return slices_; }
  ReplicaPosition replica() const { return replica_; }

  // The whole tensors that `parts` are the slices of: parameters, or whatever an optimizer keeps of
  // each of their elements. One entry per slice, with its shape; undefined if there is nothing, and
  // then the result is so too. To be called by all replicas at the same time, between steps, while
  // the stage belongs to a pipeline. Throws ArgumentError, with the parameter, if parts do not fit.
  NamedTensors gather(std::span<const at::Tensor> parts, const std::string& what);
  NamedTensors gather_parameters();

  // The inverse of gather(): the parts of `whole` that belong to this replica, one per slice, each
  // a tensor of its own. By name; more names than parameters do no harm. Throws ArgumentError, with
  // the name, if a parameter is missing or has another shape.
  std::vector<at::Tensor> cut(const NamedTensors& whole) const;
  // The same for one of slices(), by its place there.
  at::Tensor cut(std::size_t parameter, const at::Tensor& whole) const;
  void load_parameters(const NamedTensors& whole);

 private:
  struct Reduction;
  enum class Whole { No, Gathering, Yes };

  void make_slices();
  void free_parameters();
  void open_gradients() override {}
  void drop_gradients() override;
  std::size_t start_reduction() override;
  void send_pieces(std::size_t bucket);
  void add_pieces(const Reduction& reduction);
  void count_whole_gradients(bool are_there);
  at::Tensor join_parts(const Bucket& bucket, const BucketPlace& place,
                        const std::vector<Message>& told, const std::string& what) const;

  ReplicaPosition replica_;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> bucket_slices_;  // by bucket; what slices_ are views of
  std::vector<ParameterSlice> slices_;     // by parameter
  std::vector<std::int64_t> fingerprints_;

  Whole whole_ = Whole::No;
  std::vector<at::Tensor> flats_;  // by bucket, while whole
  int gather_step_ = 0;            // the UNSHARD
  int num_gathered_ = 0;           // in this step
  bool has_whole_gradients_ = false;
};

// Keeps of the parameters of `stage` the slices of this replica, and frees the rest at once; from
// now on stage.parameters() are the slices. All replicas must have had the same values.
//
// Throws ArgumentError if the stage is replicated or sharded already, if other stages use one of
// its parameters too (replicate such stages), if two of its tensors share memory, or if a
// parameter has a gradient.
std::shared_ptr<ShardedParameters> shard_stage(PipelineStage& stage, ReplicaPosition replica,
                                               const BucketOptions& options = {});

// Those of a stage, or null if it is not sharded.
ShardedParameters* sharded_parameters_of(const PipelineStage& stage);

}  // namespace penstock
