"""The registry: names, properties and options of the models."""

import pytest
from nn.baselines.tiny import CLASSES, FEATURES, features, graph

from gfgn.nn.registry import MODELS, find_model

PAPER = "gcn gat sgc arma ggnn appnp geom-gcn graphsage vr-gcn gaan geniepath graphsaint"
LATER = "gcnii gprgnn h2gcn acm-gcn linkx resgated gatv2"


def test_names_and_properties() -> None:
    gated = ["gfgn-graph", "gfgn-neighbor", "gfgn-pair", "gfgn-plus", "gfgn-plus-graph", "gfgn-plus-pair"]
    assert list(MODELS) == ["mlp", *gated, *PAPER.split(), *LATER.split()]
    assert [name for name, model in MODELS.items() if model.gated] == gated
    assert {name for name, model in MODELS.items() if not model.inductive} == {"geom-gcn", "linkx"}
    assert {name for name, model in MODELS.items() if not model.batchable} == {"vr-gcn", "graphsaint"}
    for name, model in MODELS.items():
        assert model.reference, name
        assert all(parameter.meaning for parameter in model.parameters.values()), name
    with pytest.raises(ValueError, match=r"must be one of mlp, .* got 'gfgn-pear'; did you mean 'gfgn-pair'\?"):
        find_model("gfgn-pear")


def test_options_of_gfgn() -> None:
    entry = MODELS["gfgn-neighbor"]
    settings = entry.settings("gfgn-neighbor", (("hidden", 30), ("heads", 5), ("activation", "none")), {})
    net = entry.build(FEATURES, CLASSES, 0.5, 0.7, settings)
    assert (net.hidden_channels, net.act, net.convs[0].heads, net.convs[0].lam) == (30, None, 5, 0.7)
    assert net(features().float(), graph()).shape == (12, CLASSES)
    with pytest.raises(ValueError, match="heads must divide hidden_channels, got heads=8, hidden_channels=30"):
        entry.build(FEATURES, CLASSES, 0.5, 1.0, {"hidden": 30})


def test_bad_options_are_named() -> None:
    gcn = MODELS["gcn"]
    with pytest.raises(ValueError, match="settings must be among hidden, layers, got 'depth'"):
        gcn.build(4, 2, settings={"depth": 3})
    with pytest.raises(ValueError, match="layers must be a positive integer, got 0"):
        gcn.build(4, 2, settings={"layers": 0})
    with pytest.raises(ValueError, match="settings must include num_nodes, got hidden"):
        MODELS["linkx"].build(4, 2, settings={"hidden": 3})
    with pytest.raises(ValueError, match="options of gcn must be among hidden, layers, features, got 'depth'"):
        gcn.settings("gcn", (("depth", 3),), {})
    with pytest.raises(ValueError, match="option 'layers' of gcn must be of type int, got 'two'"):
        gcn.settings("gcn", (("layers", "two"),), {})
