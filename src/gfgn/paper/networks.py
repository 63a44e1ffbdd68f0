"""Networks trained with the chosen configurations, their first-layer gates, and tables with one row per network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.nn import GFGN
from gfgn.nn.registry import find_model
from gfgn.paper.pages import read_csv, write_csv
from gfgn.runs.grid import PAPER_GRID, Configuration, make_replica, make_replicas
from gfgn.runs.selection import select
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Run
from gfgn.train.task import with_sparse_features

HYPER = ("lr", "weight_decay", "dropout", "lam")
SPLITS = 10
IDLE = 0.1  # a dimension is idle if the norm of its weights, after weight decay, is below this fraction of the largest


def read_chosen(path: Path, variant: str | None = None) -> dict[tuple[str, str], Configuration]:
    """The selected configurations of a study's `chosen.csv` by dataset and model, of one `variant` if the study has
    several; none without a file."""
    chosen: dict[tuple[str, str], Configuration] = {}
    for row in read_csv(path):
        if row.get("chosen") == "1" and row.get("variant") == variant:
            hyper: Configuration = {name: float(row[name]) for name in HYPER}
            for name, _, text in (part.partition("=") for part in row.get("own", "").split()):
                try:
                    hyper[name] = json.loads(text)
                except json.JSONDecodeError:
                    hyper[name] = text
            chosen[row["dataset"], row["model"]] = hyper
    return chosen


def train_networks(
    model: str,
    dataset: NodeDataset,
    configuration: Configuration | None = None,
    *,
    seeds: Sequence[int] = (0,) * SPLITS,
    device: str = "cpu",
    grid: Sequence[Configuration] = tuple(PAPER_GRID),
    max_epochs: int = 400,
    patience: int = 100,
) -> tuple[Configuration, list[Run]]:
    """Trains a GFGN on the first splits of a dataset, one seed for each. Without a `configuration`, the one of `grid`
    with the best mean validation score is used; it is returned. Runs have their parameters, on the CPU."""
    splits, data = range(len(seeds)), with_sparse_features(dataset.to(device))
    if configuration is None:
        replicas = make_replicas(model, grid, splits)
        tuned = train_replicas(model, data, replicas, max_epochs, patience, device, history=False, gates=False)
        configuration = select(tuned).best
    replicas = [make_replica(configuration, split, seed) for split, seed in zip(splits, seeds, strict=True)]
    runs = train_replicas(
        model, data, replicas, max_epochs, patience, device, history=False, gates=False, keep_state=True
    )
    states = [{name: value.cpu() for name, value in (run.state or {}).items()} for run in runs]
    return configuration, [replace(run, state=state) for run, state in zip(runs, states, strict=True)]


def first_layer_gates(dataset: NodeDataset, run: Run) -> Tensor:
    """The gates of a GFGN, given the dataset that it was trained on and the run with its state: `[1, D]`, `[N, D]` or
    `[E, D]`, edges in the order of `dataset.graph.edge_index`."""
    entry = find_model(run.model)
    if not entry.gated or run.state is None:
        raise ValueError(f"run must be of a model with gates and have its state, got one of {run.model!r}")
    replica = run.replica
    settings = entry.settings(run.model, replica.options, {"num_nodes": dataset.num_nodes})
    model = cast(GFGN, entry.build(dataset.num_features, dataset.num_classes, replica.dropout, replica.lam, settings))
    model.load_state_dict(run.state)
    model.to(dataset.x.device).eval()
    with torch.no_grad():
        _, scores = model(dataset.x, dataset.graph, return_scores=True)
    first: Tensor = scores[0]
    if model.convs[0].level != "pair":
        return first
    # Gates are in the order of the given edges, which may contain duplicates and self-loops: keep one row per edge.
    position = dataset.graph.edge_position
    kept = first.new_empty(dataset.graph.num_edges, first.size(1))
    kept[position[position >= 0]] = first[position >= 0]
    return kept


def weight_norms(run: Run) -> Tensor:
    """The norms of the weights of the dimensions of the first layer as a fraction of the largest."""
    assert run.state is not None
    norms: Tensor = run.state["convs.0.lin.weight"].double().norm(dim=1)
    return norms / norms.max()


def has_networks(
    path: Path, dataset: str, model: str, configuration: Configuration | None, splits: int = SPLITS
) -> bool:
    """Whether a table has all splits of a model on a dataset, with the configuration if one is given."""
    rows = [row for row in read_csv(path) if (row["dataset"], row["model"]) == (dataset, model)]
    wanted = configuration or {}
    same = all(float(row[name]) == float(wanted[name]) for row in rows for name in HYPER if name in wanted)
    return same and {int(row["split"]) for row in rows} == set(range(splits))


def replace_rows(path: Path, rows: Sequence[Mapping[str, object]], order: Iterable[tuple[str, str]]) -> None:
    """Replaces the rows of one dataset and model in a table, which is in the `order` of datasets and models."""
    known, key = list(order), (rows[0]["dataset"], rows[0]["model"])
    lines: list[Mapping[str, object]] = [line for line in read_csv(path) if (line["dataset"], line["model"]) != key]
    lines = sorted([*lines, *rows], key=lambda line: known.index((str(line["dataset"]), str(line["model"]))))
    write_csv(path, list(rows[0]), [[line[name] for name in rows[0]] for line in lines], digits=5)
