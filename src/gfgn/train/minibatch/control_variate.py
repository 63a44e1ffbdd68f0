"""VR-GCN in mini-batches: two neighbours a node, and the past activations of all the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gfgn.graph import Graph
from gfgn.nn.baselines.vr_gcn import VRGCN
from gfgn.ops.features import take_rows
from gfgn.sampling.counter import key_of
from gfgn.sampling.neighbors import number_nodes, sample_edges
from gfgn.train.minibatch.loop import check_labels, node_losses, shuffled
from gfgn.train.minibatch.propagation import propagated


class Field(NamedTuple):
    """What a layer needs to work out some nodes: a sample of their neighbours, and all of them for the history."""

    source: Tensor
    """Of each sampled edge its source's place among the nodes of the layer below."""
    target: Tensor
    """Of each sampled edge its target's place among this layer's nodes."""
    weight: Tensor
    """`Â_ij` of each sampled edge."""
    scale: Tensor
    """`n(i) / D(i)` of each sampled edge: `n(i)` neighbours, of which `D(i)` were sampled."""
    below: Tensor
    """The nodes of the layer below; with `concat`, this layer's own are the first of them."""
    all_source: Tensor
    """Of each edge its source, a node of the graph."""
    all_target: Tensor
    """Of each edge its target's place among this layer's nodes."""
    all_weight: Tensor
    """`Â_ij`."""
    size: int
    """Number of this layer's nodes."""


class ControlVariateBatch(NamedTuple):
    """Some training nodes and the fields of their layers, from the last layer down to the second."""

    y: Tensor
    fields: list[Field]


class ControlVariateBatches:
    """The control variate estimator of *Stochastic Training of Graph Convolutional Networks with Variance Reduction*
    (Chen et al., 2018).

    In place of the sum over all neighbours, `Z = Â H`, a layer works out

        Z ≈ P̂ (H − H̄) + Â H̄

    where `H̄` is each node's activation when it was last worked out, and `P̂` holds a few neighbours a node, scaled up so
    that `E[P̂] = Â`. The estimate is unbiased whatever the history, and as the parameters settle, `H̄` comes near to `H`
    and the variance goes to 0, where that of a sample of `H` itself stays. The first layer takes `ÂX`, which is worked
    out once. `Â` has self-loops; with `concat` it is `D⁻¹A`, and a layer takes the nodes' own `H` beside the estimate.

    Dropout would keep `H` from ever settling. So, as in the paper, activations `M` without dropout are worked out
    beside those with it, histories are of `M`, and the noise `H − M` is scaled to vary as much as in the whole sum:

        Z ≈ √R P_s (H − M) + R P_s (M − M̄) + Â M̄

    with `P_s` the sampled part of `Â` and `R = n / D`, all neighbours of a node over those sampled.

    Args:
        net: The model, for the widths of its layers.
        x: `[N, F]`, dense or sparse CSR.
        graph: The whole graph.
        y: Labels, see `train_minibatch`.
        train: `[N]`, mask of the training nodes.
        fanout: D, neighbours sampled a node (the node itself, if it has a loop, is one that can be sampled).
        batch_size: Training nodes in a step.
        seed: Of order and samples.

    Attributes:
        histories: `H̄` of each hidden layer, `[N, hidden]`, at first 0.
    """

    def __init__(
        self,
        net: nn.Module,
        x: Tensor,
        graph: Graph,
        y: Tensor,
        train: Tensor,
        *,
        fanout: int = 2,
        batch_size: int = 512,
        seed: int = 0,
    ) -> None:
        check_labels(y, train, graph)
        if fanout < 1:
            raise ValueError(f"fanout must be 1 or larger, got {fanout}")
        net = _checked(net)
        count = len(net.layers) - 1
        if count == 0:
            raise ValueError("net must have two layers or more, got 1: there is nothing to sample")
        self.concat, self.edges = net.concat, net.prepare(graph)
        self.x, self.first = x, propagated(x, self.edges)
        self.y = y
        self.nodes = torch.nonzero(train).view(-1)
        self.fanout = fanout
        self.batch_size = batch_size
        self.seed = seed
        shape = graph.num_nodes, net.hidden
        self.histories = [torch.zeros(shape, dtype=x.dtype, device=x.device) for _ in range(count)]
        self._ptr = self.edges.by_target.ptr.cpu().numpy()
        self._idx = self.edges.by_target.idx.cpu().numpy().astype(np.int64)

    def steps(self, epoch: int) -> Iterator[ControlVariateBatch]:
        """The batches of an epoch."""
        order = int(key_of(self.seed, epoch)) >> 1
        for step, nodes in enumerate(shuffled(self.nodes, self.batch_size, order)):
            yield self.batch(nodes, epoch, step)

    def batch(self, nodes: Tensor, *numbers: int) -> ControlVariateBatch:
        """Some nodes with a sample that depends on the seed and on `numbers`."""
        fields, above = [], nodes
        for layer in range(len(self.histories)):
            fields.append(self.field(above, *numbers, layer))
            above = fields[-1].below
        return ControlVariateBatch(self.y[nodes], fields)

    def field(self, nodes: Tensor, *numbers: int) -> Field:
        """A sample of the neighbours of `nodes`, for one layer."""
        own = nodes.cpu().numpy()
        counts, edges = sample_edges(self._ptr, own, self.fanout, key_of(self.seed, *numbers))
        all_counts, all_edges = sample_edges(self._ptr, own, -1, np.uint64(0))
        local = np.full(self.edges.num_nodes, -1, np.int64)
        first = own if self.concat else own[:0]
        local[first] = np.arange(first.size)
        row, found = number_nodes(self._idx, edges, local, first.size)
        device = nodes.device
        places = np.arange(own.size)
        sampled, everything = (torch.from_numpy(part).to(device) for part in (edges, all_edges))
        scale = torch.from_numpy(np.repeat(all_counts / np.maximum(counts, 1), counts)).to(self.edges.norm)
        return Field(
            source=torch.from_numpy(row).to(device),
            target=torch.from_numpy(np.repeat(places, counts)).to(device),
            weight=self.edges.norm[sampled],
            scale=scale,
            below=torch.from_numpy(np.concatenate([first, found])).to(device),
            all_source=self.edges.by_target.idx[everything].long(),
            all_target=torch.from_numpy(np.repeat(places, all_counts)).to(device),
            all_weight=self.edges.norm[everything],
            size=own.size,
        )

    def loss(self, net: nn.Module, batch: ControlVariateBatch) -> Tensor:
        """The mean loss of the batch's nodes; what it works out becomes their history."""
        net = _checked(net)
        *hidden, last = net.layers
        dropout = net.dropout
        below = batch.fields[-1].below
        z = z_mean = take_rows(self.first, below)
        own = own_mean = take_rows(self.x, below) if self.concat else z
        for layer, field, history in zip(hidden, reversed(batch.fields), self.histories, strict=True):
            h, mean = layer.combine(own, z, dropout).relu(), layer.combine(own_mean, z_mean).relu()
            z_mean = estimate(mean, history, field)
            z = z_mean + noise(h - mean, field)
            own, own_mean = h[: field.size], mean[: field.size]
            history[field.below] = mean.detach()
        return node_losses(last.combine(own, z, dropout), batch.y).mean()


def _checked(net: nn.Module) -> VRGCN:
    if not isinstance(net, VRGCN):
        raise TypeError(f"net must be a VRGCN, got {type(net).__name__}")
    return net


def estimate(h: Tensor, history: Tensor, field: Field) -> Tensor:
    """`R P_s (H − H̄) + Â H̄` for the nodes of a field; `h` are activations of the nodes below."""
    change = _gather(h - history[field.below], field.source, field.scale * field.weight)
    past = _gather(history, field.all_source, field.all_weight)
    out = h.new_zeros(field.size, h.size(1))
    return out.index_add(0, field.target, change).index_add(0, field.all_target, past)


def noise(difference: Tensor, field: Field) -> Tensor:
    """`√R P_s (H − M)` for the nodes of a field."""
    out = difference.new_zeros(field.size, difference.size(1))
    return out.index_add(0, field.target, _gather(difference, field.source, field.scale.sqrt() * field.weight))


def _gather(x: Tensor, source: Tensor, weight: Tensor) -> Tensor:
    return x.index_select(0, source) * weight.to(x.dtype).unsqueeze(1)
