"""Experiments: studies that a store keeps, grids and searches, comparisons of models, and the gates they learn."""

from gfgn.data.diagnosis import smoothness
from gfgn.experiments.compare import Comparison, Watcher, compare, read_comparisons
from gfgn.experiments.gates import gates_by_dimension
from gfgn.experiments.record import DatasetRecord, Row, identify
from gfgn.experiments.search import Choice, LogUniform, Uniform, random_search, sample, successive_halving
from gfgn.experiments.store import Store, StoreError
from gfgn.experiments.study import PAPER_GRID, Candidate, Selection, grid, make_replicas, run_study, select

__all__ = [
    "PAPER_GRID",
    "Candidate",
    "Choice",
    "Comparison",
    "DatasetRecord",
    "LogUniform",
    "Row",
    "Selection",
    "Store",
    "StoreError",
    "Uniform",
    "Watcher",
    "compare",
    "gates_by_dimension",
    "grid",
    "identify",
    "make_replicas",
    "random_search",
    "read_comparisons",
    "run_study",
    "sample",
    "select",
    "smoothness",
    "successive_halving",
]
