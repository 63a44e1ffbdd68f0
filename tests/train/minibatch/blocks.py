"""A small graph of three groups whose nodes keep to themselves, a hub, an isolated node, and noisy features."""

import torch
from torch import Tensor

from gfgn import Graph

NODES, CLASSES, FEATURES = 150, 3, 8


def blocks(
    seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Graph, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Features, graph, labels and split. Node 0 is joined to a third of all nodes, the last node to none."""
    generator = torch.Generator().manual_seed(seed)
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
    return x, graph, y, (part < 0.5, (part >= 0.5) & (part < 0.75), part >= 0.75)
