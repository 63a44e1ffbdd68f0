"""VR-GCN in mini-batches: two sampled neighbors per node, and past activations of all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn import ops
from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.metrics import node_losses
from gfgn.ops.features import sparse_csr, take_rows
from gfgn.sampling.counter import key_of
from gfgn.sampling.neighbors import number_nodes, sample_edges
from gfgn.sampling.subgraphs import check_positive
from gfgn.train.minibatch.batches import NodeBatches


class Field(NamedTuple):
    """The inputs of one layer for a set of nodes: a sample of their neighbors, and all neighbors for the history."""

    source: Tensor  # of each sampled edge, an index into `below`
    target: Tensor  # of each sampled edge, an index into the nodes of the layer
    weight: Tensor  # Â_ij of each sampled edge
    scale: Tensor  # n(i) / D(i) of each sampled edge: n(i) neighbors, D(i) of them sampled
    below: Tensor  # the nodes of the layer below; with `concat` it starts with the nodes of this layer
    all_source: Tensor  # of each edge, a node of the graph
    all_target: Tensor  # of each edge, an index into the nodes of the layer
    all_weight: Tensor  # Â_ij of each edge
    size: int  # number of nodes of the layer


class ControlVariateBatch(NamedTuple):
    """Labels of training nodes and the fields of their layers, from the last layer down to the second."""

    y: Tensor
    fields: list[Field]


class ControlVariateBatches(NodeBatches):
    """The control variate estimator of *Stochastic Training of Graph Convolutional Networks with Variance Reduction*
    (Chen et al., 2018).

    Instead of the sum over all neighbors, `Z = Â H`, a layer computes

        Z ≈ P̂ (H − H̄) + Â H̄

    where `H̄` has each node's activation when it was last computed, and `P̂` has a few neighbors per node, scaled so that
    `E[P̂] = Â`. The estimate is unbiased for any history. As the parameters converge, `H̄` approaches `H` and the
    variance goes to 0, unlike that of sampling `H` itself. The input of the first layer, `ÂX`, is computed once. `Â`
    has self-loops; with `concat` it is `D⁻¹A`, and a layer also takes the nodes' own `H`.

    Dropout would keep `H` from converging. As in the paper, activations `M` without dropout are computed as well,
    histories are of `M`, and the noise `H − M` is scaled to have the variance of the whole sum:

        Z ≈ √R P_s (H − M) + R P_s (M − M̄) + Â M̄

    with `P_s` the sampled part of `Â` and `R = n / D`, the neighbors of a node over those sampled.

    Args:
        net, data, train, seed: See `Minibatches`; the model is a `gfgn.nn.baselines.vr_gcn.VRGCN`.
        fanout: D, sampled neighbors per node; a self-loop is one of the neighbors.
        batch_size: Training nodes per step.

    Attributes:
        histories: `H̄` of each hidden layer, `[N, hidden]`, initially 0.
    """

    options = ("batch_size", "fanout")
    requires = ("layers", "hidden", "concat", "prepare")
    keeps_state = True

    def __init__(
        self, net: Any, data: NodeDataset, train: Tensor, *, fanout: int = 2, batch_size: int = 512, seed: int = 0
    ) -> None:
        super().__init__(net, data, train, batch_size, seed)
        check_positive(fanout=fanout)
        hidden = len(net.layers) - 1
        if hidden == 0:
            raise ValueError("net must have two layers or more, got 1: there is nothing to sample")
        self.fanout, self.edges = fanout, net.prepare(data.graph)
        self.first = propagated(data.x, self.edges)
        self.histories = [data.x.new_zeros(data.num_nodes, net.hidden, layout=torch.strided) for _ in range(hidden)]
        self._ptr = self.edges.by_target.ptr.cpu().numpy()
        self._idx = self.edges.by_target.idx.cpu().numpy().astype(np.int64)

    def batch(self, nodes: Tensor, epoch: int, step: int) -> ControlVariateBatch:
        fields, above = [], nodes
        for layer in range(len(self.histories)):
            fields.append(self.field(above, epoch, step, layer))
            above = fields[-1].below
        return ControlVariateBatch(self.y[nodes], fields)

    def field(self, nodes: Tensor, *numbers: int) -> Field:
        """A sample of the neighbors of `nodes` for one layer; it depends on the seed and on `numbers`."""
        own = nodes.cpu().numpy()
        counts, edges, scale = sample_edges(self._ptr, own, self.fanout, key_of(self.seed, *numbers))
        all_counts, all_edges, _ = sample_edges(self._ptr, own, -1, 0)
        first = own if self.net.concat else own[:0]
        row, new = number_nodes(first, self._idx[edges])

        def tensor(array: Any) -> Tensor:
            return torch.from_numpy(array).to(nodes.device)

        indices, sampled, everything = np.arange(own.size), tensor(edges), tensor(all_edges)
        return Field(
            source=tensor(row),
            target=tensor(np.repeat(indices, counts)),
            weight=self.edges.norm[sampled],
            scale=tensor(scale).to(self.edges.norm),
            below=tensor(np.concatenate([first, new])),
            all_source=self.edges.by_target.idx[everything].long(),
            all_target=tensor(np.repeat(indices, all_counts)),
            all_weight=self.edges.norm[everything],
            size=own.size,
        )

    def loss(self, batch: ControlVariateBatch) -> Tensor:
        """The mean loss of the training nodes; the activations it computes become their history."""
        *hidden, last = self.net.layers
        dropout = self.net.input_dropout  # of the first layer
        below = batch.fields[-1].below
        z = z_mean = take_rows(self.first, below)
        own = own_mean = take_rows(self.x, below) if self.net.concat else z
        for layer, field, history in zip(hidden, reversed(batch.fields), self.histories, strict=True):
            h, mean = layer.combine(own, z, dropout).relu(), layer.combine(own_mean, z_mean).relu()
            z_mean = estimate(mean, history, field)
            z = z_mean + noise(h - mean, field)
            own, own_mean = h[: field.size], mean[: field.size]
            history[field.below] = mean.detach()
            dropout = self.net.dropout
        return node_losses(last.combine(own, z, dropout), batch.y).mean()


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


def propagated(x: Tensor, graph: Graph) -> Tensor:
    """`Âx`, sparse CSR if `x` is."""
    if x.layout != torch.sparse_csr:
        return ops.propagate(x, graph)
    ptr, idx = graph.by_target.ptr.cpu().numpy(), graph.by_target.idx.cpu().numpy()
    adjacency = scipy.sparse.csr_array((graph.norm.cpu().numpy(), idx, ptr), shape=(graph.num_nodes, graph.num_nodes))
    parts = (x.values(), x.col_indices(), x.crow_indices())
    features = scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(x.size(0), x.size(1)))
    product = (adjacency @ features).tocsr()
    product.sort_indices()
    pointers, columns = (torch.from_numpy(part.astype(np.int64)) for part in (product.indptr, product.indices))
    return sparse_csr(pointers, columns, torch.from_numpy(product.data).to(x.dtype), x.shape).to(x.device)
