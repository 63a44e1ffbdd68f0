"""`MLP` against PyTorch's layers."""

import torch
from nn.baselines.tiny import FEATURES, features, graph

from gfgn.nn.mlp import MLP


def test_mlp_is_its_layers_and_ignores_the_graph() -> None:
    model = MLP(FEATURES, 3, 0.5, hidden=7, layers=3).double().eval()
    first, second, third = model.lins
    x = features()
    expected = third(second(first(x).relu()).relu())
    for arguments in ((x,), (x, graph()), (x.to_sparse_csr(), graph().edge_index)):
        torch.testing.assert_close(model(*arguments), expected)
    torch.testing.assert_close(first(x), torch.nn.functional.linear(x, first.weight, first.bias))
    before = first.weight.clone()
    model.reset_parameters()
    assert not torch.equal(first.weight, before)


def test_dropout_is_for_training_only() -> None:
    model = MLP(FEATURES, 3, 0.5).double()
    assert not torch.equal(model(features()), model(features()))
    model.eval()
    assert torch.equal(model(features()), model(features()))
