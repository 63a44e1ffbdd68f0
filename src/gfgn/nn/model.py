"""`GFGN`: a network of `GFGNConv` layers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn.models.jumping_knowledge import JumpingKnowledge
from torch_geometric.nn.resolver import activation_resolver, normalization_resolver

from gfgn import ops
from gfgn.graph import Graph, as_graph, first_edges
from gfgn.nn.conv import GFGNConv, check_features, check_positive, norm_dtype
from gfgn.nn.linear import ResettableModule

JUMPING_KNOWLEDGE = (None, "last", "cat", "max", "lstm")


class GFGN(ResettableModule):
    r"""A Graph Feature Gating Network: `num_layers` layers of `GFGNConv`, with arguments as in PyG's `BasicGNN`.

    Every layer but the last has `heads` heads, whose outputs are concatenated to `hidden_channels` units, followed by
    normalization and activation. The last layer has one head and `out_channels` units. Dropout is applied to the
    input of every layer.

    Args:
        in_channels: Number of input features; −1 takes it from the first input.
        hidden_channels: Number of hidden units of all heads together; `heads` must divide it.
        num_layers: Number of layers.
        out_channels: Number of outputs. Without it, the last layer is a hidden one, without norm and activation.
        level: `"graph"`, `"neighbor"` or `"pair"`, see `GFGNConv`.
        heads: Number of gating heads of a hidden layer.
        lam: λ, the largest value of a gate.
        dropout: Dropout rate.
        input_dropout: Dropout rate of the features, the input of the first layer; `None` for `dropout`.
        act: Activation: a name that PyG resolves (`"relu"`, `"elu"`, …), a callable, or `None` (also `"none"`).
        act_kwargs: Arguments of the activation that `act` names.
        norm: Normalization between layers: a name that PyG resolves (`"BatchNorm"`, `"LayerNorm"`, …), a module (each
            layer gets a copy), or `None`.
        norm_kwargs: Arguments of the normalization that `norm` names.
        jk: Jumping knowledge (Xu et al., 2018): `"last"`, `"cat"`, `"max"` or `"lstm"`. Then all layers are hidden, and
            a linear map of their joined outputs follows, with `out_channels` (or `hidden_channels`) outputs.
        residual: Whether to add the input of a layer to its output where their widths agree.
        pool: See `GFGNConv`.
        bias: Whether layers have a bias.
        gate_bias: See `GFGNConv`.
        gate_form: See `GFGNConv`.
        momentum: See `GFGNConv`.
        validate: See `GFGNConv`.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: see `GFGNConv`.
        - output: `[N, out_channels]`, or `[N, hidden_channels]` without `out_channels`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        level: str = "pair",
        heads: int = 8,
        lam: float | Tensor = 1.0,
        dropout: float | Tensor = 0.5,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        act_kwargs: dict[str, Any] | None = None,
        norm: str | nn.Module | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        jk: Literal["last", "cat", "max", "lstm"] | None = None,
        residual: bool = False,
        pool: str = "mean",
        bias: bool = True,
        gate_bias: float | None = None,
        gate_form: str = "dimension",
        momentum: float | None = None,
        validate: bool = True,
        input_dropout: float | Tensor | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("num_layers", num_layers), ("hidden_channels", hidden_channels), ("heads", heads)):
            check_positive(name, value)
        if hidden_channels % heads:
            raise ValueError(f"heads must divide hidden_channels, got heads={heads}, hidden_channels={hidden_channels}")
        if jk not in JUMPING_KNOWLEDGE:
            raise ValueError(f"jk must be one of {', '.join(map(repr, JUMPING_KNOWLEDGE))}, got {jk!r}")
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = hidden_channels if out_channels is None else out_channels
        self.dropout = dropout
        self.residual = residual
        self.validate = validate
        self.act = None if act == "none" else activation_resolver(act, **(act_kwargs or {}))

        options: dict[str, Any] = {"level": level, "lam": lam, "pool": pool, "bias": bias}
        options |= {"gate_bias": gate_bias, "gate_form": gate_form, "momentum": momentum, "validate": False}
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1)]
        rates = [dropout if input_dropout is None else input_dropout, *[dropout] * (num_layers - 1)]
        outputs = [(hidden_channels // heads, heads)] * num_layers
        if out_channels is not None and jk is None:
            outputs[-1] = (out_channels, 1)
        self.convs = nn.ModuleList(
            GFGNConv(size, width, heads=count, dropout=rate, **options)
            for size, rate, (width, count) in zip(sizes, rates, outputs, strict=True)
        )
        norm_layer = normalization_resolver(norm, hidden_channels, **(norm_kwargs or {})) or nn.Identity()
        self.norm_takes_batch = "batch" in inspect.signature(norm_layer.forward).parameters
        num_hidden = num_layers if jk else num_layers - 1
        self.norms = nn.ModuleList(copy.deepcopy(norm_layer) for _ in range(num_hidden))
        self.jk = JumpingKnowledge(jk, hidden_channels, num_layers) if jk not in (None, "last") else None
        joined = hidden_channels * (num_layers if jk == "cat" else 1)
        self.lin = nn.Linear(joined, self.out_channels) if jk else None

    @property
    def num_parameters(self) -> int:
        """Number of learned values."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        return_scores: bool = False,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Runs the network.

        Args:
            x: Node features.
            edge_index: The edges, see `GFGNConv`.
            edge_weight: `[E]` weights, finite and not negative.
            batch: `[N]`, the graph that each node belongs to. At graph level, a batch of graphs needs it: without it
                there is one gate for all of them, pooled over all their nodes, so that an output depends on the other
                graphs of the batch.
            batch_size: Number of graphs in `batch`; computed if not given.
            return_scores: Whether to return the output and the gates, a list with one entry per layer.
            num_sampled_nodes_per_hop: Numbers of nodes that the seeds and each hop of a sample added, as PyG's loaders
                give them (`batch.num_sampled_nodes`). Every layer then leaves out the nodes and edges that the seeds
                cannot reach any more; their outputs stay the same, and the output has fewer rows. Only the gates of
                the graph level change: they pool over the nodes that are left.
            num_sampled_edges_per_hop: Numbers of edges that each hop added (`batch.num_sampled_edges`).
        """
        check_features(x, edge_index, self.in_channels, self.validate)
        dtype, pooled = norm_dtype(next(self.parameters())), self.convs[0].level == "graph"
        graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, dtype, pooled)
        hops = _check_hops(num_sampled_nodes_per_hop, num_sampled_edges_per_hop, self.num_layers)
        scores: list[Tensor] = []
        hidden: list[Tensor] = []
        for layer, conv in enumerate(self.convs):
            if hops is not None and layer > 0:
                nodes, edges = hops[-layer]
                graph = first_edges(graph, graph.num_nodes - nodes, graph.edge_position.numel() - edges)
                x = x[: graph.num_nodes]
            out = conv(x, graph, return_scores=return_scores)
            if return_scores:
                out, layer_scores = out
                scores.append(layer_scores)
            if layer < len(self.norms):
                out = self._normalize_and_activate(out, layer, graph)
            if self.residual and out.shape == x.shape and x.layout == torch.strided:
                out = out + x
            x = out
            hidden.append(x)
        if self.jk is not None:
            x = self.jk([h[: graph.num_nodes] for h in hidden])
        if self.lin is not None:
            x = ops.linear(x, self.lin.weight, self.lin.bias, self.dropout, self.training)
        return (x, scores) if return_scores else x

    def _normalize_and_activate(self, x: Tensor, layer: int, graph: Graph) -> Tensor:
        norm = self.norms[layer]
        x = norm(x, graph.batch, graph.num_graphs) if self.norm_takes_batch else norm(x)
        return x if self.act is None else self.act(x)


def _check_hops(nodes: list[int] | None, edges: list[int] | None, num_layers: int) -> list[tuple[int, int]] | None:
    """The numbers of nodes and of edges that each hop of a sample added."""
    if nodes is None and edges is None:
        return None
    if nodes is None or edges is None:
        missing = "nodes" if nodes is None else "edges"
        raise ValueError(f"num_sampled_{missing}_per_hop must be given as well, got None")
    if len(edges) != len(nodes) - 1 or len(edges) < num_layers - 1:
        raise ValueError(
            "num_sampled_nodes_per_hop must have one entry for the seeds and one per hop, num_sampled_edges_per_hop "
            f"one per hop, and there must be {num_layers - 1} hops or more, got {nodes} and {edges}"
        )
    return list(zip(nodes[1:], edges, strict=True))
