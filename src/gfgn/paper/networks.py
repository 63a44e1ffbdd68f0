"""Networks trained with the chosen configurations, their first-layer gates, and tables with one row per network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from gfgn.data import load
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
MAX_EPOCHS, PATIENCE = 400, 100


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
    model: str, dataset: NodeDataset, configuration: Configuration | None, seeds: Sequence[int], device: str
) -> list[Run]:
    """Trains a GFGN on the first splits of a dataset, one seed for each. Without a `configuration`, that of the paper's
    grid with the best mean validation score is used. Runs have their parameters, on the CPU."""
    splits, data = range(len(seeds)), with_sparse_features(dataset.to(device))
    train = partial(
        train_replicas, model, data, max_epochs=MAX_EPOCHS, patience=PATIENCE, device=device, history=False, gates=False
    )
    if configuration is None:
        configuration = select(train(make_replicas(model, PAPER_GRID, splits))).best
    runs = train([make_replica(configuration, *each) for each in zip(splits, seeds, strict=True)], keep_state=True)
    return [replace(run, state={name: value.cpu() for name, value in (run.state or {}).items()}) for run in runs]


def first_layer_gates(dataset: NodeDataset, run: Run) -> Tensor:
    """The gates of a GFGN, given the dataset that it was trained on and the run with its state: `[1, D]`, `[N, D]` or
    `[E, D]`, edges in the order of `dataset.graph.edge_index`."""
    entry, replica = find_model(run.model), run.replica
    if not entry.gated or run.state is None:
        raise ValueError(f"run must be of a model with gates and have its state, got one of {run.model!r}")
    settings = entry.settings(run.model, replica.options, {"num_nodes": dataset.num_nodes})
    model = cast(GFGN, entry.build(dataset.num_features, dataset.num_classes, replica.dropout, replica.lam, settings))
    model.load_state_dict(run.state)
    model.to(dataset.x.device).eval()
    with torch.no_grad():
        first: Tensor = model(dataset.x, dataset.graph, return_scores=True)[1][0]
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


def fill_tables(
    tables: Mapping[Path, Callable[[NodeDataset, Run], list[dict[str, object]]]],
    cells: Sequence[tuple[str, str]],
    chosen: Mapping[tuple[str, str], Configuration],
    *,
    seeds: Sequence[int],
    order: Sequence[tuple[str, str]],
    root: Path | None,
    device: str,
    progress: Callable[[str], None],
    normalize: bool = True,
) -> None:
    """Trains the networks that the first table lacks, and adds to every table the rows that its function makes of each.

    Args:
        cells: Datasets and models.
        chosen: Their configurations; others are selected here. Networks of another configuration are trained again.
        order: All datasets and models that the tables may have, in order.
    """
    for name, model in cells:
        configuration, first = chosen.get((name, model)), next(iter(tables))
        rows = [row for row in read_csv(first) if (row["dataset"], row["model"]) == (name, model)]
        known = [(key, float(value)) for key, value in (configuration or {}).items() if key in HYPER]
        same = all(float(row[key]) == value for row in rows for key, value in known)
        if same and {int(row["split"]) for row in rows} == set(range(len(seeds))):
            continue
        progress(f"{first.stem}: {model} on {name}, configuration {'of chosen.csv' if known else 'selected here'}")
        dataset = load(name, root, normalize=normalize)
        runs = train_networks(model, dataset, configuration, seeds, device)
        for path, describe in tables.items():
            new = [row for run in runs for row in describe(dataset, run)]
            lines: list[Mapping[str, object]] = [*new]
            lines += [row for row in read_csv(path) if (row["dataset"], row["model"]) != (name, model)]
            lines.sort(key=lambda row: order.index((str(row["dataset"]), str(row["model"]))))
            write_csv(path, list(new[0]), [list(line.values()) for line in lines], digits=5)
