"""A graph as a user has it: a table of customers, some without a label, and a table of who calls whom."""

from pathlib import Path

import numpy as np
import pandas as pd

CLASSES = np.array(["basic", "family", "premium"])


def write_tables(folder: Path, num_nodes: int = 240, seed: int = 0) -> pd.DataFrame:
    """Writes `nodes.csv` and `edges.csv` and returns the nodes with their true class."""
    random = np.random.default_rng(seed)
    y = random.integers(3, size=num_nodes)
    frame = pd.DataFrame({"id": [f"c{k:04d}" for k in range(num_nodes)]})
    frame["age"] = (35 + 8 * (y == 1) + random.normal(0, 8, num_nodes)).round()
    frame["income"] = random.normal(50_000, 15_000, num_nodes).round(2)
    frame["visits"] = random.poisson(1 + 4 * (y == 2))
    frame["region"] = random.choice(["north", "south", "east"], num_nodes)
    frame["joined"] = np.datetime_as_string(np.datetime64("2020-01-01") + random.integers(0, 900, num_nodes))
    frame.loc[random.random(num_nodes) < 0.05, "age"] = np.nan
    hidden = random.random(num_nodes) < 0.4
    frame["label"] = np.where(hidden, "", CLASSES[y])
    source, target = random.integers(num_nodes, size=(2, 4 * num_nodes))
    for k in range(3):
        picks = (random.random(source.size) < 0.75) & (y[source] == k)
        target[picks] = random.choice(np.flatnonzero(y == k), picks.sum())
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(folder / "nodes.csv", index=False)
    ids = frame["id"].to_numpy()
    pd.DataFrame({"source": ids[source], "target": ids[target]}).to_csv(folder / "edges.csv", index=False)
    return frame.assign(truth=CLASSES[y])
