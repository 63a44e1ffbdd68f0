"""Layers and models: `GFGNConv`, the network `GFGN`, `GateExplainer`, and the registry of all models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gfgn.nn.conv import GFGNConv
from gfgn.nn.explain import GateExplainer
from gfgn.nn.model import GFGN

if TYPE_CHECKING:
    from gfgn.nn.registry import MODELS, Model, find_model

__all__ = ["GFGN", "MODELS", "GFGNConv", "GateExplainer", "Model", "find_model"]


def __getattr__(name: str) -> Any:
    """Imports the baselines when the registry is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'gfgn.nn' has no attribute {name!r}")
    from gfgn.nn import registry

    return getattr(registry, name)
