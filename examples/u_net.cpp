// Skips that jump over stages: what a late stage needs passes through the stages between.
//
//   down ----+------------------------- skip -------------------------+
//            +-> down | middle, skip -> up | up, skip -> out
//            stage 0       stage 1              stage 2

#include <iostream>

#include <torch/torch.h>

#include "penstock/run/capture/pipe_split.h"
#include "penstock/run/pipe/pipe.h"
#include "penstock/run/pipeline/schedules.h"

torch::nn::Conv2d convolution(int from, int to) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
}

struct UNet : torch::nn::Module {
  torch::nn::Conv2d down0 = register_module("down0", convolution(1, 4));
  torch::nn::Conv2d down1 = register_module("down1", convolution(4, 8));
  torch::nn::Conv2d middle = register_module("middle", convolution(8, 8));
  torch::nn::Conv2d up1 = register_module("up1", convolution(16, 4));
  torch::nn::Conv2d up0 = register_module("up0", convolution(8, 1));

  torch::Tensor forward(const torch::Tensor& image) {
    const torch::Tensor wide = torch::relu(down0(image));
    const torch::Tensor narrow = torch::relu(down1(torch::max_pool2d(wide, 2)));
    penstock::pipe_split();
    torch::Tensor hidden = torch::relu(middle(narrow));
    hidden = torch::relu(up1(torch::cat({hidden, narrow}, 1)));
    penstock::pipe_split();
    hidden = torch::upsample_nearest2d(hidden, {8, 8});
    return up0(torch::cat({hidden, wide}, 1));
  }
};

torch::Tensor squared_error(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

int main() {
  torch::manual_seed(1);
  const auto model = std::make_shared<UNet>();
  const torch::Tensor images = torch::randn({8, 1, 8, 8});

  const penstock::Pipe pipe = penstock::pipeline(model, {images.slice(0, 0, 2)});
  penstock::ScheduleGPipe schedule(pipe.build_stages(),
                                   {.num_microbatches = 4, .loss = squared_error});
  schedule.step({images}, {.target = images});
  const torch::Tensor gradient = model->down0->weight.grad().clone();

  // The uncut model, microbatch by microbatch.
  model->zero_grad();
  for (const torch::Tensor& rows : images.chunk(4)) {
    squared_error(model->forward(rows), rows).backward(torch::full({}, 1.0 / 4));
  }
  std::cout << pipe.num_stages() << " stages, " << pipe.info().stages[1].outputs.size()
            << " values leave stage 1, gradients of the first layer are "
            << (torch::equal(gradient, model->down0->weight.grad()) ? "equal" : "different")
            << " to the bit\n";
}
