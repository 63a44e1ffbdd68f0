"""`Task`: the nodes and graphs of training and evaluation, computed from a `NodeDataset` once for all replicas.

With one graph, training, validation and test see all of it, and masks select the nodes that count. With many graphs
that each belong to one part of the split (PPI), each part has its own graph, and training never sees the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.data.mapped import is_mapped
from gfgn.graph import Graph
from gfgn.metrics import METRICS
from gfgn.ops.features import row_normalize, sparse_if_smaller, take_rows


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes with their graph, and a mask of those that count for every split."""

    x: Tensor
    graph: Graph
    y: Tensor
    masks: Tensor  # [S, N], boolean: the nodes that count in each of the S splits

    def weights(self, balanced: bool = False) -> Tensor:
        """`[S, N]` weights of the nodes' losses. They sum to 1 per split, and if `balanced` equally per class."""
        weight = self.masks.to(self.x.dtype)
        if balanced:
            classes = torch.nn.functional.one_hot(self.y.clamp(min=0)).to(weight.dtype)
            weight = weight * ((weight @ classes).clamp(min=1).reciprocal() @ classes.t())
        return weight / weight.sum(1, keepdim=True)


@dataclass(frozen=True, eq=False)
class Task:
    """The parts of each training step, of validation and of test."""

    steps: tuple[Part, ...]
    val: Part
    test: Part


def with_sparse_features(data: NodeDataset) -> NodeDataset:
    """The dataset with mostly-zero features as a sparse tensor, whose products with weights and dropout are cheaper;
    those of a graph in files stay there."""
    x = data.x if is_mapped(data.graph) else sparse_if_smaller(data.x)
    return data if x is data.x else replace(data, x=x)


def with_dense_features(data: NodeDataset) -> NodeDataset:
    """The dataset with dense features, as a custom model expects them."""
    return data if data.x.layout == torch.strided else replace(data, x=data.x.to_dense())


def with_features(data: NodeDataset, features: str) -> NodeDataset:
    """The dataset with features as `"given"`, or `"normalized"`: each row divided by the sum of its absolute values.

    The sums are computed on the CPU, where their order is the same every time.
    """
    if features == "given":
        return data
    x = row_normalize(data.x.cpu())
    return replace(data, x=x.to(data.x.device))


def make_task(data: NodeDataset, splits: Sequence[int], graphs_per_step: int | None = None) -> Task:
    """The task of a dataset for the splits at the given indices: a single one if the dataset is inductive.

    `graphs_per_step` is the number of training graphs per step of inductive data; `None` for all.
    """
    chosen = [data.splits[k] for k in splits]
    if not data.inductive:
        whole = (data.x, data.graph, data.y)
        train, val, test = (torch.stack([split[part] for split in chosen]) for part in range(3))
        return Task((Part(*whole, train),), Part(*whole, val), Part(*whole, test))
    (split,), batch = chosen, data.graph.batch
    assert batch is not None
    graphs = batch[split.train].unique()
    subsets = graphs.split(graphs_per_step or graphs.numel())
    steps = tuple(graphs_with(data, torch.isin(batch, subset) & split.train) for subset in subsets)
    return Task(steps, graphs_with(data, split.val), graphs_with(data, split.test))


def graphs_with(data: NodeDataset, nodes: Tensor) -> Part:
    """The graphs that contain the nodes of a mask; other nodes of these graphs do not count."""
    batch = data.graph.batch
    assert batch is not None
    ids = batch[nodes].unique()
    kept = torch.isin(batch, ids)
    new_index = kept.cumsum(0) - 1
    edges = data.graph.edge_index
    inside = kept[edges[1]]
    weight = None if data.graph.weight is None else data.graph.weight[inside]
    graph = Graph.from_edge_index(
        new_index[edges[:, inside]],
        int(kept.sum()),
        weight,
        batch=torch.searchsorted(ids, batch[kept]),
        batch_size=ids.numel(),
        duplicates="keep",
        dtype=data.graph.dtype,
    )
    return Part(take_rows(data.x, kept.nonzero().view(-1)), graph, data.y[kept], nodes[kept].unsqueeze(0))


def check_splits(data: NodeDataset, splits: Iterable[int]) -> None:
    """Raises an error if a split does not exist, or lacks the nodes that training and evaluation need.

    A split without test nodes is allowed; its test score is NaN.
    """
    for index in sorted(set(splits)):
        if index >= len(data.splits):
            raise ValueError(
                f"split must be below {len(data.splits)}, the number of splits of {data.name!r}, got {index}"
            )
        for part, mask in data.splits[index]._asdict().items():
            if part == "test" and not mask.any():
                continue
            if not mask.any():
                raise ValueError(f"split {index} of {data.name!r} must have {part} nodes, got an empty mask")
            if METRICS[data.metric].ranks and part != "train" and data.y[mask].unique().numel() < 2:
                raise ValueError(
                    f"split {index} of {data.name!r} must have {part} nodes of two or more classes for {data.metric}, "
                    f"got {int(mask.sum())} of one class"
                )
