// A pipeline that never trains: forwards only, no loss, no gradients. Batches stream through.
//
//   rank 0 | F0 F1 F2 F3
//   rank 1 | .  F0 F1 F2 F3

#include <iostream>

#include <torch/torch.h>

#include "penstock/run/pipe/pipe_sequential.h"
#include "penstock/run/pipeline/schedules.h"

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 32), torch::nn::GELU(), torch::nn::Dropout(0.5),
                              torch::nn::Linear(32, 3), torch::nn::Softmax(1));
  // Without a capture: the modules run as they are, so batches may have any size.
  penstock::Pipe pipe = penstock::pipe_sequential(model, {.num_stages = 2});
  pipe.train(false);

  const auto make_schedule = penstock::get_schedule_class("ForwardOnly");
  const auto schedule = make_schedule(pipe.build_stages(), {.num_microbatches = 4});
  bool all_equal = true;
  for (const int rows : {4, 13, 32}) {
    const torch::Tensor inputs = torch::randn({rows, 8});
    const torch::Tensor found = schedule->eval({inputs}).output.toTensor();
    const torch::NoGradGuard no_grad;
    all_equal =
        all_equal && !found.requires_grad() && torch::allclose(found, model->forward(inputs));
  }
  std::cout << pipe.num_stages() << " stages, outputs "
            << (all_equal ? "as of the whole model" : "of another model") << "\n";
}
