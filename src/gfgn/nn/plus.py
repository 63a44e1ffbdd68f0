"""GFGN+: gates over several hops beside a map of a node's own features, as a layer and as a network.

The settings span a space that holds GFGN and its neighbors in the literature: GCN, ARMA, GraphSAGE, APPNP, GPR-GNN and
FSGNN are points of it, see `docs/models.md`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gfgn import ops
from gfgn.graph import Graph, as_graph, row_normalized, with_self_loops
from gfgn.nn.baselines.common import repeat_columns, sum_of
from gfgn.nn.baselines.graphsage import scale_to_length_one
from gfgn.nn.conv import check_features, check_lam, check_positive, norm_dtype
from gfgn.nn.levels import GATE_FORMS, LEVELS, Lam, add_bias, for_columns, pool_nodes
from gfgn.nn.linear import Linear, Rate, ResettableModule, StackedLinear, two_maps
from gfgn.ops.torch_internals import is_batched, is_wrapped

OWN = ("gated", "added", "none")
RANGES = ("mix", "hops", "free")
NORMALIZATIONS = ("symmetric", "row")
HEADS = ("conv", "linear", "propagated")
NORMS = ("auto", "none", "layer", "batch", "length")
JUMPING_KNOWLEDGE = ("none", "cat", "max")


class HopGates(ResettableModule):
    """`s_0 ∘ u + Σ_{k=1…K} s_k ∘ P^k z`: a node's own features `u` and those of the nodes up to K hops away, each with
    its gate per dimension. `u` is `z` unless it is given.

    With `K = hops`, `l_k = [u_i ‖ mean_{j∈N(i)} z_j] W_k` at level `"neighbor"` and `l_k = mean_i(u_i) W_k` at level
    `"graph"`:

        gate_range="free"    s_k = c_k + w_k, a learned vector of any sign, without l_k; c = `weights`
        gate_range="mix"     s_k = λ exp(l_k) / (1 + Σ_m exp(l_m)) for k ≥ 1,    s_0 = 1 − Σ_k s_k    (K = 1: GFGN)
        gate_range="hops"    s_k = λ σ(l_k) for k ≥ 0

    At level `"pair"`, with `"mix"` and one hop only, the gate is GFGN's, one per edge. If all parameters of the gates
    are 0, gates are constants: `λ/(K + 1)` for `"mix"`, `λ/2` for `"hops"`, and `c_k` for `"free"`. A penalty on these
    parameters alone (`Replica.gate_decay`) so draws the layer to the one without gates, `gate_form="constant"`.

    Args:
        channels: Number of columns of `z` per head.
        heads: Number of heads, each with its own matrices `W_k`.
        hops: K, 0 or larger.
        level: `"graph"`, `"neighbor"` or `"pair"`; free gates belong to the graph at every level.
        lam: λ; without effect on free gates.
        gate_range: See above; `None` for `"free"` at level `"graph"` and `"mix"` at the others.
        gate_form: `"dimension"`, one gate per dimension; `"scalar"`, one for all dimensions of all heads;
            `"constant"`, nothing to learn.
        gate_bias: Initial value of a learned bias of `l_k`, or `None`.
        weights: `c_0 … c_K` for `"free"`; 1/2 each by default.
    """

    gate: Tensor | None
    gate_bias: nn.Parameter | None

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        hops: int = 1,
        level: str = "neighbor",
        lam: Lam = 1.0,
        gate_range: str | None = None,
        gate_form: str = "dimension",
        gate_bias: float | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        check_choice("level", level, LEVELS)
        if gate_range is None:
            gate_range = "free" if level == "graph" else "mix"
        check_choice("gate_range", gate_range, RANGES)
        check_choice("gate_form", gate_form, GATE_FORMS)
        check_lam(lam)
        if not isinstance(hops, int) or hops < 0:
            raise ValueError(f"hops must be 0 or a positive integer, got {hops!r}")
        self.by_pair = level == "pair" and gate_range != "free"
        if self.by_pair and hops > 1:
            raise ValueError(f"hops must be 1 at level='pair', whose gates belong to edges, got {hops}")
        if self.by_pair and gate_range == "hops":
            raise ValueError("gate_range must be 'mix' or 'free' at level='pair', got 'hops'")
        if weights is not None and len(weights) != hops + 1:
            raise ValueError(f"weights must be {hops + 1} numbers, one per hop and one for z, got {len(weights)}")
        self.hops, self.level, self.lam = hops, level, lam
        self.gate_range, self.gate_form = gate_range, gate_form
        self.weights = tuple(weights or [0.5] * (hops + 1))
        self.initial_gate_bias = gate_bias
        self.count = count = hops if gate_range == "mix" else hops + 1  # of gates
        width = heads * channels
        inputs = LEVELS[level].gate_inputs
        per_gate: tuple[int, ...] = (heads, inputs * channels, channels)
        if gate_form != "dimension":
            per_gate = (1, inputs * width, 1)
        if gate_range == "free":
            per_gate = (width if gate_form == "dimension" else 1,)
        if gate_form == "constant":
            self.register_buffer("gate", torch.zeros(count, *per_gate), persistent=False)
        else:
            self.register_parameter("gate", nn.Parameter(torch.empty(count, *per_gate)) if count else None)
        has_bias = gate_bias is not None and count > 0 and gate_form != "constant" and gate_range != "free"
        bias = nn.Parameter(torch.empty(count, per_gate[0] * per_gate[-1])) if has_bias else None
        self.register_parameter("gate_bias", bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: 0, so that gates start as constants, and `gate_bias` as given."""
        if isinstance(self.gate, nn.Parameter):
            nn.init.zeros_(self.gate)
        if self.gate_bias is not None and self.initial_gate_bias is not None:
            nn.init.constant_(self.gate_bias, self.initial_gate_bias)

    def forward(
        self, z: Tensor, graph: Graph, return_scores: bool = False, own: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The sum, and with `return_scores` the gates: hop after hop, `[num_graphs, …]`, `[N, …]` or `[E, …]`; `own` is
        `u`."""
        first = z if own is None else own
        if self.count == 0:
            return first, z.new_zeros(1, 0) if return_scores else None
        single = self.hops == 1 and self.gate_range == "mix"
        if single and own is None and (self.gate_form != "constant" or self.by_pair):
            bias = None if self.gate_bias is None else self.gate_bias[0]
            assert self.gate is not None
            level = LEVELS[self.level]
            out, scores = level.aggregate(z, self.gate[0], bias, self.lam, graph, "mean", return_scores)
            return out, scores if return_scores else None
        if self.shared:
            gates = self.shared_gates(pool_nodes(first, graph, "mean") if self.level == "graph" else z[:1])
            weights = [_of_nodes(s, graph) for s in self.weights_of(gates)]
            out = sum_of_hops([first, *[z] * self.hops], weights, graph)
        elif single and self.gate_form == "dimension" and self.gate_bias is None and not return_scores:
            assert self.gate is not None
            return ops.gated_neighbor(first, *ops.propagate_and_mean(z, graph), self.gate[0], self.lam), None
        elif self.hops == 2 and self.gate_range == "mix" and not return_scores:
            propagated, pooled = ops.propagate_and_mean(z, graph)
            one, two = (for_columns(z, logit) for logit in self._logits([first, pooled]))
            twice = ops.propagate(propagated, graph)
            return ops.gated_two_hops(first, propagated, twice, one, two, self.lam), None
        else:
            propagated, pooled = ops.propagate_and_mean(z, graph)
            gates = self._gates(z, [first, pooled])
            out = self._sum_by_node(first, propagated, gates, graph)
        return out, torch.cat(gates, dim=1) if return_scores else None

    @property
    def shared(self) -> bool:
        """Whether all nodes of a graph have the same gates."""
        constant = self.gate_range == "free" or self.gate_form == "constant"
        return self.count > 0 and not self.by_pair and (constant or self.level == "graph")

    def shared_gates(self, pooled: Tensor) -> list[Tensor]:
        """Gates `[num_graphs, D]` from the mean of `u`; of `[1, D]`, only the shape counts if they are constants."""
        if self.gate_range != "free" and self.gate_form != "constant":
            return self._gates(pooled, [pooled])
        row = torch.ones(1, pooled.size(1), dtype=pooled.dtype, device=pooled.device)
        if self.gate_range != "free":
            return [row * (self.lam / (self.hops + 1 if self.gate_range == "mix" else 2))] * self.count
        assert self.gate is not None
        return [c * row + for_columns(pooled, w.view(1, -1)) for c, w in zip(self.weights, self.gate, strict=True)]

    def _gates(self, z: Tensor, inputs: list[Tensor]) -> list[Tensor]:
        """Gates from `l_k`, one column per column of `z`."""
        logits = self._logits(inputs)
        if self.gate_range == "mix" and self.hops > 1:
            shares = shares_of(logits)
        else:
            shares = [ops.activate(logit, "sigmoid") for logit in logits]
        return [for_columns(z, self.lam * share) for share in shares]

    def _logits(self, inputs: list[Tensor]) -> list[Tensor]:
        """`l_k`, the sum of `inputs W_k`."""
        assert self.gate is not None
        logits = []
        for k, gate in enumerate(self.gate):
            parts = zip(inputs, gate.chunk(len(inputs), dim=1), strict=True)
            logit = sum_of(ops.head_linear(x, weight) for x, weight in parts)
            logits.append(add_bias(logit, None if self.gate_bias is None else self.gate_bias[k]))
        return logits

    def weights_of(self, gates: list[Tensor]) -> list[Tensor]:
        """`s_0 … s_K`."""
        return [1 - sum_of(gates), *gates] if self.gate_range == "mix" else gates

    def _sum_by_node(self, first: Tensor, propagated: Tensor, gates: list[Tensor], graph: Graph) -> Tensor:
        """The sum for gates that differ between nodes; `propagated` is `P z`."""
        mixes = self.gate_range == "mix"
        out, gates, h = (first, gates, propagated) if mixes else (gates[0] * first, gates[1:], propagated)
        for k, s in enumerate(gates):
            h = ops.propagate(h, graph) if k else h
            out = out + s * (h - first if mixes else h)
        return out

    def extra_repr(self) -> str:
        return f"hops={self.hops}, level={self.level!r}, gate_range={self.gate_range!r}, gate_form={self.gate_form!r}"


def shares_of(logits: Sequence[Tensor]) -> list[Tensor]:
    """`exp(l_k) / (1 + Σ_m exp(l_m))`, element by element."""
    largest = functools.reduce(torch.maximum, logits).relu().detach()
    weights = [ops.activate(logit - largest, "exp") for logit in logits]
    total = sum_of([ops.activate(-largest, "exp"), *weights])
    return [weight / total for weight in weights]


def sum_of_hops(terms: Sequence[Tensor], weights: Sequence[Tensor], graph: Graph) -> Tensor:
    """`Σ_k s_k ∘ P^k z_k` for weights that are the same for all nodes of a graph.

    They commute with `P`, so that Horner's scheme `s_0 z_0 + P(s_1 z_1 + P(s_2 z_2 + …))` keeps the `z_k` alone for the
    backward pass, for any number of hops.
    """
    rows = [ops.expand_rows(s, z.size(0)) if s.size(0) == 1 else s for z, s in zip(terms, weights, strict=True)]
    weighted = [z * s for z, s in zip(terms, rows, strict=True)]
    return functools.reduce(lambda total, term: ops.propagate(total, graph) + term, reversed(weighted))


def _of_nodes(s: Tensor, graph: Graph) -> Tensor:
    """Gates of graphs as one row per node, unless all nodes have the same."""
    return s if graph.batch is None or s.size(0) == 1 else s.index_select(0, graph.batch)


class GFGNPlusConv(ResettableModule):
    """The layer of GFGN+: `s_0 ∘ x W_o + Σ_{k=1…K} s_k ∘ P^k z + b` with `z = x W`.

    A node's own features have a map `W_o` of their own. `P` is `D^(−1/2) A D^(−1/2)` or `D⁻¹ A`, without or with
    self-loops. `W` and `W_o` are one product, which drops the input once. With `own="none"` and `gate_range="mix"`
    it is `GFGNConv`. `level`, `heads`, `lam`, `gate_range`, `gate_form`, `gate_bias` and `weights` are those of
    `HopGates`.

    Args:
        in_channels: Number of input features.
        out_channels: Number of outputs *per head*.
        hops: K; 0 for a layer that ignores the graph.
        own: `"gated"`, as above; `"added"`, `x W_o + Σ_{k=0…K} s_k ∘ P^k z + b`; or `"none"`, without `W_o`. `None` is
            `"added"` for gates of pairs, for free gates and without hops, and else `"gated"`.
        self_loops: Whether `P` is that of `A + I`.
        normalization: `"symmetric"` or `"row"`.
        bias: Whether there is a bias.
        dropout: Dropout rate of the input in training.
        validate: Whether `forward` raises for features that are not finite.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: `[2, E]` (source, target), a PyG `EdgeIndex`, a sparse `[N, N]` matrix or a `gfgn.Graph`.
        - output: `[N, heads * out_channels]`.
        - scores, if `return_scores=True`: gates `[num_graphs, …]`, `[N, …]` or `[E, …]` by level (free gates
          `[1, …]`), with `heads * out_channels` columns for every hop that has a gate: `1 … K` for `"mix"`, `0 … K`
          otherwise.
    """

    __call__: Callable[..., Any]
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        level: str = "neighbor",
        heads: int = 1,
        lam: Lam = 1.0,
        *,
        hops: int = 1,
        own: str | None = None,
        gate_range: str | None = None,
        gate_form: str = "dimension",
        gate_bias: float | None = None,
        weights: Sequence[float] | None = None,
        self_loops: bool = False,
        normalization: str = "symmetric",
        bias: bool = True,
        dropout: Rate = 0.0,
        validate: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("in_channels", in_channels), ("out_channels", out_channels), ("heads", heads)):
            check_positive(name, value)
        check_choice("normalization", normalization, NORMALIZATIONS)
        self.gates = gates = HopGates(out_channels, heads, hops, level, lam, gate_range, gate_form, gate_bias, weights)
        alone = gates.by_pair or hops == 0
        if own is None:
            own = "added" if alone or gates.gate_range == "free" else "gated"
        check_choice("own", own, OWN)
        if own == "gated" and alone:
            why = "hops=0" if hops == 0 else "level='pair'"
            raise ValueError(f"own must be 'added' or 'none' with {why}, whose sum has no gate for it, got 'gated'")
        self.in_channels, self.own = in_channels, own
        self.self_loops, self.normalization = self_loops, normalization
        self.dropout, self.validate = dropout, validate
        width = heads * out_channels
        self.lin = StackedLinear(in_channels, {"hops": width} if own == "none" else {"hops": width, "own": width})
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)) if bias else None)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        return_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Runs the layer; arguments as for `GFGNConv`."""
        check_features(x, edge_index, self.in_channels, self.validate)
        dtype, pooled = norm_dtype(self.lin.weight), self.gates.level == "graph"
        given = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, dtype, pooled)
        graph = propagation_graph(given, self.self_loops, self.normalization)
        if x.layout == torch.sparse_csr or self.own == "none":
            out, scores = self._on_products(x, graph, return_scores)
        else:
            x = ops.dropout(x, self.dropout, self.training)
            on_weights = self.gates.shared and graph.batch is None
            out, scores = (self._on_weights if on_weights else self._on_features)(x, graph, return_scores)
        if scores is None:
            return out
        return out, _of_given_edges(scores, given) if self.gates.by_pair and self.self_loops else scores

    # Three ways to the same sum. What costs on a CPU is memory: each keeps copies of `[N, D]` tensors few.

    def _on_products(self, x: Tensor, graph: Graph, return_scores: bool) -> tuple[Tensor, Tensor | None]:
        """All maps as one product, which drops sparse features once."""
        z, *own = self.lin(x, self.dropout)
        gated = own.pop() if self.own == "gated" else None
        out, scores = self.gates(z, graph, return_scores, gated)
        return self._add_bias(sum_of([out, *own])), scores

    def _on_features(self, x: Tensor, graph: Graph, return_scores: bool) -> tuple[Tensor, Tensor | None]:
        """A product per map, so that no product has to be cut in two."""
        hops, own = self.lin.weight.chunk(2)
        if self.own == "gated":
            z, own = two_maps(x, hops, own, None)
            out, scores = self.gates(z, graph, return_scores, own)
            return self._add_bias(out), scores
        z, own = two_maps(x, hops, own, self.bias)
        gated, scores = self.gates(z, graph, return_scores)
        return add_to(own, gated), scores

    def _on_weights(self, x: Tensor, graph: Graph, return_scores: bool) -> tuple[Tensor, Tensor | None]:
        """Gates that all nodes share, applied to `W`: `x W_o s_0 + P x (W s_1) + …`, or `x (W_o + W s_0) + …`."""
        hops, own = self.lin.weight.chunk(2)
        mean = ops.sum_rows(x) / max(x.size(0), 1) if self.gates.level == "graph" else x.new_zeros(1, x.size(1))
        gates = self.gates.shared_gates(ops.linear(mean, own if self.own == "gated" else hops))
        first, *rest = self.gates.weights_of(gates)
        own = scale_rows(own, first) if self.own == "gated" else own + scale_rows(hops, first)
        if len(rest) == 1:
            hops, rest = scale_rows(hops, rest[0]), []
        z, out = two_maps(x, hops, own, self.bias)
        if self.gates.hops > 0:
            out = add_to(out, ops.propagate(sum_of_hops([z] * len(rest), rest, graph) if rest else z, graph))
        return out, torch.cat(gates, dim=1) if return_scores else None

    def _add_bias(self, out: Tensor) -> Tensor:
        return out if self.bias is None else out + ops.expand_rows(self.bias, out.size(0))


def add_to(x: Tensor, y: Tensor) -> Tensor:
    """The sum, in the memory of `x`, of which there must be no other use, unless a program is compiled or batched."""
    in_place = not torch.compiler.is_compiling() and not (is_wrapped(x) or is_wrapped(y)) and x.dtype == y.dtype
    return x.add_(y) if in_place else x + y


def scale_rows(weight: Tensor, s: Tensor) -> Tensor:
    """Row `d` of a weight times `s_d`, of `[1, D]`."""
    batched = is_batched(weight) or is_batched(s)
    return weight * (repeat_columns(s.t(), weight.size(1)) if batched else s.t())


def propagation_graph(graph: Graph, self_loops: bool, normalization: str) -> Graph:
    """The graph whose `norm` is `P`, computed once per graph."""
    graph = with_self_loops(graph) if self_loops else graph
    return row_normalized(graph) if normalization == "row" else graph


def _of_given_edges(scores: Tensor, graph: Graph) -> Tensor:
    """Scores of the stored edges in the order of the given ones, 0 for a given self-loop."""
    zero = scores.new_zeros(1, scores.size(1))
    return torch.cat([scores, zero]).index_select(0, graph.edge_position % (scores.size(0) + 1))


class LayerNorm(ResettableModule):
    """`(h − mean(h)) / √(var(h) + ε) ∘ γ + β` over the units of each node."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        width = x.size(1)
        if not (is_batched(x) or is_batched(self.weight)):
            return functional.layer_norm(x, (width,), self.weight, self.bias, self.eps)
        mean = torch.full((1, width), 1 / width, dtype=x.dtype, device=x.device)
        centered = x - repeat_columns(ops.linear(x, mean), width)
        scale = (ops.linear(centered.square(), mean) + self.eps).rsqrt()
        weight, bias = (ops.expand_rows(row, x.size(0)) for row in (self.weight, self.bias))
        return centered * repeat_columns(scale, width) * weight + bias


class BatchNorm(nn.BatchNorm1d):
    """`(h − mean) / √(var + ε) ∘ γ + β` over the nodes, in evaluation mode with running means of both.

    Among replicas, each has statistics of its own; see `gfgn.train.program`.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor

    def forward(self, input: Tensor) -> Tensor:
        count = input.size(0)
        if not (is_batched(input) or is_batched(self.weight)):
            return super().forward(input)
        if self.training:
            out, mean, var = ops.standardize(input, self.eps)
            unbiased = var * (count / max(count - 1, 1))
            for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
                running.copy_(running * (1 - self.momentum) + value.detach().view(-1) * self.momentum)
            return out * ops.expand_rows(self.weight, count) + ops.expand_rows(self.bias, count)
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return input * ops.expand_rows(scale, count) + ops.expand_rows(shift, count)


class LengthNorm(nn.Module):
    """Every row divided by its Euclidean length, as in GraphSAGE."""

    def forward(self, x: Tensor) -> Tensor:
        return scale_to_length_one(x)


def make_norm(name: str, channels: int) -> nn.Module:
    """A normalization of `NORMS`."""
    if name == "layer":
        return LayerNorm(channels)
    if name == "batch":
        return BatchNorm(channels)
    return LengthNorm() if name == "length" else nn.Identity()


class GFGNPlus(ResettableModule):
    """A network of `GFGNPlusConv` layers, which a linear map of the features may precede.

    A hidden layer is `h' = ReLU(conv(h))`, with `residual` `h' = h + ReLU(conv(norm h))` after the first; `norm` is
    applied to the input of every layer but the first, and of the head, batch norm between a layer and its ReLU:
    `h' = h + ReLU(norm conv(h))`. Dropout is applied to the same inputs. `level`,
    `lam`, `own`, `gate_range`, `gate_form`, `gate_bias`, `self_loops` and `normalization` are those of
    `GFGNPlusConv`.

    Args:
        in_channels: Number of features.
        hidden_channels: Number of hidden units of all heads together; `heads` must divide it.
        num_layers: Number of `GFGNPlusConv` layers.
        out_channels: Number of outputs.
        heads: Number of heads; `None` for 1 in networks of at most two layers, else 8, or the largest of 4, 2 and 1
            that divides `hidden_channels`.
        dropout: Dropout rate.
        input_dropout: Dropout rate of the features; `None` for `dropout`.
        embed: Whether a linear map of the features to `hidden_channels` comes before the layers, without an activation;
            `None` for networks of at most two layers.
        hops: K of every layer; `None` for 2 in a network of one layer, except at level `"pair"`, and else 1.
        head: `"linear"`, all layers are hidden and a linear map follows; `"conv"`, the last layer has one head of
            `out_channels` units; `"propagated"`, the outputs `y` of the linear map are propagated:
            `Σ_{k≤steps} γ_k P^k y` with weights `γ` that start as those of personalized PageRank, one per step for
            `gate_form="scalar"` (GPR-GNN), one per step and class for `"dimension"`, fixed for `"constant"` (APPNP).
        steps: Number of steps of the propagated head.
        alpha: α of the propagated head.
        residual: Whether layers add their input.
        norm: `"none"`, `"layer"` (layer norm) or `"length"` (length 1) of a node's hidden units, or `"batch"` (batch
            norm), of each hidden unit over the nodes; `"auto"` is `"batch"` above two layers, which do not train well
            without, and else `"none"`.
        jk: Jumping knowledge: the head reads the last layer (`"none"`), all of them side by side (`"cat"`) or their
            maximum (`"max"`).
        validate: See `GFGNPlusConv`.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: see `GFGNPlusConv`.
        - output: `[N, out_channels]`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        level: str = "neighbor",
        heads: int | None = None,
        lam: Lam = 1.0,
        dropout: Rate = 0.5,
        input_dropout: Rate | None = None,
        embed: bool | None = None,
        hops: int | None = None,
        own: str | None = None,
        gate_range: str | None = None,
        gate_form: str = "dimension",
        gate_bias: float | None = None,
        self_loops: bool = False,
        normalization: str = "symmetric",
        head: str = "linear",
        steps: int = 10,
        alpha: float = 0.1,
        residual: bool = False,
        norm: str = "auto",
        jk: str = "none",
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_positive("num_layers", num_layers)
        check_positive("hidden_channels", hidden_channels)
        if heads is None:
            heads = math.gcd(hidden_channels, 8) if num_layers > 2 else 1
        check_positive("heads", heads)
        if hidden_channels % heads:
            raise ValueError(f"heads must divide hidden_channels, got heads={heads}, hidden_channels={hidden_channels}")
        check_choice("head", head, HEADS)
        check_choice("norm", norm, NORMS)
        check_choice("jk", jk, JUMPING_KNOWLEDGE)
        if jk != "none" and head == "conv":
            raise ValueError(
                f"head must be 'linear' or 'propagated' with jk={jk!r}, which joins hidden layers, got 'conv'"
            )
        if norm == "auto":
            norm = "batch" if num_layers > 2 else "none"
        if hops is None:
            hops = 2 if num_layers == 1 and level != "pair" else 1
        if embed is None:
            embed = num_layers <= 2
        self.in_channels, self.level, self.validate = in_channels, level, validate
        self.dropout, self.residual, self.norm, self.jk = dropout, residual, norm, jk
        self.input_dropout = dropout if input_dropout is None else input_dropout
        self.embed = Linear(in_channels, hidden_channels) if embed else None
        self.propagation = (self_loops, normalization)
        num_hidden = num_layers - (head == "conv")
        options: dict[str, Any] = {"level": level, "lam": lam, "hops": hops, "own": own, "gate_range": gate_range}
        options |= {"gate_form": gate_form, "gate_bias": gate_bias, "self_loops": self_loops}
        options |= {"normalization": normalization, "validate": False}
        sizes = [hidden_channels if embed else in_channels, *[hidden_channels] * (num_layers - 1)]
        rates = [0.0 if embed else self.input_dropout, *[dropout] * (num_layers - 1)]
        hidden: dict[str, Any] = {"out_channels": hidden_channels // heads, "heads": heads, "bias": norm != "batch"}
        outputs = [hidden] * num_hidden + [{"out_channels": out_channels}] * (num_layers - num_hidden)
        self.convs = nn.ModuleList(
            GFGNPlusConv(size, dropout=rate, **output, **options)
            for size, rate, output in zip(sizes, rates, outputs, strict=True)
        )
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(num_hidden))
        joined = hidden_channels * (num_layers if jk == "cat" else 1)
        self.lin = None if head == "conv" else Linear(joined, out_channels)
        self.spread = None
        if head == "propagated":
            weights = pagerank_weights(steps, alpha)
            self.spread = HopGates(out_channels, hops=steps, gate_range="free", gate_form=gate_form, weights=weights)

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
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Runs the network; arguments as for `GFGN`. Scores are a list with one entry per layer, and one of the
        propagated head."""
        check_features(x, edge_index, self.in_channels, self.validate)
        dtype = norm_dtype(next(self.parameters()))
        graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, dtype, self.level == "graph")
        scores: list[Tensor] = []
        hidden: list[Tensor] = []
        before: Tensor | None = None
        if self.embed is not None:
            x = self.embed(x, self.input_dropout)
        for layer, conv in enumerate(self.convs):
            out = conv(x, graph, return_scores=return_scores)
            if return_scores:
                out, layer_scores = out
                scores.append(layer_scores)
            x = out
            if layer < len(self.norms):
                norm = self.norms[layer]
                x = (norm(x) if self.norm == "batch" else x).relu()
                before = x if before is None or not self.residual else before + x
                x = before if self.norm == "batch" else norm(before)
                hidden.append(x)
        if self.lin is not None:
            x = self.lin(self._join(hidden), self.dropout)
        if self.spread is not None:
            x, head_scores = self.spread(x, propagation_graph(graph, *self.propagation), return_scores)
            scores += [head_scores] if return_scores else []
        return (x, scores) if return_scores else x

    def _join(self, hidden: list[Tensor]) -> Tensor:
        if self.jk == "none":
            return hidden[-1]
        return torch.cat(hidden, dim=1) if self.jk == "cat" else functools.reduce(torch.maximum, hidden)


def pagerank_weights(steps: int, alpha: float) -> list[float]:
    """Weights of personalized PageRank: `α (1 − α)^k`, and `(1 − α)^K` for the last."""
    return [alpha * (1 - alpha) ** k for k in range(steps)] + [(1 - alpha) ** steps]


def check_choice(name: str, value: str, known: Any) -> None:
    """Raises a `ValueError` for an argument that is not one of `known`."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
