"""The models by name: the three levels of GFGN, an MLP, and the baselines of `gfgn.nn.baselines`.

A model is a module that maps `(x, graph)` to logits. The dropout rate and λ may differ between the replicas of a batch:
then `Model.build` gets tensors, which layers keep as attributes, see `gfgn.train.batch`. Unless its paper says
otherwise, a model has two layers, 64 hidden units (for GFGN 8 heads of 8, as in the paper) and dropout on the input of
both layers.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import Any

from gfgn.nn import mlp
from gfgn.nn.baselines import (
    acm_gcn,
    appnp,
    arma,
    gaan,
    gat,
    gatv2,
    gcn,
    gcnii,
    geniepath,
    geom_gcn,
    ggnn,
    gprgnn,
    graphsage,
    graphsaint,
    h2gcn,
    linkx,
    resgated,
    sgc,
    vr_gcn,
)
from gfgn.nn.entry import Model, Parameter, hidden, layers
from gfgn.nn.model import GFGN
from gfgn.nn.own import Factory, entry_points, import_factory, imported_factory, is_import_name, own_model

__all__ = ["HIDDEN", "MODELS", "Model", "Parameter", "find_model", "known_model"]

HIDDEN = 64
HEADS = 8


def _gfgn(in_channels: int, out_channels: int, *, hidden: int, layers: int, activation: str, **options: Any) -> GFGN:
    """`GFGN` by the names of the registry's options; `validate` is off because a `Dataset` has finite features."""
    return GFGN(in_channels, hidden, layers, out_channels, act=activation, validate=False, **options)


GFGN_PARAMETERS = {
    "hidden": hidden(HIDDEN),
    "layers": layers(),
    "heads": Parameter(HEADS, (1, 2, 4, 8, 16), "gating heads that share the hidden units"),
    "activation": Parameter("relu", ("relu", "elu"), "between the layers; none for linear ones"),
    "gate_bias": Parameter(None, (None, -2.0, 0.0, 2.0), "initial value of a learned bias of the gates"),
}
GFGN_MODELS = {
    f"gfgn-{level}": Model(
        partial(_gfgn, level=level),
        "Jin et al., Graph Feature Gating Networks, CIKM 2021",
        GFGN_PARAMETERS,
        gated=True,
    )
    for level in ("graph", "neighbor", "pair")
}

MODELS: dict[str, Model] = {
    "mlp": mlp.ENTRY,
    **GFGN_MODELS,
    "gcn": gcn.ENTRY,
    "gat": gat.ENTRY,
    "sgc": sgc.ENTRY,
    "arma": arma.ENTRY,
    "ggnn": ggnn.ENTRY,
    "appnp": appnp.ENTRY,
    "geom-gcn": geom_gcn.ENTRY,
    "graphsage": graphsage.ENTRY,
    "vr-gcn": vr_gcn.ENTRY,
    "gaan": gaan.ENTRY,
    "geniepath": geniepath.ENTRY,
    "graphsaint": graphsaint.ENTRY,
    "gcnii": gcnii.ENTRY,
    "gprgnn": gprgnn.ENTRY,
    "h2gcn": h2gcn.ENTRY,
    "acm-gcn": acm_gcn.ENTRY,
    "linkx": linkx.ENTRY,
    "resgated": resgated.ENTRY,
    "gatv2": gatv2.ENTRY,
}


def find_model(model: str | Factory, also: tuple[str, ...] = ()) -> Model:
    """Returns a model: of the registry by its name, or one's own.

    Args:
        model: A name of `MODELS`, `package.module:Class`, the name of an entry point of the group `gfgn.models`, or a
            class or function that returns a module; see `gfgn.nn.own`.
        also: Further names for the message of an error.
    """
    if not isinstance(model, str):
        return own_model(model)
    if model in MODELS:
        return MODELS[model]
    if is_import_name(model):
        return own_model(import_factory(model))
    if model in entry_points():
        return own_model(entry_points()[model].load())
    known = (*MODELS, *entry_points(), *also)
    close = difflib.get_close_matches(model, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"model must be one of {', '.join(known)} or package.module:Class, got {model!r}{hint}")


def known_model(name: str) -> Model | None:
    """The model of a name that stands in a file; `None` if it is not known here.

    A model of one's own is known once `find_model` has imported it in this process: a store that somebody sends must
    not make gfgn import code.
    """
    if is_import_name(name):
        factory = imported_factory(name)
        return None if factory is None else own_model(factory)
    return find_model(name) if name in MODELS or name in entry_points() else None
