"""`Task`: what training and evaluation look at, worked out of a `Dataset` once for all replicas.

One graph: training, validation and test see the whole of it, and masks say which nodes count. Many graphs of which
each belongs to one part (PPI): each part is a graph of its own, so that training never runs on what it must not see.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.features import take_rows

SPARSE = 0.2
"""Share of values that are not 0 up to which features are trained on as a sparse tensor."""
FEW_FEATURES = 32


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes with their graph, and for every split which of them count."""

    x: Tensor
    graph: Graph
    y: Tensor
    masks: Tensor
    """`[S, N]`, boolean: the nodes that count in each of the `S` splits."""

    def weights(self, balanced: bool = False) -> Tensor:
        """`[S, N]`: what each node's loss weighs, 1 in all for every split; with `balanced`, the same for every
        class."""
        weight = self.masks.to(self.x.dtype)
        if balanced:
            classes = torch.nn.functional.one_hot(self.y.clamp(min=0)).to(weight.dtype)
            weight = weight * ((weight @ classes).clamp(min=1).reciprocal() @ classes.t())
        return weight / weight.sum(1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Task:
    """What every step of an epoch trains on, and what is validated and tested on."""

    steps: tuple[Part, ...]
    val: Part
    test: Part


def with_sparse_features(data: Dataset) -> Dataset:
    """The dataset with features that are mostly zeros as a sparse tensor, whose products with weights are cheaper and
    whose dropout takes no memory."""
    if data.x.layout != torch.strided or data.num_features < FEW_FEATURES:
        return data
    if data.x.count_nonzero() > SPARSE * data.x.numel():
        return data
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # that they are in beta
        return replace(data, x=data.x.to_sparse_csr())


def make_task(data: Dataset, splits: Sequence[int], graphs_per_step: int | None = None) -> Task:
    """The task of a dataset for some of its splits.

    Args:
        data: The dataset; if inductive, `splits` must name one split only.
        splits: Places in the dataset's `splits`.
        graphs_per_step: Of inductive data, how many training graphs make up a step; `None` for all.
    """
    chosen = [data.splits[k] for k in splits]
    if not data.inductive:
        whole = (data.x, data.graph, data.y)
        train, val, test = (torch.stack([split[part] for split in chosen]) for part in range(3))
        return Task((Part(*whole, train),), Part(*whole, val), Part(*whole, test))
    (split,) = chosen
    return Task(
        tuple(_part(data, nodes) for nodes in _steps(data, split, graphs_per_step)),
        _part(data, split.val),
        _part(data, split.test),
    )


def _steps(data: Dataset, split: Split, graphs_per_step: int | None) -> list[Tensor]:
    """The training nodes of each step: those of so many whole graphs, in the order of the graphs."""
    assert data.graph.batch is not None
    graphs = data.graph.batch[split.train].unique()
    size = graphs.numel() if graphs_per_step is None else graphs_per_step
    return [torch.isin(data.graph.batch, some) & split.train for some in graphs.split(size)]


def _part(data: Dataset, nodes: Tensor) -> Part:
    """The graphs that hold the given nodes, all of whose other nodes are of no part."""
    batch = data.graph.batch
    assert batch is not None
    ids = batch[nodes].unique()
    kept = torch.isin(batch, ids)
    place = kept.cumsum(0) - 1
    source, target = data.graph.edge_index
    inside = kept[target]
    weight = None if data.graph.weight is None else data.graph.weight[inside]
    graph = Graph.from_edge_index(
        place[torch.stack([source, target])[:, inside]],
        int(kept.sum()),
        weight,
        batch=torch.searchsorted(ids, batch[kept]),
        batch_size=ids.numel(),
        duplicates="keep",
        dtype=data.graph.dtype,
    )
    return Part(take_rows(data.x, kept.nonzero().view(-1)), graph, data.y[kept], nodes[kept].unsqueeze(0))
