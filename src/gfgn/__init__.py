"""gfgn: Graph Feature Gating Networks on PyTorch and PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["GFGN", "GFGNConv", "Graph", "__version__"]

if TYPE_CHECKING:
    from gfgn.graph import Graph
    from gfgn.nn import GFGN, GFGNConv

_HOME = {"Graph": "gfgn.graph", "GFGN": "gfgn.nn", "GFGNConv": "gfgn.nn"}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used, so that `import gfgn` stays fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'gfgn' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
