"""gfgn: Graph Feature Gating Networks on PyTorch and PyTorch Geometric."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gfgn.lazy import lazy_names

if TYPE_CHECKING:
    from gfgn import data, estimator, nn, ops, report, runs, sampling, train
    from gfgn.estimator import GFGNClassifier, GraphNodes
    from gfgn.graph import Graph
    from gfgn.nn import GFGN, GFGNConv

__version__ = "0.2.0"
__all__ = [
    "GFGN",
    "GFGNClassifier",
    "GFGNConv",
    "Graph",
    "GraphNodes",
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

_find = lazy_names(
    __name__,
    {"gfgn.graph": "Graph", "gfgn.nn": "GFGN GFGNConv", "gfgn.estimator": "GFGNClassifier GraphNodes"},
    deprecated={"Nodes": "GraphNodes"},
)


def __getattr__(name: str) -> Any:
    """Imports a public name or subpackage on first use, so that `import gfgn` does not import PyTorch."""
    return import_module(f"gfgn.{name}") if name in __all__ and name.islower() else _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
