#!/usr/bin/env python3
"""Compares pipelines with the bound that their schedules set on this machine.

  benchmarks/run/schedule_bound.py [--program build/release/apps/penstock/penstock] [--rounds 3]

A step cannot be shorter than the work of one rank divided by the share of time that the schedule
leaves it busy: what two threads need without a pipeline, `two_cores_s`, over 1 - ideal bubble. Runs
are short and the schedules take turns, so that a slow minute of the machine hits all of them and
both sides of each comparison. Prints, for each schedule, the share of the bound that was reached:
median and quartiles over the rounds, and the best step against the best that two threads did.
"""

import argparse
import json
import statistics
import subprocess
import sys

SCHEDULES = ["1F1B", "Interleaved1F1B", "ZBVZeroBubble"]


def run(program, schedule, arguments):
    command = [program, "bench", "step", "--schedule", schedule, "--ranks", "2", "--json"]
    command += ["--microbatches", "16", "--hidden", str(arguments.hidden)]
    command += ["--rows", str(arguments.rows), "--layers", str(arguments.layers)]
    command += ["--steps", str(arguments.steps), *arguments.flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {result.returncode}\n{result.stderr}")
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/apps/penstock/penstock")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="per run")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES)
    parser.add_argument("flags", nargs="*", help="for penstock bench, after --: for example --pin")
    arguments = parser.parse_args()

    results = {schedule: [] for schedule in arguments.schedules}
    for _ in range(arguments.rounds):
        for schedule in arguments.schedules:
            results[schedule].append(run(arguments.program, schedule, arguments))

    print(f"{'schedule':24} {'step ms':>8} {'bound ms':>9} {'median':>7} {'quartiles':>15} {'best':>7}")
    for schedule, runs in results.items():
        shares = [run["schedule_bound_s"] / run["step_s"] for run in runs]
        low, middle, high = statistics.quantiles(shares, n=4) if len(shares) > 1 else 3 * shares
        bound = statistics.median(run["schedule_bound_s"] for run in runs)
        step = statistics.median(run["step_s"] for run in runs)
        best_bound = min(run["schedule_bound_best_s"] for run in runs)
        best = best_bound / min(run["best_s"] for run in runs)
        print(
            f"{schedule:24} {1e3 * step:8.2f} {1e3 * bound:9.2f} {middle:7.1%}"
            f" {f'{low:.1%} .. {high:.1%}':>15} {best:7.1%}"
        )


if __name__ == "__main__":
    main()
