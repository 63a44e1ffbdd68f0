"""How a study uses a dataset: as `load` returns it, or with other features, edges or splits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gfgn.data.dataset import Dataset
from gfgn.data.datasets.registry import DATASETS, load
from gfgn.data.diagnosis import connected_components
from gfgn.data.generators.noise import add_random_edges
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph

NOISE_SEED = 0
CHOICES = {
    "features": ("normalised", "raw"),
    "edges": ("undirected", "directed", "reversed"),
    "nodes": ("all", "largest part"),
}


@dataclass(frozen=True)
class View:
    """What is used of a dataset, and how; by default what `load` returns.

    Attributes:
        noise: Number of random edges to add, as a share of those there are.
        features: CSR of bags of words `"normalised"` or `"raw"`.
        edges: `"undirected"`, `"directed"` as the files have them, or `"reversed"`.
        shares: Of training and validation nodes, for random splits that meet them in every class; the rest is tested
            on. `None` for the dataset's own splits.
        nodes: Which nodes splits are of: `"all"` or those of the `"largest part"` that edges connect.
    """

    noise: float = 0.0
    features: str = "normalised"
    edges: str = "undirected"
    shares: tuple[float, float] | None = None
    nodes: str = "all"

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if self.noise and self.edges != "undirected":
            raise ValueError(f"noise must be 0 where edges are {self.edges}, got {self.noise}")
        if self.shares is not None:
            if len(self.shares) != 2:
                raise ValueError(f"shares must be two, of training and validation nodes, got {self.shares}")
            random_splits(1000, 1, 0, *self.shares)  # says what is wrong with them

    @property
    def words(self) -> str:
        """What is not as usual, in a few words."""
        found = [getattr(self, name) for name, known in CHOICES.items() if getattr(self, name) != known[0]]
        if self.shares is not None:
            found.append("/".join(f"{100 * share:.0f}" for share in (*self.shares, 1 - sum(self.shares))))
        return " ".join(found)


def data_name(dataset: str, view: View | None = None) -> str:
    """The name that a dataset of the registry has in results: a stand-in says that it is one, and what is changed about
    a dataset is told."""
    view = view or View()
    name = f"{dataset} (stand-in)" if DATASETS[dataset].standin else dataset
    noise = f"+{100 * view.noise:g}%" if view.noise else ""
    return f"{name}{noise} {view.words}".rstrip()


def load_view(name: str, view: View, root: Path | None = None) -> Dataset:
    """The dataset of that name, used in that way.

    Args:
        name: Its name in the registry.
        view: How it is used.
        root: Folder of all datasets, see `gfgn.data.load`.
    """
    data = load(name, root, normalize=view.features != "raw", directed=view.edges != "undirected")
    if view == View():
        return data
    graph = data.graph
    if view.edges == "reversed":
        graph = Graph.from_edge_index(graph.edge_index.flip(0), graph.num_nodes, dtype=graph.dtype)
    if view.noise:
        graph = add_random_edges(graph, view.noise, NOISE_SEED)
    return replace(data, name=data_name(name, view), graph=graph, splits=_splits(data, view))


def _splits(data: Dataset, view: View) -> list[Split]:
    """Splits of the nodes that are wanted: the dataset's own, or as many random ones."""
    kept = torch.ones(data.num_nodes, dtype=torch.bool)
    if view.nodes == "largest part":
        part = connected_components(data.graph)
        kept = torch.from_numpy(part == np.bincount(part).argmax())
    if view.shares is None:
        return [Split(*(mask & kept for mask in split)) for split in data.splits]
    classes = torch.where(kept, data.y, -1)
    return random_splits(data.num_nodes, len(data.splits), 0, *view.shares, stratify=classes)
