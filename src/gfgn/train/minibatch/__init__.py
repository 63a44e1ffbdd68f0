"""Training on samples of a graph: samplers compiled with Numba, the methods that use them, and a plain loop.

`NeighborSampler` stands behind PyG's loaders. `NeighborBatches` (`graphsage`), `ControlVariateBatches` (`vr-gcn`) and
`SaintBatches` (`graphsaint`) cut an epoch into steps for `train_minibatch`; `minibatches` makes them by a model's name.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gfgn.graph import Graph
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.train.minibatch.control_variate import ControlVariateBatches
from gfgn.train.minibatch.loop import Fit, Minibatches, train_minibatch
from gfgn.train.minibatch.sage import NeighborBatches
from gfgn.train.minibatch.saint import EdgeSampler, NodeSampler, SaintBatches, WalkSampler

__all__ = [
    "ControlVariateBatches",
    "EdgeSampler",
    "Fit",
    "Minibatches",
    "NeighborBatches",
    "NeighborSampler",
    "NodeSampler",
    "SaintBatches",
    "WalkSampler",
    "minibatches",
    "train_minibatch",
]


def minibatches(
    model: str, net: nn.Module, x: Tensor, graph: Graph, y: Tensor, train: Tensor, **options: Any
) -> Minibatches:
    """How the model of that name trains in mini-batches.

    Args:
        model: `"graphsage"`, `"vr-gcn"` or `"graphsaint"`.
        net: The model.
        x: `[N, F]`, dense or sparse CSR.
        graph: The whole graph.
        y: Labels, see `train_minibatch`.
        train: `[N]`, mask of the training nodes.
        options: Of `NeighborBatches`, `ControlVariateBatches` or `SaintBatches`.
    """
    if model == "graphsage":
        return NeighborBatches(x, graph, y, train, **options)
    if model == "vr-gcn":
        return ControlVariateBatches(net, x, graph, y, train, **options)
    if model == "graphsaint":
        return SaintBatches(x, graph, y, train, **options)
    raise ValueError(f"model must be one of 'graphsage', 'vr-gcn', 'graphsaint', got {model!r}")
