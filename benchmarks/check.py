"""Compares times relative to peers with the committed ones: `make bench-check`. No GPU, no dataset, a few minutes.

    python benchmarks/check.py             # exits with 1 if a ratio left its band
    python benchmarks/check.py --update    # commits the ratios measured now

Ratios carry over from one CPU to another within a band: a ratio may be up to `BAND` times the committed one, or that
much below it. One that is higher is a regression; one that is lower is a gain to commit, or a peer that broke. All
contenders have one thread. What is outside the band is measured once more before it counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import common
import edge_index
import graphs
import layer
import operators
import torch
from race import EAGER

from gfgn import Graph
from gfgn.data.generators import contextual_sbm

BAND = 1.6
ROUNDS = 9
Ratios = dict[str, float]


def ratios(prefix: str, problem: dict[str, object]) -> Ratios:
    """Time of each of our contenders relative to the best peer."""
    rows = [row for row in problem["rows"] if row["ours"]]
    return {f"{prefix}, {row['contender']}": row["ratio"] for row in rows}


def _graph() -> Graph:
    return Graph.from_edge_index(*graphs.skewed(10_000, 200_000, 0.3))


def _operator(measure: Callable[..., dict[str, object]], dtype: torch.dtype) -> dict[str, object]:
    return measure("check", _graph(), 64, ROUNDS, dtype, (EAGER,))


def _building() -> Ratios:
    problem = edge_index.layer("pair", "check", *graphs.skewed(10_000, 200_000, 0.3), "cpu", ROUNDS)
    return {"building a Graph, GFGN-pair": problem["building_to_layer"]}


PARTS: dict[str, Callable[[], Ratios]] = {
    "propagate": lambda: ratios("propagate", _operator(operators.propagate_problem, torch.float32)),
    "propagate, float64": lambda: ratios("propagate, float64", _operator(operators.propagate_problem, torch.float64)),
    "pair_aggregate": lambda: ratios("pair_aggregate", _operator(operators.pair_problem, torch.float32)),
    "pair_aggregate, bfloat16": lambda: ratios(
        "pair_aggregate, bfloat16", _operator(operators.pair_problem, torch.bfloat16)
    ),
    "layer": lambda: ratios(
        "layer", layer.layers("check", *graphs.skewed(10_000, 200_000, 0.3), 64, "cpu", ROUNDS, forms=(EAGER,))
    ),
    "attention": lambda: ratios(
        "attention", layer.attention("check", *graphs.skewed(10_000, 200_000, 0.3), 64, "cpu", ROUNDS, (EAGER,))
    ),
    "step": lambda: ratios("step", layer.step("check", contextual_sbm(2000, features=128), "cpu", ROUNDS, (EAGER,))),
    "building": _building,
}


def compare(committed: Ratios, measured: Ratios, band: float = BAND) -> dict[str, str]:
    """What is wrong with each ratio that left its band, or that only one side has."""
    wrong = dict.fromkeys(measured.keys() - committed.keys(), "measured, but not committed")
    wrong |= dict.fromkeys(committed.keys() - measured.keys(), "committed, but not measured")
    for name in committed.keys() & measured.keys():
        change = measured[name] / committed[name]
        if not 1 / band <= change <= band:  # NaN is outside too
            what = "lower" if change < 1 else "higher"
            wrong[name] = f"{what} than the committed {committed[name]:.3f} by more than {band}: {measured[name]:.3f}"
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    committed = {found["name"]: found["ratio"] for found in common.read("check", "cpu")}
    measured: Ratios = {}
    with common.threads(1):
        for part, measure in PARTS.items():
            found = measure()
            expected = {name: committed[name] for name in found if name in committed}
            if not args.update and compare(expected, found):
                print(f"{part}: outside the band, measured again")
                found = measure()
            measured |= found
    if args.update:
        common.write("check", "cpu", [{"name": name, "ratio": ratio} for name, ratio in measured.items()], band=BAND)
        return
    wrong = compare(committed, measured)
    for name in sorted(measured | committed):
        change = f"{measured[name] / committed[name]:.2f}x" if name in measured and name in committed else ""
        print(f"{name:<40} {measured.get(name, float('nan')):8.3f} {change:>6}  {wrong.get(name, 'ok')}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
