"""The models by name. To add one, write its builder and give it a line in `MODELS`.

A builder takes the number of features, the number of classes and the replica, and returns a module that maps
`(x, graph)` to logits. All have two layers, 64 hidden units (for GFGN 8 heads of 8, as in the paper) and
dropout on the input of both layers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense.linear import Linear

from gfgn.graph import Graph
from gfgn.nn import GFGN
from gfgn.ops import propagate
from gfgn.train.replica import Replica

Builder = Callable[[int, int, Replica], nn.Module]

HIDDEN = 64
HEADS = 8


class MLP(nn.Module):
    """Two linear layers that do not look at the graph."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = Linear(in_channels, hidden_channels, weight_initializer="glorot", bias_initializer="zeros")
        self.out = Linear(hidden_channels, out_channels, weight_initializer="glorot", bias_initializer="zeros")

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        x = _drop(x, self.dropout, self.training)
        x = (x @ self.hidden.weight.t() + self.hidden.bias).relu()  # `@` takes sparse features, `F.linear` does not
        logits: Tensor = self.out(_drop(x, self.dropout, self.training))
        return logits


class GCN(nn.Module):
    """Two of PyG's `GCNConv`, whose products with the adjacency go through `gfgn.ops.propagate`: the same to the last
    digits, and faster."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden = GCNConv(in_channels, hidden_channels)
        self.out = GCNConv(hidden_channels, out_channels)
        self._looped: tuple[Graph, Graph] | None = None

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = self._with_self_loops(graph)
        x = self._convolve(self.hidden, _drop(x, self.dropout, self.training), looped).relu()
        return self._convolve(self.out, _drop(x, self.dropout, self.training), looped)

    @staticmethod
    def _convolve(conv: GCNConv, x: Tensor, looped: Graph) -> Tensor:
        bias: Tensor = conv.bias
        return propagate(x @ conv.lin.weight.t(), looped) + bias

    def _with_self_loops(self, graph: Graph) -> Graph:
        """The graph with GCN's self-loops, worked out once for the graph at hand."""
        if self._looped is None or self._looped[0] is not graph:
            looped = Graph.from_edge_index(graph.edge_index, graph.num_nodes, graph.weight, self_loops="add")
            self._looped = (graph, looped)
        return self._looped[1]


def _mlp(in_channels: int, num_classes: int, replica: Replica) -> nn.Module:
    return MLP(in_channels, HIDDEN, num_classes, replica.dropout)


def _gcn(in_channels: int, num_classes: int, replica: Replica) -> nn.Module:
    return GCN(in_channels, HIDDEN, num_classes, replica.dropout)


def _gfgn(in_channels: int, num_classes: int, replica: Replica, *, level: str) -> nn.Module:
    return GFGN(
        in_channels,
        HIDDEN // HEADS,
        2,
        num_classes,
        level=level,
        heads=HEADS,
        lam=replica.lam,
        dropout=replica.dropout,
        validate=False,  # a `Dataset` holds finite features only
    )


MODELS: dict[str, Builder] = {
    "mlp": _mlp,
    "gcn": _gcn,
    "gfgn-graph": partial(_gfgn, level="graph"),
    "gfgn-neighbor": partial(_gfgn, level="neighbor"),
    "gfgn-pair": partial(_gfgn, level="pair"),
}


def builder(name: str) -> Builder:
    """The builder of the model of that name."""
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}{hint}")
    return MODELS[name]


def _drop(x: Tensor, rate: float, training: bool) -> Tensor:
    if x.layout == torch.sparse_csr:
        values = nn.functional.dropout(x.values(), rate, training)
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, size=x.shape, check_invariants=False)
    return nn.functional.dropout(x, rate, training)
