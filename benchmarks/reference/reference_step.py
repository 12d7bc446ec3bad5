"""One rank of the workload of `penstock bench step`, run by torch.distributed.pipelining.

Every stage is `--layers` times Linear and GELU, the loss is a mean squared error, there is no
optimizer; two ranks, which are processes over Gloo, have one thread each. Rank 0 prints one line of
JSON per schedule. compare_with_reference.py starts the ranks, with the environment of torchrun.
"""

import argparse
import inspect
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed import pipelining

# The stages of each rank, and the class.
SCHEDULES = {
    "1F1B": ([[0], [1]], "Schedule1F1B"),
    "Interleaved1F1B": ([[0, 2], [1, 3]], "ScheduleInterleaved1F1B"),
    "ZBVZeroBubble": ([[0, 3], [1, 2]], "ScheduleZBVZeroBubble"),
}


def make_layers(arguments):
    layers = []
    for _ in range(arguments.layers):
        layers += [torch.nn.Linear(arguments.hidden, arguments.hidden), torch.nn.GELU()]
    return torch.nn.Sequential(*layers)


def make_step(schedule, rank, arguments):
    """A function that trains one step, with the parts that this rank has in it."""
    placement, class_name = SCHEDULES[schedule]
    num_stages = sum(len(stages) for stages in placement)
    stages = [
        pipelining.PipelineStage(make_layers(arguments), index, num_stages, torch.device("cpu"))
        for index in placement[rank]
    ]
    runner = getattr(pipelining, class_name)(
        stages[0] if len(stages) == 1 else stages,
        arguments.microbatches,
        loss_fn=torch.nn.functional.mse_loss,
    )
    rows = arguments.rows * arguments.microbatches
    inputs = (torch.randn(rows, arguments.hidden),) if 0 in placement[rank] else ()
    options = {}
    if num_stages - 1 in placement[rank]:
        options["target"] = torch.randn(rows, arguments.hidden)
    if "return_outputs" in inspect.signature(runner.step).parameters:
        options["return_outputs"] = False  # as Penstock is measured
    return lambda: runner.step(*inputs, **options)


def time_steps(step, count):
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    for name, default in [("microbatches", 16), ("hidden", 64), ("rows", 4), ("layers", 1)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for schedule in arguments.schedules:
        step = make_step(schedule, rank, arguments)
        time_steps(step, 5)  # the first of which finds out shapes
        dist.barrier()
        seconds = time_steps(step, arguments.steps)
        if rank == 0:
            result = {"schedule": schedule, "torch": torch.__version__}
            result |= {"step_s": statistics.median(seconds), "best_s": min(seconds)}
            print(json.dumps(result), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("USE_LIBUV", "0")  # which Debian's libtorch has not
    main()
