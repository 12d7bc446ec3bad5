#!/usr/bin/env python3
"""Compares steps of Penstock with those of torch.distributed.pipelining, in one run.

  benchmarks/reference/compare_with_reference.py [--python "chroot FOLDER python3"] [--rounds 3]

`--python` is the command of a Python that has PyTorch; reference_step.py gets there through its
standard input, so it may live in another root folder. Both sides run the workload of `penstock bench
step` with 2 ranks and take turns, round by round, so that a slow minute of the machine hits both.
Prints, for each schedule and each transport of Penstock, how many times as long the reference takes.
"""

import argparse
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys

SCHEDULES = ["1F1B", "Interleaved1F1B", "ZBVZeroBubble"]
TRANSPORTS = ["gloo", "shm", "threads"]
REFERENCE = pathlib.Path(__file__).with_name("reference_step.py")


def workload(arguments):
    sizes = ["microbatches", "hidden", "rows", "layers", "steps"]
    return [text for size in sizes for text in (f"--{size}", str(getattr(arguments, size)))]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_reference(arguments):
    """What rank 0 prints, by schedule."""
    command = [*shlex.split(arguments.python), "-", *workload(arguments)]
    command += ["--schedules", *arguments.schedules]
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONWARNINGS": "ignore",
    }
    ranks = []
    for rank in range(2):
        with REFERENCE.open() as script:
            ranks.append(
                subprocess.Popen(
                    command,
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=script,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
    try:
        outputs = [rank.communicate(timeout=arguments.timeout) for rank in ranks]
    except subprocess.TimeoutExpired:
        sys.exit(f"{shlex.join(command)}: not done after {arguments.timeout} s")
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, talk) in zip(ranks, outputs):
        if rank.returncode != 0:
            sys.exit(f"{shlex.join(command)}: exit status {rank.returncode}\n{talk}")
    lines = [line for line in outputs[0][0].splitlines() if line.startswith("{")]
    return {result["schedule"]: result for result in map(json.loads, lines)}


def run_penstock(schedule, transport, arguments):
    command = [arguments.program, "bench", "step", "--schedule", schedule, "--ranks", "2"]
    command += [*workload(arguments), "--transport", transport, "--json"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=arguments.timeout
    )
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit status {result.returncode}\n{result.stderr}")
    return json.loads(result.stdout)


def times(runs):
    median = statistics.median(run["step_s"] for run in runs)
    return f"{1e3 * median:.2f} ({1e3 * min(run['best_s'] for run in runs):.2f})"


def ratios(reference, runs):
    """How many times as long the reference takes, round by round: median, least and most."""
    shares = [one["step_s"] / other["step_s"] for one, other in zip(reference, runs)]
    return f"{statistics.median(shares):.1f} ({min(shares):.1f} to {max(shares):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/apps/penstock/penstock")
    parser.add_argument("--python", default="python3", help="command of a Python with PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="of each run")
    for name, default in [("microbatches", 16), ("hidden", 64), ("rows", 4), ("layers", 1)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=SCHEDULES)
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one run")
    arguments = parser.parse_args()

    reference = {schedule: [] for schedule in arguments.schedules}
    penstock = {(s, t): [] for s in arguments.schedules for t in arguments.transports}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        found = run_reference(arguments)
        for schedule in arguments.schedules:
            reference[schedule].append(found[schedule])
            for transport in arguments.transports:
                result = run_penstock(schedule, transport, arguments)
                penstock[schedule, transport].append(result)

    torch = reference[arguments.schedules[0]][0]["torch"]
    print(f"| schedule | transport | PyTorch {torch}, Gloo: ms | Penstock: ms | ratio |")
    print("| --- | --- | --- | --- | --- |")
    for (schedule, transport), runs in penstock.items():
        theirs = reference[schedule]
        print(
            f"| {schedule} | {transport} | {times(theirs)} | {times(runs)}"
            f" | {ratios(theirs, runs)} |"
        )
    print("\nMedian of the rounds' medians (best of all steps); ratio: median (least to most).")


if __name__ == "__main__":
    main()
