// A small GPT whose embedding is the weight of its head, too: the first and the last stage use it.
//
//   tokens -> embedding -> block | block | block -> norm -> logits
//                 |                                           |
//                 +-------------- one table ------------------+

#include <iostream>

#include <torch/torch.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"

constexpr std::int64_t kVocabulary = 29;
constexpr std::int64_t kWidth = 32;

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::Linear qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(kWidth, kWidth));

  torch::Tensor forward(const torch::Tensor& hidden) {
    const auto parts = qkv(norm(hidden)).chunk(3, -1);
    const torch::Tensor scores = parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(kWidth);
    const torch::Tensor future = torch::ones_like(scores).triu(1) * -1e9;  // nobody looks ahead
    return hidden + out(torch::gelu((scores + future).softmax(-1).matmul(parts[2])));
  }
};
TORCH_MODULE(Block);

struct Gpt : torch::nn::Module {
  torch::nn::Embedding embedding =
      register_module("embedding", torch::nn::Embedding(kVocabulary, kWidth));
  Block first = register_module("first", Block());
  Block second = register_module("second", Block());
  Block third = register_module("third", Block());

  torch::Tensor forward(const torch::Tensor& tokens) {
    torch::Tensor hidden = first(embedding(tokens));
    penstock::pipe_split();  // does nothing when the model runs as usual
    hidden = second(hidden);
    penstock::pipe_split();
    return third(hidden).matmul(embedding->weight.t());
  }
};

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& tokens) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.flatten());
}

int main() {
  torch::manual_seed(1);
  const auto model = std::make_shared<Gpt>();
  const torch::Tensor text = torch::randint(kVocabulary, {8, 13}, torch::kLong);
  const torch::Tensor inputs = text.slice(1, 0, 12);
  const torch::Tensor targets = text.slice(1, 1, 13);

  const penstock::Pipe pipe = penstock::pipeline(model, {inputs.slice(0, 0, 2)});
  penstock::Schedule1F1B schedule(pipe.build_stages(), {.num_microbatches = 4, .loss = loss_of});
  torch::optim::AdamW optimizer(schedule.parameters(), torch::optim::AdamWOptions(0.01));
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    last = torch::stack(schedule.step({inputs}, {.target = targets}).losses).mean().item<double>();
    optimizer.step();
  }
  std::cout << pipe.num_stages() << " stages share " << pipe.info().shared_parameters.front()
            << ", the text is " << (last < 0.5 ? "learned" : "not learned") << "\n";
}
