"""Views of a dataset: as `load` returns it, or with other features, edges or splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import connected_components
from gfgn.data.generators.noise import add_random_edges
from gfgn.data.named.catalog import DATASETS
from gfgn.data.named.registry import load
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph
from gfgn.runs.record import measure_test_share
from gfgn.train.statistics import TEST_SHARE

CHOICES = {
    "features": ("normalized", "raw"),
    "edges": ("undirected", "directed", "reversed"),
    "nodes": ("all", "largest part"),
}
# Where other than 20% of the nodes are test nodes. Those of the Open Graph Benchmark and PPI have a single split.
TEST_SHARES = {
    **dict.fromkeys(("minesweeper", "tolokers", "roman-empire", "amazon-ratings", "questions"), 1 / 3),
    **dict.fromkeys(("ogbn-arxiv", "ogbn-arxiv-structure"), 0.4025),
    "ogbn-products": 9.38,
    **dict.fromkeys(("ppi", "ppi-relabelled"), 0.1074),
}


@dataclass(frozen=True)
class View:
    """How a study uses a dataset; by default as `load` returns it. `CHOICES` lists the values of text settings."""

    noise: float = 0.0  # number of random edges to add, as a fraction of the number of edges
    features: str = "normalized"  # rows of bag-of-words features, or "raw"
    edges: str = "undirected"  # or "directed" as in the files, or "reversed"
    fractions: tuple[float, float] | None = None  # of training and validation nodes, for random splits within classes
    nodes: str = "all"  # which nodes the splits cover: or the "largest part", the largest connected component
    draw: int = 0  # which random edges: the seed of the noise

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if self.noise and self.edges != "undirected":
            raise ValueError(f"noise must be 0 where edges are {self.edges}, got {self.noise}")
        if self.draw < 0 or (self.draw and not self.noise):
            raise ValueError(f"draw must be 0 without noise, and 0 or larger with it, got {self.draw}")
        if self.fractions is not None:
            if len(self.fractions) != 2:
                raise ValueError(f"fractions must be two, of training and validation nodes, got {self.fractions}")
            if not (min(self.fractions) > 0 and sum(self.fractions) < 1):
                raise ValueError(f"fractions must be positive with a sum below 1, got {self.fractions}")


@dataclass(frozen=True)
class GraphFile:
    """A graph of the user's own: where it is, and the arguments of `gfgn.data.read`."""

    path: Path
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def read(self, name: str) -> NodeDataset:
        """The graph, under its name in the study."""
        from gfgn.data.reading import read

        return replace(read(self.path, **self.options), name=name)


def data_name(dataset: str, view: View | None = None) -> str:
    """The name of a dataset in results: it marks stand-ins and ends with what `view` changes."""
    view = view or View()
    entry = DATASETS.get(dataset)
    name = f"{dataset} (stand-in)" if entry is not None and entry.standin else dataset
    name += f"+{100 * view.noise:g}%" if view.noise else ""
    name += f" draw {view.draw}" if view.draw else ""
    changes = [getattr(view, part) for part, known in CHOICES.items() if getattr(view, part) != known[0]]
    if view.fractions is not None:
        changes.append("/".join(f"{100 * part:.0f}" for part in (*view.fractions, 1 - sum(view.fractions))))
    return " ".join([name, *changes])


def known_test_share(dataset: str, view: View | None = None, graph: GraphFile | None = None) -> float:
    """The number of test nodes of a split over that of its other nodes, see `gfgn.train.statistics.standard_error`.

    Known without loading the data, so that the tables of a study follow from its runs alone; only a graph of the user's
    own is read. Nodes that a view leaves out are missing from all parts alike.
    """
    view = view or View()
    if view.fractions is not None:
        return 1 / sum(view.fractions) - 1
    if graph is not None:
        return _measured_test_share(graph)
    return TEST_SHARES.get(dataset, TEST_SHARE)


@cache
def _measured_test_share(graph: GraphFile) -> float:
    if not graph.path.exists():
        return TEST_SHARE
    share = measure_test_share(graph.read("").splits)
    return TEST_SHARE if share is None else share


def load_view(name: str, view: View, root: Path | None = None, file: GraphFile | None = None) -> NodeDataset:
    """Loads a view of a dataset of the registry, or of the graph in a `file` of the user's own.

    `root` is the folder of all datasets, see `gfgn.data.load`.
    """
    if file is not None:
        data = file.read(name)
    else:
        data = load(name, root, normalize=view.features != "raw", directed=view.edges != "undirected")
    if view == View():
        return data
    graph = data.graph
    if view.edges == "reversed":
        graph = Graph.from_edge_index(graph.edge_index.flip(0), graph.num_nodes, dtype=graph.dtype)
    if view.noise:
        graph = add_random_edges(graph, view.noise, view.draw)
    return replace(data, name=data_name(name, view), graph=graph, splits=_splits(data, view))


def _splits(data: NodeDataset, view: View) -> list[Split]:
    """The splits of the dataset, or the same number of random ones, restricted to the nodes of the view."""
    kept = torch.ones(data.num_nodes, dtype=torch.bool)
    if view.nodes == "largest part":
        component = connected_components(data.graph)
        kept = torch.from_numpy(component == np.bincount(component).argmax())
    if view.fractions is None:
        return [Split(*(mask & kept for mask in split)) for split in data.splits]
    classes = torch.where(kept, data.y, -1)
    return random_splits(data.num_nodes, len(data.splits), 0, *view.fractions, stratify=classes)
