"""Experiments: comparing models on a dataset, and reading the gates they learn."""

from gfgn.data.diagnosis import smoothness
from gfgn.experiments.compare import Comparison, compare
from gfgn.experiments.gates import gates_by_dimension
from gfgn.experiments.record import DatasetRecord, Protocol, Row, identify
from gfgn.experiments.store import Store, StoreError

__all__ = [
    "Comparison",
    "DatasetRecord",
    "Protocol",
    "Row",
    "Store",
    "StoreError",
    "compare",
    "gates_by_dimension",
    "identify",
    "smoothness",
]
