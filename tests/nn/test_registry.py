"""The registry of models: each trains on dense and sparse features and says what it takes."""

import pytest
import torch
from loops import random_edges

from gfgn import Graph
from gfgn.nn.registry import MODELS

PAPER = "gcn gat sgc arma ggnn appnp geom-gcn graphsage vr-gcn gaan geniepath graphsaint"


def test_names() -> None:
    assert {"mlp", "gfgn-graph", "gfgn-neighbor", "gfgn-pair", *PAPER.split()} <= MODELS.keys()
    assert {name for name, model in MODELS.items() if model.gated} == {"gfgn-graph", "gfgn-neighbor", "gfgn-pair"}
    for name, model in MODELS.items():
        assert model.reference, name
        assert model.replicas or model.minibatch, name


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.replicas])
def test_every_model_trains(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = random_edges(18, 60, generator).unique(dim=1)
    graph = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 20)
    x, model = torch.randn(20, 6, generator=generator).relu(), MODELS[name]
    settings = model.settings(name, (), {"num_nodes": 20})
    torch.manual_seed(0)
    net = model.build(6, 3, 0.5, 1.0, settings)
    for features in (x, x.to_sparse_csr()):
        logits = net(features, graph)
        assert logits.shape == (20, 3)
        grads = torch.autograd.grad(logits.square().sum(), list(net.parameters()), allow_unused=True)
        assert all(grad is None or torch.isfinite(grad).all() for grad in grads)
        assert sum(grad is not None for grad in grads) > 1
    net.eval()
    torch.testing.assert_close(net(x.to_sparse_csr(), graph), net(x, graph), rtol=1e-4, atol=1e-5)
