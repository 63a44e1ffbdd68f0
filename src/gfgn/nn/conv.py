"""`GFGNConv`: one layer of a Graph Feature Gating Network."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph, as_graph
from gfgn.nn.levels import LEVELS, POOLS
from gfgn.ops.torch_internals import is_wrapped


class GFGNConv(nn.Module):
    """The graph feature gating layer of *Graph Feature Gating Networks* (Jin et al., 2021).

    With `z = H W` and an adjacency `A` without self-loops, one gate per feature dimension decides how much a node keeps
    of its own value and how much it takes from its neighbors (products with a gate are element-wise, σ is the sigmoid):

        level="graph"      h'_i = (1 − s) z_i + s Σ_j Â_ij z_j
                           s    = λ σ(Pool_i(z_i) W_s)
        level="neighbor"   h'_i = (1 − s_i) z_i + s_i Σ_j Â_ij z_j
                           s_i  = λ σ([z_i ‖ Pool_j(z_j)] W_s)
        level="pair"       h'_i = (1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j
                           s_ij = λ σ([z_i ‖ z_j] W_s)

    with `Â_ij = A_ij / √(d_i d_j)`: one gate per graph, per neighborhood, or per edge.

    Args:
        in_channels: Number of input features; −1 takes it from the first input.
        out_channels: Number of outputs *per head*, as in PyG's `GATConv`.
        level: `"graph"`, `"neighbor"` or `"pair"`.
        heads: Number of gating heads, each with its own columns of `W` and its own `W_s`.
        lam: λ, the largest value of a gate; 0 makes the layer a linear one that ignores the graph.
        concat: Whether heads are concatenated (`heads * out_channels` columns) or averaged.
        bias: Whether a learned bias is added after the aggregation.
        gate_bias: Initial value of a learned bias inside σ: well below 0 for gates that start nearly closed, well above
            for gates that start nearly open. `None` for no bias, as in the paper.
        dropout: Dropout rate of the layer's input in training; of a sparse input, only stored values are dropped.
        pool: `"mean"` (the paper's), `"max"` or `"sum"`: how the graph and neighbor gates pool nodes.
        validate: Whether `forward` raises for features that are not finite. The check reads all features and, on a GPU,
            synchronizes.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: `[2, E]` (source, target), a PyG `EdgeIndex`, a sparse `[N, N]` matrix or a `gfgn.Graph`.
        - output: `[N, heads * out_channels]`, or `[N, out_channels]` if `concat=False`.
        - scores, if `return_scores=True`: `[num_graphs, heads * out_channels]`, `[N, …]` or `[E, …]` for the three
          levels; the last in the order of the given edges. Self-loops are removed and have scores of 0. Repeated edges
          have equal scores.

    Attributes:
        lin: The linear map `W`; `lin.weight` is `[heads * out_channels, in_channels]`.
        gate: `[heads, d or 2d, d]` with `d = out_channels`: one `W_s` per head.
        bias: `[heads * out_channels]` (`[out_channels]` if `concat=False`), or `None`.
        gate_bias: `[heads * out_channels]`, or `None`.
    """

    bias: nn.Parameter | None
    gate_bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        level: str = "pair",
        heads: int = 1,
        lam: float | Tensor = 1.0,
        concat: bool = True,
        bias: bool = True,
        *,
        gate_bias: float | None = None,
        dropout: float | Tensor = 0.0,
        pool: str = "mean",
        validate: bool = True,
    ) -> None:
        super().__init__()
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(map(repr, POOLS))}, got {pool!r}")
        if pool != "mean" and not LEVELS[level].pools:
            raise ValueError(f"pool must be 'mean' at level={level!r}, whose gate does not pool, got {pool!r}")
        if in_channels != -1:
            check_positive("in_channels", in_channels)
        check_positive("out_channels", out_channels)
        check_positive("heads", heads)
        if isinstance(lam, int | float) and not (math.isfinite(lam) and lam >= 0):
            raise ValueError(f"lam must be a finite number, 0 or larger, got {lam!r}")
        if gate_bias is not None and not math.isfinite(gate_bias):
            raise ValueError(f"gate_bias must be a finite number or None, got {gate_bias!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.level = level
        self.heads = heads
        self.lam = lam
        self.concat = concat
        self.dropout = dropout
        self.pool = pool
        self.validate = validate
        width = heads * out_channels
        self.lin = Linear(in_channels, width, bias=False, weight_initializer="glorot")
        self.gate = nn.Parameter(torch.empty(heads, LEVELS[level].gate_inputs * out_channels, out_channels))
        if bias:
            self.bias = nn.Parameter(torch.empty(width if concat else out_channels))
        else:
            self.register_parameter("bias", None)
        self.initial_gate_bias = gate_bias
        self.register_parameter("gate_bias", None if gate_bias is None else nn.Parameter(torch.empty(width)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: Glorot for `W` and each head's `W_s`, 0 for the bias, `gate_bias` as given."""
        self.lin.reset_parameters()
        for head in self.gate:
            glorot(head)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.gate_bias is not None and self.initial_gate_bias is not None:
            nn.init.constant_(self.gate_bias, self.initial_gate_bias)

    @property
    def num_parameters(self) -> int:
        """Number of learned values: `D·D' + D²/K` (`D·D' + 2D²/K` if the gate reads a concatenation) plus the biases,
        with `D = heads * out_channels`, `D' = in_channels` and `K = heads`."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        return_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Runs the layer.

        Args:
            x: Node features.
            edge_index: The edges, see "Shapes".
            edge_weight: `[E]` weights, finite and not negative.
            batch: `[N]`, the graph that each node belongs to, as in PyG's `Batch`. Without it all nodes are one graph:
                at level `"graph"` they share one gate, also if the edges are those of several graphs.
            batch_size: Number of graphs in `batch`; computed if not given.
            return_scores: Whether to return the output and the gates.
        """
        check_features(x, edge_index, self.in_channels, self.validate)
        dtype, pooled = norm_dtype(self.gate), self.level == "graph"
        graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, dtype, pooled)
        z = self.transform(x)
        gate = (self.gate, self.gate_bias, self.lam)
        out, scores = LEVELS[self.level].aggregate(z, *gate, graph, self.pool, return_scores)
        if not self.concat:
            out = out.unflatten(-1, (self.heads, self.out_channels)).mean(1)
        if self.bias is not None:
            out = out + self.bias
        return out if scores is None or not return_scores else (out, scores)

    def transform(self, x: Tensor) -> Tensor:
        """`z = HW` of all heads; `x` may be sparse CSR and is dropped in training."""
        if self.in_channels == -1:
            self.lin(torch.empty(0, x.size(1), dtype=x.dtype, device=x.device))  # initializes the lazy weight
            self.in_channels = self.lin.in_channels
        return ops.linear(x, self.lin.weight, None, self.dropout, self.training)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, level={self.level!r}, heads={self.heads}, lam={self.lam}"]
        if not self.concat:
            parts.append("concat=False")
        if self.dropout:
            parts.append(f"dropout={self.dropout}")
        if self.initial_gate_bias is not None:
            parts.append(f"gate_bias={self.initial_gate_bias}")
        if self.pool != "mean":
            parts.append(f"pool={self.pool!r}")
        return ", ".join(parts)


def check_positive(name: str, value: Any) -> None:
    """Raises a `ValueError` for an argument that is not a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def norm_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of the normalized edge weights for a layer's parameters: at least float32."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def check_features(x: Tensor, edge_index: Tensor | Graph, in_channels: int, finite: bool) -> None:
    """Raises for features that a layer cannot take."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor of shape [N, {in_channels}], got {type(x).__name__}")
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"x must be dense or sparse CSR, got layout {x.layout}; x.to_sparse_csr() converts it")
    if x.dim() != 2 or (in_channels != -1 and x.size(1) != in_channels):
        expected = "in_channels" if in_channels == -1 else in_channels
        raise ValueError(f"x must have shape [N, {expected}], got {list(x.shape)}{_heads_hint(x, in_channels)}")
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point features, got {x.dtype}")
    if isinstance(edge_index, Tensor | Graph) and edge_index.device != x.device:
        raise ValueError(f"x is on {x.device}, but edge_index is on {edge_index.device}")
    if finite and not torch.compiler.is_compiling() and not is_wrapped(x):
        check_finite(x)


def _heads_hint(x: Tensor, in_channels: int) -> str:
    """Explains a width that is the output of several concatenated heads."""
    if x.dim() != 2 or in_channels == -1 or x.size(1) % in_channels or x.size(1) == 0:
        return ""
    heads = x.size(1) // in_channels
    return (
        f"; a layer with heads={heads} and out_channels={in_channels} outputs {x.size(1)} columns: "
        f"in_channels of the next layer must be {x.size(1)} (heads * out_channels), or use concat=False"
    )


def check_finite(x: Tensor) -> None:
    """Raises a `ValueError` for features that are not finite."""
    values = (x.values() if x.layout == torch.sparse_csr else x).detach()
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    # The sum of finite values is finite unless it overflows, so one cheap pass is nearly always enough.
    if torch.isfinite(values.sum()) or torch.isfinite(values).all():
        return
    index = torch.nonzero(~torch.isfinite(values))[0].tolist()
    value = float(values[tuple(index)])
    raise ValueError(f"x must be finite, got {value} at {'stored value' if len(index) == 1 else 'position'} {index}")
