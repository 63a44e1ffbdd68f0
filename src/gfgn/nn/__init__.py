"""Layers and networks of GFGN and GFGN+, `GateExplainer`, and the registry of all models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gfgn.lazy import lazy_names
from gfgn.nn.registry import MODELS, Model, find_model

if TYPE_CHECKING:
    from gfgn.nn.conv import GFGNConv
    from gfgn.nn.explain import GateExplainer
    from gfgn.nn.model import GFGN
    from gfgn.nn.plus import GFGNPlus, GFGNPlusConv

__all__ = ["GFGN", "MODELS", "GFGNConv", "GFGNPlus", "GFGNPlusConv", "GateExplainer", "Model", "find_model"]

__getattr__ = lazy_names(
    __name__,
    {
        "gfgn.nn.conv": "GFGNConv",
        "gfgn.nn.explain": "GateExplainer",
        "gfgn.nn.model": "GFGN",
        "gfgn.nn.plus": "GFGNPlus GFGNPlusConv",
    },
)
