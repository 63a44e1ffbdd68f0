"""The models by name: the three levels of GFGN, those of GFGN+, an MLP, and the baselines of `gfgn.nn.baselines`.

A model is a module that maps `(x, graph)` to logits. The dropout rate and λ may differ between the replicas of a batch:
then `Model.build` gets tensors, which layers keep as attributes, see `gfgn.train.batch`. Unless its paper says
otherwise, a model has two layers, 64 hidden units (for GFGN 8 heads of 8, as in the paper) and dropout on the input of
both layers. A network is imported when it is first built, so that the models can be listed without PyTorch.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Any

from gfgn.lazy import Lazy
from gfgn.nn.custom import Factory, custom_model, entry_points, import_factory, imported_factory, is_import_name
from gfgn.nn.entry import SIZES, Model, Parameter, hidden, layers

if TYPE_CHECKING:
    from gfgn.nn.model import GFGN
    from gfgn.nn.plus import GFGNPlus

__all__ = ["HIDDEN", "MODELS", "Model", "Parameter", "find_model", "known_model"]

HIDDEN = 64
HEADS = 8
NEIGHBORS, DIRECTIONS = ("both", "once", "graph", "plane"), 4  # of Geom-GCN


def _gfgn(in_channels: int, out_channels: int, *, hidden: int, layers: int, activation: str, **options: Any) -> GFGN:
    """`GFGN` by the names of the registry's options; `validate` is off because a `Dataset` has finite features."""
    from gfgn.nn.model import GFGN

    return GFGN(in_channels, hidden, layers, out_channels, act=activation, validate=False, **options)


GFGN_PARAMETERS = {
    "hidden": hidden(HIDDEN),
    "layers": layers(),
    "heads": Parameter(HEADS, (1, 2, 4, 8, 16), "gating heads that share the hidden units"),
    "activation": Parameter("relu", ("relu", "elu"), "between the layers; none for linear ones"),
    "gate_bias": Parameter(None, (None, -2.0, 0.0, 2.0), "initial value of a learned bias of the gates"),
    "gate_form": Parameter(
        "dimension", ("dimension", "scalar", "constant"), "a gate per dimension, one for all, or λ/2"
    ),
}
GFGN_MODELS = {
    f"gfgn-{level}": Model(
        partial(_gfgn, level=level),
        "Jin et al., Graph Feature Gating Networks, CIKM 2021",
        GFGN_PARAMETERS,
        gated=True,
        level=level,
    )
    for level in ("graph", "neighbor", "pair")
}


def _gfgn_plus(in_channels: int, out_channels: int, *, hidden: int, layers: int, **options: Any) -> GFGNPlus:
    """`GFGNPlus` by the names of the registry's options."""
    from gfgn.nn.plus import GFGNPlus

    return GFGNPlus(in_channels, hidden, layers, out_channels, validate=False, **options)


PLUS_PARAMETERS = {
    "level": Parameter("neighbor", ("graph", "neighbor", "pair"), "one gate per graph, per node or per edge"),
    "hidden": hidden(HIDDEN),
    "layers": layers(1, (1, 2, 3, 4, 5, 8, 12, 15)),
    "heads": Parameter(
        None, (None, 1, 2, 4, 8, 16), "gating heads that share the hidden units; by default 1 up to two layers, else 8"
    ),
    "embed": Parameter(
        None, (None, True, False), "whether a linear map of the features comes first; by default up to two layers"
    ),
    "hops": Parameter(None, (None, 0, 1, 2, 3), "hops of a layer, K; by default 2 in a single layer, else 1"),
    "own": Parameter(
        None, (None, "gated", "added", "none"), "map of a node's own features: with a gate (default), added, or none"
    ),
    "gate_range": Parameter(
        None,
        (None, "free", "mix", "hops"),
        "any weights (default at level graph), gates that share 1, or per hop",
    ),
    "gate_form": Parameter(
        "dimension", ("dimension", "scalar", "constant"), "a gate per dimension, one for all, or none"
    ),
    "gate_bias": Parameter(None, (None, -2.0, 0.0, 2.0), "initial value of a learned bias of the gates"),
    "self_loops": Parameter(False, (False, True), "whether nodes are their own neighbors"),
    "normalization": Parameter("symmetric", ("symmetric", "row"), "of the adjacency"),
    "head": Parameter("linear", ("linear", "conv", "propagated"), "linear map, last layer, or a propagated map"),
    "steps": Parameter(10, (5, 10, 20), "steps of the propagated head"),
    "alpha": Parameter(0.1, (0.1, 0.2, 0.5, 0.9), "α of its initial weights"),
    "residual": Parameter(False, (False, True), "whether layers add their input"),
    "norm": Parameter(
        "auto",
        ("auto", "none", "layer", "batch", "length"),
        "normalization of hidden units; auto: batch above 2 layers",
    ),
    "jk": Parameter("none", ("none", "cat", "max"), "how a head other than conv joins all layers; none for the last"),
}


# Shallow, or deep with the hyperparameters that depth needs: see the table of trials in results/plus-trials.
PLUS_VARIANTS = (
    {"layers": 1},
    {"layers": 8, "lr": 0.01, "weight_decay": 0.0, "dropout": 0.2},
)
PLUS_MODELS = {
    name: Model(
        _gfgn_plus if level is None else partial(_gfgn_plus, level=level),
        "gfgn, docs/models.md",
        {option: parameter for option, parameter in PLUS_PARAMETERS.items() if level is None or option != "level"},
        gated=True,
        level=level or "neighbor",
        variants=PLUS_VARIANTS,
    )
    for name, level in {"gfgn-plus": None, "gfgn-plus-graph": "graph", "gfgn-plus-pair": "pair"}.items()
}


def _baseline(module: str, name: str) -> Lazy:
    return Lazy(f"gfgn.nn.baselines.{module}", name)


STEPS = Parameter(10, (5, 10, 20), "steps of propagation, K")
HEAD_PARAMETERS = {
    "hidden": Parameter(8, (8, 16, 32), "hidden units per head"),
    "layers": layers(),
    "heads": Parameter(8, (1, 4, 8), "heads of the hidden layers"),
    "output_heads": Parameter(1, (1, 8), "heads of the last layer, averaged"),
}
MODELS: dict[str, Model] = {
    "mlp": Model(Lazy("gfgn.nn.mlp", "MLP"), "Rumelhart et al., Nature 1986", SIZES),
    **GFGN_MODELS,
    **PLUS_MODELS,
    "gcn": Model(
        _baseline("gcn", "GCN"),
        "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
        SIZES,
    ),
    "gat": Model(_baseline("gat", "GAT"), "Veličković et al., Graph Attention Networks, ICLR 2018", HEAD_PARAMETERS),
    "sgc": Model(
        _baseline("sgc", "SGC"),
        "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
        {"hops": Parameter(2, (1, 2, 3, 4), "number of propagation steps, K")},
    ),
    "arma": Model(
        _baseline("arma", "ARMA"),
        "Bianchi et al., Graph Neural Networks with Convolutional ARMA Filters, 2019",
        {
            **SIZES,
            "stacks": Parameter(2, (1, 2, 3), "parallel stacks of filters, K"),
            "depth": Parameter(1, (1, 2, 3), "depth of the recurrence, T"),
        },
    ),
    "ggnn": Model(
        _baseline("ggnn", "GGNN"),
        "Li et al., Gated Graph Sequence Neural Networks, ICLR 2016",
        {"hidden": hidden(), "steps": Parameter(2, (1, 2, 3, 5), "steps of the gated unit, T")},
    ),
    "appnp": Model(
        _baseline("appnp", "APPNP"),
        "Klicpera et al., Predict then Propagate: Graph Neural Networks meet Personalized PageRank, ICLR 2019",
        {
            **SIZES,
            "steps": STEPS,
            "alpha": Parameter(0.1, (0.05, 0.1, 0.2, 0.5), "fraction of its own prediction that a node keeps, α"),
        },
    ),
    "geom-gcn": Model(
        _baseline("geom_gcn", "GeomGCN"),
        "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020",
        {
            "hidden": Parameter(16, (16, 32, 48), "hidden units of a virtual node"),
            "layers": layers(),
            "merge": Parameter("cat", ("cat", "sum"), "how hidden layers join virtual nodes"),
            "neighbors": Parameter("both", NEIGHBORS, "of the graph, of the plane, or both"),
            "directions": Parameter(DIRECTIONS, (1, DIRECTIONS), "number of directions that bins distinguish"),
            "rescale": Parameter(True, (True, False), "whether weights are learned at the scale of other networks"),
        },
        inductive=False,
    ),
    "graphsage": Model(
        _baseline("graphsage", "GraphSAGE"),
        "Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        {**SIZES, "normalize": Parameter(True, (True, False), "whether hidden vectors are scaled to length 1")},
    ),
    "vr-gcn": Model(
        _baseline("vr_gcn", "VRGCN"),
        "Chen et al., Stochastic Training of Graph Convolutional Networks with Variance Reduction, ICML 2018",
        {
            "hidden": hidden(),
            "layers": layers(values=(2, 3)),
            "concat": Parameter(
                False, (False, True), "own values concatenated with the neighbors' mean, and LayerNorm"
            ),
        },
        batchable=False,
    ),
    "gaan": Model(
        _baseline("gaan", "GaAN"),
        "Zhang et al., GaAN: Gated Attention Networks for Learning on Large and Spatiotemporal Graphs, UAI 2018",
        {
            **SIZES,
            "heads": Parameter(8, (1, 4, 8), "attention heads"),
            "key": Parameter(24, (8, 16, 24), "width of the queries and keys of a head"),
            "value": Parameter(32, (8, 16, 32), "width of the values of a head"),
            "pool": Parameter(64, (16, 64), "width of the neighbors' maximum in the gate"),
        },
    ),
    "geniepath": Model(
        _baseline("geniepath", "GeniePath"),
        "Liu et al., GeniePath: Graph Neural Networks with Adaptive Receptive Paths, AAAI 2019",
        {**SIZES, "lazy": Parameter(False, (False, True), "whether all breadth layers come before the depth layers")},
    ),
    "graphsaint": Model(
        _baseline("graphsaint", "GraphSAINT"),
        "Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020",
        {**SIZES, "concat": Parameter(False, (False, True), "own and neighbor values normalized and concatenated")},
        batchable=False,
    ),
    "gcnii": Model(
        _baseline("gcnii", "GCNII"),
        "Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
        {
            "hidden": hidden(),
            "layers": layers(64, (2, 4, 8, 16, 32, 64)),
            "alpha": Parameter(0.2, (0.1, 0.2, 0.5), "fraction of the initial features, α"),
            "theta": Parameter(0.5, (0.5, 1.0, 1.5), "strength of the weight matrices, λ in its paper"),
        },
    ),
    "gprgnn": Model(
        _baseline("gprgnn", "GPRGNN"),
        "Chien et al., Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021",
        {**SIZES, "steps": STEPS, "alpha": Parameter(0.1, (0.1, 0.2, 0.5, 0.9), "α of the initial weights")},
    ),
    "h2gcn": Model(
        _baseline("h2gcn", "H2GCN"),
        "Zhu et al., Beyond Homophily in Graph Neural Networks: Current Limitations and Effective Designs, "
        "NeurIPS 2020",
        {"hidden": hidden(), "rounds": Parameter(2, (1, 2), "rounds of aggregation, K")},
    ),
    "acm-gcn": Model(
        _baseline("acm_gcn", "ACMGCN"),
        "Luan et al., Revisiting Heterophily For Graph Neural Networks, NeurIPS 2022",
        SIZES,
    ),
    "linkx": Model(
        _baseline("linkx", "LINKX"),
        "Lim et al., Large Scale Learning on Non-Homophilous Graphs: New Benchmarks and Strong Simple Methods, "
        "NeurIPS 2021",
        {"hidden": hidden(), "layers": Parameter(2, (1, 2, 3), "layers of the last MLP")},
        inductive=False,
        needs=("num_nodes",),
    ),
    "resgated": Model(
        _baseline("resgated", "ResGated"), "Bresson and Laurent, Residual Gated Graph ConvNets, 2017", SIZES
    ),
    "gatv2": Model(
        _baseline("gatv2", "GATv2"),
        "Brody et al., How Attentive are Graph Attention Networks?, ICLR 2022",
        HEAD_PARAMETERS,
    ),
}


def find_model(model: str | Factory, also: tuple[str, ...] = ()) -> Model:
    """Returns a model: of the registry by its name, or a custom one.

    Args:
        model: A name of `MODELS`, `package.module:Class`, the name of an entry point of the group `gfgn.models`, or a
            class or function that returns a module; see `gfgn.nn.custom`.
        also: Further names for the message of an error.
    """
    if not isinstance(model, str):
        return custom_model(model)
    if model in MODELS:
        return MODELS[model]
    if is_import_name(model):
        return custom_model(import_factory(model))
    if model in entry_points():
        return custom_model(entry_points()[model].load())
    known = (*MODELS, *entry_points(), *also)
    close = difflib.get_close_matches(model, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"model must be one of {', '.join(known)} or package.module:Class, got {model!r}{hint}")


def known_model(name: str) -> Model | None:
    """The model of a name that stands in a file; `None` if it is not known here.

    A custom model is known once `find_model` has imported it in this process: a store that somebody sends must
    not make gfgn import code.
    """
    if is_import_name(name):
        factory = imported_factory(name)
        return None if factory is None else custom_model(factory)
    return find_model(name) if name in MODELS or name in entry_points() else None
