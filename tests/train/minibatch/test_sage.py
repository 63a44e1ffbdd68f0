"""GraphSAGE in mini-batches."""

import pytest
import torch
from train.minibatch.blocks import CLASSES, FEATURES, blocks

from gfgn.nn.baselines.graphsage import GraphSAGE
from gfgn.train.minibatch import NeighborBatches
from gfgn.train.minibatch.loop import node_losses


def test_with_all_neighbors_a_batch_is_the_whole_graph() -> None:
    x, graph, y, split = blocks()
    net = GraphSAGE(FEATURES, CLASSES, 0.0, hidden=6).double()
    batches = NeighborBatches(x, graph, y, split[0], fanouts=(-1, -1), batch_size=20)
    exact = node_losses(net(x, graph), y)[split[0]]
    sizes, losses = [], []
    for batch in batches.steps(0):
        sizes.append(batch.y.numel())
        losses.append(batches.loss(net, batch) * batch.y.numel())
    assert sum(sizes) == split[0].sum()
    assert max(sizes) == 20
    torch.testing.assert_close(sum(losses), exact.sum())


def test_layers_that_need_fewer_nodes_see_fewer() -> None:
    """Each layer on its own part of the sample gives the nodes asked for what the whole sample gives them."""
    x, graph, y, split = blocks()
    net = GraphSAGE(FEATURES, CLASSES, 0.0, hidden=6, layers=3).double()
    batches = NeighborBatches(x, graph, y, split[0], fanouts=(3, 2, 2), batch_size=10)
    batch = next(iter(batches.steps(0)))
    sizes = [g.num_nodes for g in batch.graphs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] == batch.x.size(0)
    whole = net(batch.x, batch.graphs[0])[:10]
    torch.testing.assert_close(batches.loss(net, batch), node_losses(whole, batch.y).mean())
    torch.testing.assert_close(batches.loss(lambda *inputs: net(*inputs), batch), node_losses(whole, batch.y).mean())
    with pytest.raises(ValueError, match="fanouts must be 2 numbers, one a layer, got 3"):
        batches.loss(GraphSAGE(FEATURES, CLASSES), batch)


def test_epochs_differ_and_can_be_repeated() -> None:
    x, graph, y, split = blocks()
    batches = NeighborBatches(x, graph, y, split[0], fanouts=(3, 2), batch_size=20, seed=4)
    first, second, again = (list(batches.steps(epoch)) for epoch in (0, 1, 0))
    assert all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].y, second[0].y) or not torch.equal(first[0].x, second[0].x)
