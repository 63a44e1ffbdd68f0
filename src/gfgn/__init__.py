"""gfgn: Graph Feature Gating Networks on PyTorch and PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gfgn import data, estimator, nn, ops, report, runs, sampling, train
    from gfgn.estimator import GFGNClassifier, Nodes
    from gfgn.graph import Graph
    from gfgn.nn import GFGN, GFGNConv

__version__ = "0.2.0"
__all__ = [
    "GFGN",
    "GFGNClassifier",
    "GFGNConv",
    "Graph",
    "Nodes",
    "__version__",
    "data",
    "estimator",
    "nn",
    "ops",
    "report",
    "runs",
    "sampling",
    "train",
]

_MODULE_OF = {"Graph": "gfgn.graph", "GFGN": "gfgn.nn", "GFGNConv": "gfgn.nn"}
_MODULE_OF |= {"GFGNClassifier": "gfgn.estimator", "Nodes": "gfgn.estimator"}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use, so that `import gfgn` does not import PyTorch."""
    from importlib import import_module

    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in __all__:
        return import_module(f"gfgn.{name}")
    raise AttributeError(f"module 'gfgn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
