"""A small dataset: three classes with few edges between them, a hub, an isolated node, and noisy features."""

import torch

from gfgn import Graph
from gfgn.data import NodeDataset, Split

NODES, CLASSES, FEATURES = 150, 3, 8


def blocks(sparse: bool = False, dtype: torch.dtype = torch.float64) -> NodeDataset:
    """Node 0 has edges with a third of all nodes, the last node has none."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    same = y.unsqueeze(0) == y.unsqueeze(1)
    near = torch.rand(NODES, NODES, generator=generator) < torch.where(same, 0.10, 0.01)
    near[0] |= torch.rand(NODES, generator=generator) < 0.3
    near |= near.t().clone()
    near.fill_diagonal_(False)
    near[-1], near[:, -1] = False, False
    graph = Graph.from_edge_index(near.nonzero().t().contiguous(), NODES, dtype=dtype)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=dtype)
    x[:, :CLASSES] += torch.nn.functional.one_hot(y, CLASSES)
    part = torch.rand(NODES, generator=generator)
    split = Split(part < 0.5, (part >= 0.5) & (part < 0.75), part >= 0.75)
    names = [str(k) for k in range(FEATURES)]
    return NodeDataset("blocks", graph, x.to_sparse_csr() if sparse else x, y, CLASSES, "accuracy", names, [split])


def two_graphs() -> NodeDataset:
    """The graph twice, with multi-label nodes: the first copy is for training, the second for validation and test."""
    data = blocks()
    edges = torch.cat([data.graph.edge_index, data.graph.edge_index + NODES], dim=1)
    batch = torch.arange(2).repeat_interleave(NODES)
    graph = Graph.from_edge_index(edges, 2 * NODES, batch=batch, dtype=torch.float64)
    y = torch.stack([data.y == 0, data.y != 1, data.y == 2], dim=1).repeat(2, 1)
    train, val = batch == 0, (batch == 1) & (torch.arange(2 * NODES) % 2 == 0)
    split = Split(train, val, ~train & ~val)
    return NodeDataset("two", graph, data.x.repeat(2, 1), y, 3, "micro_f1", data.feature_names, [split])
