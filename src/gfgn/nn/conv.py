"""`GFGNConv`: one layer of a Graph Feature Gating Network."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

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

    With `z = H W` and an adjacency `A` without self-loops, a gate for every feature dimension decides how much a node
    keeps of its own and how much it takes from its neighbours (all products element-wise, σ the sigmoid):

        level="graph"      h'_i = (1 − s) z_i + s Σ_j Â_ij z_j
                           s    = λ σ(Pool_i(z_i) W_s)
        level="neighbor"   h'_i = (1 − s_i) z_i + s_i Σ_j Â_ij z_j
                           s_i  = λ σ([z_i ‖ Pool_j(z_j)] W_s)
        level="pair"       h'_i = (1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j
                           s_ij = λ σ([z_i ‖ z_j] W_s)

    with `Â_ij = A_ij / √(d_i d_j)`: one gate for a whole graph, for each node's neighbourhood, or for each edge.

    Args:
        in_channels: Size of an input feature vector; −1 takes it from the first input.
        out_channels: Size of the output *per head*, as in PyG's `GATConv`.
        level: `"graph"`, `"neighbor"` or `"pair"`.
        heads: Number of gating heads, each with its own columns of `W` and its own `W_s`.
        lam: λ, the largest value a gate can take; 0 makes the layer a linear one that ignores the graph.
        concat: Whether heads are concatenated (`heads * out_channels` columns) or averaged.
        bias: Whether a learned bias is added after the aggregation.
        gate_bias: Where a learned bias inside of σ starts, in every dimension: far below 0 for gates that begin nearly
            shut, far above for ones that begin nearly open. `None` for gates without one, as the paper has them.
        dropout: Dropout rate of the layer's input in training; of a sparse input, only stored values are dropped.
        pool: `"mean"` (the paper's), `"max"` or `"sum"`: what the graph and neighbour gates see of a set of nodes.
        validate: Whether `forward` refuses features that are not finite. It reads the features once more and, on a
            GPU, waits for the answer.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: `[2, E]` (source, target), a PyG `EdgeIndex`, a sparse `[N, N]` matrix or a `gfgn.Graph`.
        - output: `[N, heads * out_channels]`, or `[N, out_channels]` if `concat=False`.
        - scores, if `return_scores=True`, always `heads * out_channels` wide: `[num_graphs, …]`, `[N, …]` or `[E, …]`
          for the three levels; the last in the order of the given edges. A given self-loop is no edge of the layer:
          its score is 0. Repeated edges have equal scores.

    Attributes:
        lin: The linear map `W`; `lin.weight` is `[heads * out_channels, in_channels]`.
        gate: `[heads, d or 2d, d]` with `d = out_channels`: `W_s` of each head.
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
        heads: int = 8,
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
            raise ValueError(f"pool={pool!r} means nothing at level={level!r}, whose gate pools nothing")
        if in_channels != -1:
            _positive("in_channels", in_channels)
        _positive("out_channels", out_channels)
        _positive("heads", heads)
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
        """Draws all parameters anew: Glorot for `W` and each head's `W_s`, zero for the bias, and for the gates' own
        what the layer was made with."""
        self.lin.reset_parameters()
        for head in self.gate:
            glorot(head)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.gate_bias is not None and self.initial_gate_bias is not None:
            nn.init.constant_(self.gate_bias, self.initial_gate_bias)

    @property
    def num_parameters(self) -> int:
        """Number of learned values: `D·D' + D²/K` (twice the second term where the gate reads a concatenation), with
        `D = heads * out_channels`, `D' = in_channels` and `K = heads`, and the biases."""
        return sum(parameter.numel() for parameter in self.parameters())

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = ...,
        batch: Tensor | None = ...,
        batch_size: int | None = ...,
        return_scores: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = ...,
        batch: Tensor | None = ...,
        batch_size: int | None = ...,
        *,
        return_scores: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...

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
            batch: `[N]`, the graph that each node belongs to.
            batch_size: Number of graphs in `batch`, where it is known.
            return_scores: Whether to return the gates beside the output.
        """
        check_features(x, edge_index, self.in_channels, self.validate)
        graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, norm_dtype(self.gate))
        z = self.transform(x)
        gate = (self.gate, self.gate_bias, self.lam)
        out, scores = LEVELS[self.level].aggregate(z, *gate, graph, self.pool, return_scores)
        if not self.concat:
            out = out.unflatten(-1, (self.heads, self.out_channels)).mean(1)
        if self.bias is not None:
            out = out + self.bias
        if return_scores:
            assert scores is not None
            return out, scores
        return out

    def transform(self, x: Tensor) -> Tensor:
        """`z = HW`, all heads side by side; `x` dense or sparse CSR, with dropout in training."""
        if self.in_channels == -1:
            self.lin(torch.empty(0, x.size(1), dtype=x.dtype, device=x.device))  # makes the lazy weight
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


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def norm_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of the normalised weights that go with a layer's parameters: never below float32."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def check_features(x: Tensor, edge_index: Tensor | Graph, in_channels: int, finite: bool) -> None:
    """Refuses features that a layer cannot work on, saying what they were and what was expected."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a Tensor of shape [N, {in_channels}], got {type(x).__name__}")
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"x must be dense or sparse CSR, got layout {x.layout}; x.to_sparse_csr() converts it")
    if x.dim() != 2 or (in_channels != -1 and x.size(1) != in_channels):
        wanted = "in_channels" if in_channels == -1 else in_channels
        raise ValueError(f"x must have shape [N, {wanted}], got {list(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point features, got {x.dtype}")
    if isinstance(edge_index, Tensor | Graph) and edge_index.device != x.device:
        raise ValueError(f"x is on {x.device}, but edge_index is on {edge_index.device}")
    if finite and not torch.compiler.is_compiling() and not is_wrapped(x):
        check_finite(x)


def check_finite(x: Tensor) -> None:
    values = (x.values() if x.layout == torch.sparse_csr else x).detach()
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    # The sum of finite values is finite unless it overflows: one cheap pass decides nearly always.
    if torch.isfinite(values.sum()) or torch.isfinite(values).all():
        return
    place = torch.nonzero(~torch.isfinite(values))[0].tolist()
    value = float(values[tuple(place)])
    raise ValueError(f"x must be finite, got {value} at {'stored value' if len(place) == 1 else 'position'} {place}")
