"""Experiments: studies that a store keeps, grids and searches, comparisons of models, and the gates they learn."""

from gfgn.data.diagnosis import smoothness
from gfgn.runs.comparison import Comparison, ProgressCallback, compare, read_comparisons
from gfgn.runs.gates import gates_by_dimension
from gfgn.runs.plan import PAPER_GRID, Candidate, Selection, grid, make_replicas, run_study, select
from gfgn.runs.record import DatasetRecord, Row, identify
from gfgn.runs.search import Choice, LogUniform, Uniform, random_search, sample, successive_halving
from gfgn.runs.store import Store, StoreError

__all__ = [
    "PAPER_GRID",
    "Candidate",
    "Choice",
    "Comparison",
    "DatasetRecord",
    "LogUniform",
    "ProgressCallback",
    "Row",
    "Selection",
    "Store",
    "StoreError",
    "Uniform",
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
