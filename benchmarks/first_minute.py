"""The first minute: imports, the first step of each level without and with a cache of kernels, and commands that list.

    python benchmarks/first_minute.py [--rounds N]

Every measurement is a new process; all take turns in every round. "First step" is from `import gfgn` to the end of the
first backward pass of a layer with 8 heads of 8 on a small graph, building the graph included; "compiled" has an empty
cache of kernels. Wall-clock time needs an idle machine; CPU time (user and system) is given too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import common

LEVELS = ("graph", "neighbor", "pair")
PEER = "import torch, torch_geometric"
LAYER = "import gfgn; gfgn.GFGNConv"
STEP = """
import gfgn, torch
torch.manual_seed(0)
x, edge_index = torch.randn(1000, 64, requires_grad=True), torch.randint(0, 1000, (2, 10_000))
gfgn.GFGNConv(64, 8, level="{}", heads=8)(x, edge_index).sum().backward()
"""
COMMANDS = ("--help", "models", "datasets", "reproduce")


def run(arguments: list[str], cache: str) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a new process."""
    environment = os.environ | {"GFGN_CACHE": cache}
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{arguments} failed with status {status}")
    return seconds, used.ru_utime + used.ru_stime


def one_round() -> dict[str, tuple[float, float]]:
    found = {}
    with tempfile.TemporaryDirectory() as empty:
        found[PEER] = run(["-c", PEER], empty)
        found[LAYER] = run(["-c", LAYER], empty)
        for command in COMMANDS:
            found[f"gfgn {command}"] = run(["-m", "gfgn", command], empty)
    for level in LEVELS:
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("compiled", "from the cache"):
                found[f"first step, {level}, {kind}"] = run(["-c", STEP.format(level)], cache)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    one_round()  # fills the caches of the system
    found = [one_round() for _ in range(rounds)]
    peer = statistics.median(each[PEER][1] for each in found)
    problems: list[dict[str, object]] = []
    for name in found[0]:
        wall, cpu = (statistics.median(each[name][k] for each in found) for k in (0, 1))
        print(f"{name:<40} {wall:6.2f} s  CPU {cpu:6.2f} s  {cpu / peer:5.2f} x", flush=True)
        row = {"measurement": name, "wall_s": round(wall, 3), "cpu_s": round(cpu, 3)}
        problems.append(row | {"least_wall_s": round(min(each[name][0] for each in found), 3)})
    common.write("first_minute", "cpu", problems, rounds=rounds, peer=PEER)


if __name__ == "__main__":
    main()
