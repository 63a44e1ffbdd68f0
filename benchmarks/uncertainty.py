"""How often predictions are right, from the most to the least certain fifth of the held-out nodes.

    python benchmarks/uncertainty.py [simulated] [german] [nba] [airports] [twitch-DE-mature] [tolokers-2]

Five networks per level. Tables come from the folder `tables` of `GFGN_DATA` (`NAME/nodes.csv.gz`, `NAME/edges.csv.gz`
and `NAME/splits.npz`). Rows of data that are not named stay as they are in the file of results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import common
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gfgn import GFGNClassifier
from gfgn.data import contextual_sbm
from gfgn.data.named.registry import data_folder

LEVELS = ("graph", "neighbor", "pair")
NETWORKS = 5
PROBLEMS = {"simulated": 6, "german": 10, "nba": 10, "airports": 2, "twitch-DE-mature": 1, "tolokers-2": 1}
"""The number of graphs, or of splits of a table."""


class Problem(NamedTuple):
    """A graph whose test nodes are hidden from the classifier."""

    X: Any
    edges: Any
    y: NDArray[np.int64]
    test: NDArray[np.bool_]


def problems(name: str) -> Iterator[Problem]:
    if name == "simulated":
        for seed in range(PROBLEMS[name]):
            data = contextual_sbm(1200, classes=4, degree=5, homophily=0.4, signal=1.5, seed=seed)
            yield Problem(data.x.numpy(), data.graph, data.y.numpy(), np.random.default_rng(seed).random(1200) < 0.5)
        return
    folder = data_folder() / "tables" / name
    nodes, edges = pd.read_csv(folder / "nodes.csv.gz", index_col="id"), pd.read_csv(folder / "edges.csv.gz")
    y = np.unique(nodes.pop("target"), return_inverse=True)[1]
    for parts in np.load(folder / "splits.npz")["splits"][: PROBLEMS[name]]:
        yield Problem(nodes, edges, y, parts == 2)


def measure(name: str, level: str) -> dict[str, Any]:
    """Accuracy of each fifth in percent, mean over graphs or splits."""
    fifths, nodes = [], 0
    for seed, problem in enumerate(problems(name)):
        clf = GFGNClassifier(level, NETWORKS, device="cpu", random_state=seed)
        clf.fit(problem.X, np.where(problem.test, -1, problem.y), problem.edges)
        right = (clf.predict(problem.X, problem.edges) == problem.y)[problem.test]
        uncertainty = clf.predict_uncertainty(problem.X, problem.edges)[problem.test]
        parts = np.array_split(np.argsort(uncertainty, kind="stable"), 5)
        fifths.append([100 * right[part].mean() for part in parts])
        nodes += len(right)
    row = {"data": name, "level": level, "splits": len(fifths), "test_nodes": nodes}
    row |= {"fifths": np.mean(fifths, 0).round(2).tolist()}
    print(row, flush=True)
    return row


def main() -> None:
    arguments = common.parser(__doc__, 1, PROBLEMS).parse_args()
    torch.set_num_threads(1)
    chosen = arguments.parts or list(PROBLEMS)
    rows = {(row["data"], row["level"]): row for row in common.read("uncertainty", "cpu")}
    for name in chosen:
        for level in LEVELS:
            rows[name, level] = measure(name, level)
            order = [rows[key] for key in ((name, level) for name in PROBLEMS for level in LEVELS) if key in rows]
            common.write("uncertainty", "cpu", order)


if __name__ == "__main__":
    main()
