"""`GFGNConv`: one layer of a Graph Feature Gating Network."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph, as_bipartite, as_graph
from gfgn.nn.levels import GATE_FORMS, LEVELS, POOLS, Lam, Pool, pool_nodes
from gfgn.nn.messages import build_messages
from gfgn.ops.cache import is_captured, state_of
from gfgn.ops.registration import is_eager
from gfgn.ops.torch_internals import WeakIdKeyDictionary, is_batched, is_wrapped

NO_TORCHSCRIPT = "GFGNConv does not support TorchScript; use torch.export or torch.compile"


class GFGNConv(MessagePassing):  # type: ignore[misc] # PyG has no types
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

    It is a `MessagePassing` layer of PyG. The messages of an edge exist only while an explainer masks them or a hook
    reads them; otherwise fused kernels compute the sum.

    Args:
        in_channels: Number of input features; −1 takes it from the first input. A pair for bipartite graphs: the
            numbers of features of sources and targets, each with its own `W`. With one number they share it.
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
        gate_form: `"dimension"`, the paper's, one gate per dimension; `"scalar"`, one learned gate for all dimensions
            of all heads, which reads all of them: the equations above with a vector of `heads * out_channels` (twice
            as many for a concatenation) in place of `W_s`; `"constant"`, `s = λ/2` without anything to learn.
        momentum: Graph level, on samples (see `Graph.from_sample`): the gate reads a running mean of the pooled seeds
            of all batches in training, in which the present batch has this weight (at first, all have the same); in
            evaluation mode the running mean alone. `None` pools the seeds of the batch alone. On a whole graph,
            the pooled value is always exact.
        validate: Whether `forward` raises for features that are not finite. They are read once, and again after a
            change in place; on a GPU, that waits for them. What other modules computed with gradients is not checked.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR; for a bipartite graph the pair `(x_src, x_dst)` with one row
          per source and one per target.
        - `edge_index`: `[2, E]` (source, target), a PyG `EdgeIndex`, a sparse `[N, N]` matrix (rows are targets) or a
          `gfgn.Graph`.
        - output: `[N, heads * out_channels]`, or `[N, out_channels]` if `concat=False`; `N` counts the targets of a
          bipartite graph.
        - scores, if `return_scores=True`: `[num_graphs, heads * out_channels]`, `[N, …]` or `[E, …]` for the three
          levels; the last in the order of the given edges. Self-loops are removed and have scores of 0. Repeated edges
          have equal scores.

    Attributes:
        lin: The linear map `W`; `lin.weight` is `[heads * out_channels, in_channels]`. `None` if `in_channels` is a
            pair.
        lin_src: `W` of the sources if `in_channels` is a pair, else `None`.
        lin_dst: `W` of the targets if `in_channels` is a pair, else `None`.
        gate: `[heads, d or 2d, d]` with `d = out_channels`: one `W_s` per head; for a scalar gate
            `[1, heads * d or 2 * heads * d, 1]`, for a constant one a buffer of that shape with zeros.
        bias: `[heads * out_channels]` (`[out_channels]` if `concat=False`), or `None`.
        gate_bias: `[heads * out_channels]`, `[1]` for a scalar gate, or `None`.
        running_pool: `[1, heads * out_channels]`, with `momentum`: the running mean of the pooled seeds.
    """

    _class_inspector: ClassVar[Any]
    in_channels: Any  # one number or a pair
    lin: Any
    lin_src: Any
    lin_dst: Any
    gate: Tensor
    bias: nn.Parameter | None
    gate_bias: nn.Parameter | None
    running_pool: Tensor
    num_batches: Tensor

    def __init__(
        self,
        in_channels: int | tuple[int, int],
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
        gate_form: str = "dimension",
        momentum: float | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(aggr=None)
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(map(repr, POOLS))}, got {pool!r}")
        if pool != "mean" and not LEVELS[level].pools:
            raise ValueError(f"pool must be 'mean' at level={level!r}, whose gate does not pool, got {pool!r}")
        if gate_form not in GATE_FORMS:
            raise ValueError(f"gate_form must be one of {', '.join(map(repr, GATE_FORMS))}, got {gate_form!r}")
        check_in_channels(in_channels)
        check_positive("out_channels", out_channels)
        check_positive("heads", heads)
        check_lam(lam)
        if gate_bias is not None and not math.isfinite(gate_bias):
            raise ValueError(f"gate_bias must be a finite number or None, got {gate_bias!r}")
        if gate_bias is not None and gate_form == "constant":
            raise ValueError(
                f"gate_bias must be None for gate_form='constant', which learns nothing, got {gate_bias!r}"
            )
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
        self.gate_form = gate_form
        self.momentum: float | None = None
        self.validate = validate
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, tuple):
            self.lin_src, self.lin_dst = (_linear(channels, width) for channels in in_channels)
        else:
            self.lin = _linear(in_channels, width)
        inputs = LEVELS[level].gate_inputs
        if gate_form == "dimension":
            self.gate = nn.Parameter(torch.empty(heads, inputs * out_channels, out_channels))
        elif gate_form == "scalar":
            self.gate = nn.Parameter(torch.empty(1, inputs * width, 1))
        else:
            self.register_buffer("gate", torch.zeros(1, inputs * width, 1))
        if bias:
            self.bias = nn.Parameter(torch.empty(width if concat else out_channels))
        else:
            self.register_parameter("bias", None)
        self.initial_gate_bias = gate_bias
        gates = width if gate_form == "dimension" else 1
        self.register_parameter("gate_bias", None if gate_bias is None else nn.Parameter(torch.empty(gates)))
        if momentum is not None:
            self.keep_running_pool(momentum)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: Glorot for `W` and each head's `W_s`, 0 for the bias, `gate_bias` as given."""
        if self.momentum is not None:
            self.running_pool.zero_()
            self.num_batches.zero_()
        for lin in (self.lin, self.lin_src, self.lin_dst):
            if lin is not None:
                lin.reset_parameters()
        for head in self.gate if self.gate_form != "constant" else ():
            glorot(head)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if self.gate_bias is not None and self.initial_gate_bias is not None:
            nn.init.constant_(self.gate_bias, self.initial_gate_bias)

    @property
    def num_parameters(self) -> int:
        """Number of learned values: `D·D' + D²/K` (`D·D' + 2D²/K` if the gate reads a concatenation) plus the biases,
        with `D = heads * out_channels`, `D' = in_channels` and `K = heads`. A scalar gate has `D` or `2D` values, a
        constant one none."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        batch: Tensor | tuple[Tensor, Tensor] | None = None,
        batch_size: int | None = None,
        return_scores: bool = False,
        size: tuple[int, int] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Runs the layer.

        Args:
            x: Node features, or `(x_src, x_dst)`.
            edge_index: The edges, see "Shapes".
            edge_weight: `[E]` weights, finite and not negative.
            batch: `[N]`, the graph that each node belongs to; of a bipartite graph, each target (of a pair of vectors,
                the second counts). At graph level, a batch of graphs needs it: without it there is one gate for all of
                them, pooled over all their nodes, so that an output depends on the other graphs of the batch. The
                other levels give the same output with and without it.
            batch_size: Number of graphs in `batch`; computed if not given.
            return_scores: Whether to return the output and the gates.
            size: Numbers of sources and targets, which are checked against `x`.
        """
        if isinstance(batch, tuple):
            batch = batch[1]
        if isinstance(x, Tensor) and self.lin is not None:
            check_features(x, edge_index, self.in_channels, self.validate)
            check_size(size, (x.size(0), x.size(0)))
            dtype, pooled = norm_dtype(self.gate), self.level == "graph"
            graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, dtype, pooled)
            z = self.transform(x)
        else:
            z, graph = self._stacked(x, edge_index, edge_weight, batch, batch_size, size)
        out, scores = self.combine(z, graph, return_scores=return_scores)
        return out if scores is None or not return_scores else (out, scores)

    def combine(
        self, z: Tensor, graph: Graph, pool: Pool | None = None, return_scores: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Output and scores from `z = HW` of all nodes; `pool` replaces the layer's own."""
        gate = (self.gate, self.gate_bias, self.lam)
        aggregate = self._sum_messages if self._explain or self._has_hooks() else LEVELS[self.level].aggregate
        if pool is None:
            running = self.momentum is not None and graph.num_seeds is not None
            pool = self._pool_running if running else self.pool
        out, scores = aggregate(z, *gate, graph, pool, return_scores)
        if graph.num_targets is not None:
            out = out[: graph.num_targets]
            scores = scores[: graph.num_targets] if self.level == "neighbor" and scores is not None else scores
        if not self.concat:
            out = out.unflatten(-1, (self.heads, self.out_channels)).mean(1)
        if (bias := self.bias) is not None:
            out = out + (ops.expand_rows(bias, out.size(0)) if is_batched(bias) else bias)
        return out, scores

    def transform(self, x: Tensor) -> Tensor:
        """`z = HW` of all heads; `x` may be sparse CSR and is dropped in training."""
        z = self._linear(self.lin, x)
        if self.in_channels == -1:
            self.in_channels = self.lin.in_channels
        return z

    def _linear(self, lin: Linear, x: Tensor) -> Tensor:
        if lin.in_channels == -1:
            lin(torch.empty(0, x.size(1), dtype=x.dtype, device=x.device))  # initializes the lazy weight
        return ops.linear(x, lin.weight, None, self.dropout, self.training)

    def keep_running_pool(self, momentum: float, persistent: bool = True) -> None:
        """Makes a graph gate read a running mean on samples, see `momentum`; other levels stay as they are.

        `persistent` says whether it is part of the state dict.
        """
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum must be above 0 and at most 1, or None, got {momentum!r}")
        if self.level != "graph":
            return
        self.momentum = momentum
        mean = torch.zeros(1, self.heads * self.out_channels, device=self.gate.device)
        self.register_buffer("running_pool", mean, persistent)
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64, device=self.gate.device), persistent)

    def _pool_running(self, z: Tensor, graph: Graph) -> Tensor:
        """The running mean of the pooled seeds; gradients flow to the present batch."""
        if not self.training:
            return self.running_pool.to(z.dtype)
        assert self.momentum is not None
        self.num_batches += 1
        weight = self.num_batches.to(z.dtype).reciprocal().clamp(min=self.momentum)
        pooled = torch.lerp(self.running_pool.to(z.dtype), pool_nodes(z, graph, self.pool), weight)
        self.running_pool = pooled.detach().to(self.running_pool.dtype)
        return pooled

    # --- bipartite graphs -------------------------------------------------------------------------

    def _stacked(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        batch_size: int | None,
        size: tuple[int, int] | None,
    ) -> tuple[Tensor, Graph]:
        """`z` of the targets and then of the sources, and the graph of both. Without incoming edges, the rows of the
        sources cost little, and the kernels need not know that there are two sets of nodes."""
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else check_pair(x)
        channels = self.in_channels if isinstance(self.in_channels, tuple) else (self.in_channels, self.in_channels)
        check_features(x_src, edge_index, channels[0], self.validate, "x_src")
        check_features(x_dst, edge_index, channels[1], self.validate, "x_dst")
        shape = (x_src.size(0), x_dst.size(0))
        check_size(size, shape)
        graph = as_bipartite(edge_index, shape, edge_weight, batch, batch_size, norm_dtype(self.gate))
        if self.lin is not None:
            return torch.cat([self.transform(x_dst), self.transform(x_src)]), graph
        z = torch.cat([self._linear(self.lin_dst, x_dst), self._linear(self.lin_src, x_src)])
        if -1 in channels:
            self.in_channels = (self.lin_src.in_channels, self.lin_dst.in_channels)
        return z, graph

    # --- what PyG expects of a `MessagePassing` layer -----------------------------------------------

    def _has_hooks(self) -> bool:
        """Whether something reads the messages."""
        return bool(
            self._message_forward_hooks
            or self._message_forward_pre_hooks
            or self._aggregate_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._propagate_forward_hooks
            or self._propagate_forward_pre_hooks
        )

    def _sum_messages(
        self,
        z: Tensor,
        gate: Tensor,
        gate_bias: Tensor | None,
        lam: Lam,
        graph: Graph,
        pool: Pool,
        return_scores: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Does what the level's `aggregate` does by way of PyG's `propagate`, which masks messages and runs hooks."""
        terms = build_messages(self.level, z, gate, gate_bias, lam, graph, pool)
        alpha = terms.gate.unflatten(1, (self.heads, self.out_channels)).mean(2) * terms.norm
        out = self.propagate(
            terms.edge_index,
            size=(z.size(0), z.size(0)),
            x=z,
            gate=terms.gate,
            norm=terms.norm,
            row_norm=terms.row_norm,
            alpha=alpha,
        )
        return (terms.own + out).to(z.dtype), terms.scores

    def message(self, x_i: Tensor, x_j: Tensor, gate: Tensor, norm: Tensor, row_norm: Tensor, alpha: Tensor) -> Tensor:
        """`s_ij Â_ij z_j`, at pair level `s_ij (Â_ij z_j − A_ij/d_i z_i)`.

        `alpha` is not part of it: it is `[E, heads]`, the mean over a head's dimensions of the factor `s_ij Â_ij` of
        `z_j`, which explainers of attention read.
        """
        return gate * (norm * x_j - row_norm * x_i)

    def aggregate(self, inputs: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """Adds the messages of each target."""
        return inputs.new_zeros(dim_size, inputs.size(1)).index_add(0, index, inputs)

    @property
    def inspector(self) -> Any:
        """What PyG knows about the signatures of the methods above."""
        return self.__dict__["inspector"]

    @inspector.setter
    def inspector(self, value: Any) -> None:
        # One for all layers of a class: inspecting it takes three times as long as the rest of the constructor.
        if "_class_inspector" not in type(self).__dict__:
            type(self)._class_inspector = value
        self.__dict__["inspector"] = type(self)._class_inspector

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """PyG generates code for `propagate` here, which the layer has no use for."""

    def __prepare_scriptable__(self) -> GFGNConv:
        """Called by `torch.jit.script`."""
        raise TypeError(NO_TORCHSCRIPT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

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
        if self.gate_form != "dimension":
            parts.append(f"gate_form={self.gate_form!r}")
        return ", ".join(parts)


def _linear(in_channels: int, out_channels: int) -> Linear:
    return Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")


def check_in_channels(value: Any) -> None:
    """Raises a `ValueError` for an argument that is neither a number of features nor a pair of them."""
    if isinstance(value, tuple) and len(value) != 2:
        raise ValueError(f"in_channels must be a number or a pair (source, target), got {value!r}")
    for channels in value if isinstance(value, tuple) else (value,):
        if channels != -1:
            check_positive("in_channels", channels)


def check_pair(x: Any) -> tuple[Tensor, Tensor]:
    """The features of sources and targets, or an error for anything else."""
    if not isinstance(x, tuple | list) or len(x) != 2 or not all(isinstance(part, Tensor) for part in x):
        parts = f"({', '.join(type(part).__name__ for part in x)})" if isinstance(x, tuple | list) else type(x).__name__
        raise TypeError(f"x must be a Tensor or a pair of Tensors (x_src, x_dst), got {parts}")
    return x[0], x[1]


def check_size(size: tuple[int, int] | None, expected: tuple[int, int]) -> None:
    """Raises a `ValueError` for a `size` that does not agree with the features."""
    if size is not None and tuple(size) != expected:
        raise ValueError(f"size must be {expected}, the rows of the sources and targets in x, got {tuple(size)}")


def check_lam(lam: Lam) -> None:
    """Raises a `ValueError` for a λ that is negative or not finite."""
    values = lam.detach() if isinstance(lam, Tensor) else torch.tensor(float(lam))
    if values.is_meta or torch.compiler.is_compiling():
        return
    if not (values.isfinite() & (values >= 0)).all():
        raise ValueError(f"lam must be finite, 0 or larger, got {lam!r}")


def check_positive(name: str, value: Any) -> None:
    """Raises a `ValueError` for an argument that is not a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def norm_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of the normalized edge weights for a layer's parameters: at least float32."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def check_features(x: Tensor, edge_index: Tensor | Graph, in_channels: int, finite: bool, name: str = "x") -> None:
    """Raises for features that a layer cannot take, and for a caller that records the layer."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        raise TypeError(NO_TORCHSCRIPT)
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a Tensor of shape [N, {in_channels}], got {type(x).__name__}")
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(
            f"{name} must be dense or sparse CSR, got layout {x.layout}; {name}.to_sparse_csr() converts it"
        )
    if x.dim() != 2 or (in_channels != -1 and x.size(1) != in_channels):
        expected = "in_channels" if in_channels == -1 else in_channels
        raise ValueError(f"{name} must have shape [N, {expected}], got {list(x.shape)}{_heads_hint(x, in_channels)}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must hold floating-point features, got {x.dtype}")
    if isinstance(edge_index, Tensor | Graph) and edge_index.device != x.device:
        raise ValueError(f"{name} is on {x.device}, but edge_index is on {edge_index.device}")
    # What another module computed in training is not checked: on a GPU, every step would wait for it.
    if finite and not torch.compiler.is_compiling() and not is_wrapped(x) and x.grad_fn is None:
        check_finite(x, name)


def _heads_hint(x: Tensor, in_channels: int) -> str:
    """Explains a width that is the output of several concatenated heads."""
    if x.dim() != 2 or in_channels == -1 or x.size(1) % in_channels or x.size(1) == 0:
        return ""
    heads = x.size(1) // in_channels
    return (
        f"; a layer with heads={heads} and out_channels={in_channels} outputs {x.size(1)} columns: "
        f"in_channels of the next layer must be {x.size(1)} (heads * out_channels), or use concat=False"
    )


_finite: WeakIdKeyDictionary = WeakIdKeyDictionary()  # features that were finite, and their states then


def check_finite(x: Tensor, name: str = "x") -> None:
    """Raises a `ValueError` for features that are not finite."""
    values = (x.values() if x.layout == torch.sparse_csr else x).detach()
    if is_captured(values):
        return
    state = state_of(values) if is_eager(x) and not x.is_inference() else None
    if state is not None and _finite.get(x) == state:
        return
    # The sum of finite values is finite unless it overflows, so one cheap pass is nearly always enough.
    if torch.isfinite(values.sum()) or torch.isfinite(values).all():
        if state is not None:
            _finite[x] = state
        return
    index = torch.nonzero(~torch.isfinite(values))[0].tolist()
    value = float(values[tuple(index)])
    raise ValueError(
        f"{name} must be finite, got {value} at {'stored value' if len(index) == 1 else 'position'} {index}"
    )
