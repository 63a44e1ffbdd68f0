"""The models by name: GCN through our operator is PyG's, and each trains on dense and sparse features."""

import dataclasses

import pytest
import torch
from loops import random_edges
from torch_geometric.edge_index import EdgeIndex

from gfgn import Graph
from gfgn.data.dimensions import dimensions
from gfgn.train import MODELS, Replica, train_replicas
from gfgn.train.models import GCN, builder


def inputs() -> tuple[torch.Tensor, torch.Tensor, Graph]:
    generator = torch.Generator().manual_seed(0)
    edges = random_edges(18, 60, generator).unique(dim=1)
    edges = edges[:, edges[0] != edges[1]]
    return torch.randn(20, 6, generator=generator), edges, Graph.from_edge_index(edges, 20)


def test_gcn_is_pygs() -> None:
    x, edges, graph = inputs()
    model = GCN(6, 8, 3, dropout=0.0).double()
    x = x.double()
    for given in (edges, EdgeIndex(edges.contiguous(), sparse_size=(20, 20))):
        expected = model.out(model.hidden(x, given).relu(), given)
        torch.testing.assert_close(model(x, graph.to(torch.float64)), expected, rtol=1e-6, atol=1e-6)
    other = Graph.from_edge_index(edges.flip(0), 20)  # another graph is not mistaken for the first
    expected = model.out(model.hidden(x, edges.flip(0)).relu(), edges.flip(0))
    torch.testing.assert_close(model(x, other), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_model_trains(name: str, sparse: bool) -> None:
    x, _, graph = inputs()
    x = x.relu()
    model = builder(name)(6, 3, Replica(dropout=0.5))
    logits = model(x.to_sparse_csr() if sparse else x, graph)
    assert logits.shape == (20, 3)
    logits.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
    model.eval()
    dense, sparse_out = model(x, graph), model(x.to_sparse_csr(), graph)
    torch.testing.assert_close(sparse_out, dense)


def test_training_refuses_what_it_does_not_measure() -> None:
    data = dataclasses.replace(dimensions(60, splits=1), metric="roc_auc")
    with pytest.raises(ValueError, match=r"data must be measured by accuracy.* dimensions is by roc_auc"):
        train_replicas("mlp", data, [Replica()], max_epochs=1)
