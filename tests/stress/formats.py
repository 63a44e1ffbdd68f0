"""Every format that gfgn writes or reads: how a valid file is made, and what a reader gets from it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from estimator.graphs import make_graph
from runs.small_studies import STUDY
from runs.stores import row

from gfgn import GFGNClassifier
from gfgn.data import NodeDataset, OnDiskGraph, contextual_sbm, pack, read
from gfgn.runs import Store, read_runs, write_runs
from gfgn.runs.study_file import read_study
from gfgn.train import Replica, train_replicas

NODES = 24
ROWS = [row(seed=number) for number in range(12)]


class Format(NamedTuple):
    """`write` makes files in a folder, and may find those of a killed process there; `read` gives what they hold."""

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    exact: bool = False  # a digest covers the files: what is read is all as it was written


def write_store(folder: Path) -> None:
    with Store(folder / "runs.sqlite") as store:
        for each in ROWS:
            store.add([each])


def read_store(folder: Path) -> Any:
    with Store(folder / "runs.sqlite", read_only=True) as store:
        return [each.key for each in store.rows()]


@functools.cache
def classifier() -> GFGNClassifier:
    return GFGNClassifier("graph", max_epochs=2, device="cpu", random_state=0).fit(*make_graph(40))


def read_model(folder: Path) -> Any:
    x, _, edges = make_graph(40)
    return GFGNClassifier.load(folder / "model").predict_proba(x, edges).tolist()


@functools.cache
def block_model() -> NodeDataset:
    return contextual_sbm(60, splits=1)


def write_packed(folder: Path) -> None:
    if not (folder / "packed").exists():  # which is whole if it is there
        pack(block_model(), folder / "packed")


def contents(data: NodeDataset) -> Any:
    return data.x.to_dense().tolist(), data.y.tolist(), data.graph.edge_index.tolist()


def train(folder: Path) -> Any:
    settings: dict[str, Any] = {"checkpoint": folder, "checkpoint_every": 1, "patience": 4}
    return [
        run.history for run in train_replicas("mlp", block_model(), [Replica(seed=k) for k in (0, 1)], 4, **settings)
    ]


WRITTEN = {
    "run store": Format(write_store, read_store),
    "table of runs": Format(
        lambda folder: write_runs(folder / "runs.csv.gz", ROWS),
        lambda folder: [r.key for r in read_runs(folder / "runs.csv.gz")],
    ),
    "saved model": Format(lambda folder: classifier().save(folder / "model"), read_model, exact=True),
    "packed graph": Format(write_packed, lambda folder: contents(OnDiskGraph.open(folder / "packed").dataset())),
    "checkpoint": Format(train, train, exact=True),
}


def tables() -> dict[str, pd.DataFrame]:
    draw, place = np.random.default_rng(0), np.arange(NODES)
    nodes = {"id": [f"n{k}" for k in place], "label": np.array(["a", "b", "c"])[place % 3]}
    nodes |= {"age": draw.normal(40, 10, NODES).round(2), "color": np.array(["red", "tan"])[place % 2]}
    nodes |= {"price": ["1,5", "2", "?"] * (NODES // 3), "joined": [f"{k + 1:02d}.05.2024" for k in place]}
    ends = draw.integers(0, NODES, (2, 60))
    edges = {"source": [f"n{k}" for k in ends[0]], "target": [f"n{k}" for k in ends[1]]}
    return {"nodes": pd.DataFrame(nodes), "edges": pd.DataFrame(edges)}


def write_csv(folder: Path) -> None:
    for name, frame in tables().items():
        frame.to_csv(folder / f"{name}.csv", index=False, sep=";")


def write_parquet(folder: Path) -> None:
    for name, frame in tables().items():
        frame.to_parquet(folder / f"{name}.parquet")


def write_excel(folder: Path) -> None:
    for name, frame in tables().items():
        frame.to_excel(folder / f"{name}.xlsx", index=False)


def write_npz(folder: Path) -> None:
    draw = np.random.default_rng(1)
    matrix = scipy.sparse.csr_array(draw.poisson(0.3, (NODES, 9)).astype(np.float32))
    parts = {f"x_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "graph.npz", edge_index=draw.integers(0, NODES, (2, 60)), y=np.arange(NODES) % 3, **parts)


GIVEN = {
    "csv": Format(write_csv, read),
    "parquet": Format(write_parquet, read),
    "excel": Format(write_excel, read),
    "npz": Format(write_npz, lambda folder: read(folder / "graph.npz")),
    "study": Format(
        lambda folder: (folder / "odd.yaml").write_text(STUDY), lambda folder: read_study(folder / "odd.yaml")
    ),
}
