"""How often predictions are right, from the most to the least certain fifth of the held-out nodes.

    python benchmarks/uncertainty.py [simulated] [tables]

Five networks per level on simulated graphs and on real tables, the latter from the folder `tables` of `GFGN_DATA`
(`NAME/nodes.csv.gz`, `NAME/edges.csv.gz` and `NAME/splits.npz`). Nodes are divided by `predict_uncertainty`, and for
comparison by two measures of how much the networks disagree: before calibration and after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import entr

from gfgn import GFGNClassifier
from gfgn.data import contextual_sbm
from gfgn.data.named.registry import data_folder
from gfgn.estimator.members import temper

LEVELS = ("graph", "neighbor", "pair")
NETWORKS = 5
GRAPHS = 6
TABLES = {"german": 5, "nba": 10, "airports": 2}  # and the number of splits


class Problem(NamedTuple):
    """A graph whose test nodes are hidden from the classifier."""

    X: Any
    edges: Any
    y: NDArray[Any]
    test: NDArray[np.bool_]


def simulated() -> Iterator[Problem]:
    for seed in range(GRAPHS):
        data = contextual_sbm(1200, classes=4, degree=5, homophily=0.4, signal=1.5, seed=seed)
        yield Problem(data.x.numpy(), data.graph, data.y.numpy(), np.random.default_rng(seed).random(1200) < 0.5)


def table(folder: Path, splits: int) -> Iterator[Problem]:
    nodes, edges = pd.read_csv(folder / "nodes.csv.gz", index_col="id"), pd.read_csv(folder / "edges.csv.gz")
    y = np.unique(nodes.pop("target"), return_inverse=True)[1]
    for parts in np.load(folder / "splits.npz")["splits"][:splits]:
        yield Problem(nodes, edges, y, parts == 2)


def uncertainties(clf: GFGNClassifier, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """`[N]` of every measure; the last is the mutual information of a node's class and the network."""
    members = clf._member_probabilities(clf._encode(problem.X, problem.edges, None)[0])
    predicted = members.mean(0).argmax(1, keepdim=True)
    spread = members.std(0, correction=0).gather(1, predicted).squeeze(1)
    tempered = temper(members, clf.temperature_, False).numpy()
    return {
        "predict_uncertainty": clf.predict_uncertainty(problem.X, problem.edges),
        "disagreement": spread.numpy(),
        "calibrated disagreement": entr(tempered.mean(0)).sum(1) - entr(tempered).sum(2).mean(0),
    }


def measure(name: str, level: str, problems: Iterator[Problem]) -> dict[str, Any]:
    """Mean over the problems of the accuracy of each fifth."""
    accuracy, temperatures, fifths = [], [], {}
    for seed, problem in enumerate(problems):
        clf = GFGNClassifier(level, NETWORKS, device="cpu", random_state=seed)
        clf.fit(problem.X, np.where(problem.test, -1, problem.y), problem.edges)
        right = (clf.predict(problem.X, problem.edges) == problem.y)[problem.test]
        accuracy.append(right.mean())
        temperatures.append(clf.temperature_)
        for measure, values in uncertainties(clf, problem).items():
            parts = np.array_split(np.argsort(values[problem.test], kind="stable"), 5)
            fifths.setdefault(measure, []).append([right[part].mean() for part in parts])
    row: dict[str, Any] = {"data": name, "level": level, "graphs or splits": len(accuracy), "test nodes": len(right)}
    row |= {"accuracy": round(float(np.mean(accuracy)), 4), "temperature": round(float(np.mean(temperatures)), 3)}
    row |= {measure: np.mean(each, 0).round(4).tolist() for measure, each in fifths.items()}
    print(row, flush=True)
    return row


def main() -> None:
    arguments = common.parser(__doc__, 1, ("simulated", "tables")).parse_args()
    torch.set_num_threads(1)
    rows, parts = [], arguments.parts or ["simulated", "tables"]
    for level in LEVELS:
        if "simulated" in parts:
            rows.append(measure("simulated", level, simulated()))
        for name, splits in TABLES.items() if "tables" in parts else ():
            rows.append(measure(name, level, table(data_folder() / "tables" / name, splits)))
    common.write("uncertainty", "cpu", rows)


if __name__ == "__main__":
    main()
