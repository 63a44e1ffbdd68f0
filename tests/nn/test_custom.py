"""Custom models: from a name or a signature to a `Model`, and errors that say what is expected."""

import importlib.metadata
from functools import partial
from typing import Any

import nets
import pytest
import torch
from torch import nn
from torch_geometric.nn.models import GAT, GCN

from gfgn.nn import custom, find_model
from gfgn.nn.custom import factory_name, forward_arguments


def test_a_name_is_imported_and_described_by_its_signature() -> None:
    model = find_model("nets:Net")
    assert model is find_model(nets.Net)
    assert (model.custom, model.takes_dropout, model.gated) == (True, True, False)
    assert {name: each.default for name, each in model.parameters.items()} == {"hidden_channels": 8}
    assert model.reference == "The network of a PyG tutorial."
    assert len(model.code) == 8
    module = model.build(5, 3, 0.25, settings={"hidden_channels": 7})
    assert isinstance(module, nets.Net)
    assert (module.conv1.in_channels, module.conv1.out_channels, module.conv2.out_channels) == (5, 7, 3)
    assert module.dropout == 0.25


def test_an_option_without_a_default_must_be_given() -> None:
    model = find_model("nets:Deep")
    assert model.required == ("depth",)
    assert model.parameters["depth"].kind is int
    assert model.parameters["name"].kind is str
    with pytest.raises(ValueError, match=r"include depth, which has no default: --set nets:Deep\.depth=VALUE"):
        model.settings("nets:Deep", [], {})
    assert model.settings("nets:Deep", [("depth", 2)], {}) == {"depth": 2, "name": None}
    with pytest.raises(ValueError, match=r"'depth' of nets:Deep must be of type int, got 'two'"):
        model.settings("nets:Deep", [("depth", "two")], {})


@pytest.mark.parametrize("network", [GCN, GAT])
def test_models_of_pyg_take_further_options(network: type) -> None:
    model = find_model(network)
    assert model.accepts_kwargs
    assert model.parameters["num_layers"].default == 2
    assert model.parameters["act"].default == "relu"
    settings = model.settings("GAT", [("heads", 4)] if network is GAT else [("cached", True)], {})
    module = model.build(5, 3, 0.5, settings=settings)
    x, edge_index = torch.rand(4, 5), torch.tensor([[0, 1], [1, 2]])
    assert module(x, edge_index).shape == (4, 3)
    assert forward_arguments(module) == ("edge_index", "edge_weight")


def test_functions_and_partials_are_models() -> None:
    model = find_model("nets:make_net")
    assert {name: each.default for name, each in model.parameters.items()} == {"width": 4}
    assert isinstance(model.build(5, 3), nets.Net)
    fixed = partial(nets.Net, hidden_channels=3)
    assert factory_name(fixed) == "nets:Net(hidden_channels=3)"
    assert find_model(fixed).code == find_model(nets.Net).code


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nets:Nett", "model must be an attribute of 'nets', got 'Nett'; did you mean 'Net'?"),
        ("no_such_nets:Net", "got 'no_such_nets:Net': no 'no_such_nets'"),
        ("nets:NOT_A_MODEL", "got 'nets:NOT_A_MODEL', a int"),
        ("collections:Counter", "got 'collections:Counter', another class"),
        ("nets:", "model must be a name or package.module:Class, got 'nets:'"),
        ("gfgn-pairs", "or package.module:Class, got 'gfgn-pairs'; did you mean 'gfgn-pair'?"),
        ("nets:OfData", "forward of OfData must take (x, edge_index), (x, edge_index, edge_weight) or (x, graph)"),
    ],
)
def test_errors_of_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"got") as error:
        find_model(name)
    assert message in str(error.value)


def test_lazy_parameters_are_refused() -> None:
    class Lazy(nets.Net):
        def __init__(self, in_channels: int, out_channels: int) -> None:
            super().__init__(in_channels, out_channels)
            self.lazy = nn.LazyLinear(3)

    with pytest.raises(ValueError, match=r"parameters of known sizes, got lazy ones"):
        find_model(Lazy).build(5, 3)


def test_entry_points_are_models(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("tutorial-net", "nets:Net", custom.GROUP)
    found: Any = lambda group: [point] if group == custom.GROUP else []  # noqa: E731
    monkeypatch.setattr(custom.importlib.metadata, "entry_points", found)
    custom.entry_points.cache_clear()
    try:
        assert find_model("tutorial-net") is find_model("nets:Net")
        with pytest.raises(ValueError, match=r"did you mean 'tutorial-net'\?"):
            find_model("tutorial-nets")
    finally:
        custom.entry_points.cache_clear()


def test_forward_arguments_go_by_names() -> None:
    assert forward_arguments(nets.Net) == ("edge_index",)
    assert forward_arguments(nets.Normalized) == ("edge_index", "edge_weight")
    assert forward_arguments(nets.Gated) == ("graph",)
    assert forward_arguments(nets.Gated(3, 2, 0.5)) == ("graph",)
