"""The experiment engine: stores of runs, plans that tune and then train final seeds, searches, comparisons, studies."""

import warnings

from gfgn.data.diagnosis import smoothness
from gfgn.runs.advice import Advice, advise
from gfgn.runs.budget import Budget, plan_in_time
from gfgn.runs.comparison import Comparison, compare, read_comparisons
from gfgn.runs.engine import CallbackList, ProgressCallback, random_search, successive_halving, train_missing
from gfgn.runs.explanation import Explanation, explain
from gfgn.runs.gates import GateReader, gates_by_dimension
from gfgn.runs.grid import PAPER_GRID, SPACE, Choice, LogUniform, Uniform, grid, make_replicas, sample
from gfgn.runs.plan import Plan, Result, run_plans
from gfgn.runs.record import DatasetRecord, RunRecord, identify
from gfgn.runs.results import Gap, Results
from gfgn.runs.selection import Candidate, Selection, select
from gfgn.runs.store import Store, StoreError
from gfgn.runs.table import read_runs, write_runs
from gfgn.runs.tracking import MLflowTracker, TensorBoardTracker, TrackedRun, Tracker, WandbTracker

__all__ = [
    "PAPER_GRID",
    "SPACE",
    "Advice",
    "Budget",
    "CallbackList",
    "Candidate",
    "Choice",
    "Comparison",
    "DatasetRecord",
    "Explanation",
    "Gap",
    "GateReader",
    "LogUniform",
    "MLflowTracker",
    "Plan",
    "ProgressCallback",
    "Result",
    "Results",
    "RunRecord",
    "Selection",
    "Store",
    "StoreError",
    "TensorBoardTracker",
    "TrackedRun",
    "Tracker",
    "Uniform",
    "WandbTracker",
    "advise",
    "compare",
    "explain",
    "gates_by_dimension",
    "grid",
    "identify",
    "make_replicas",
    "plan_in_time",
    "random_search",
    "read_comparisons",
    "read_runs",
    "run_plans",
    "sample",
    "select",
    "smoothness",
    "successive_halving",
    "train_missing",
    "write_runs",
]


def __getattr__(name: str) -> type[RunRecord]:
    if name != "Row":
        raise AttributeError(f"module 'gfgn.runs' has no attribute {name!r}")
    warnings.warn("gfgn.runs.Row is called RunRecord", DeprecationWarning, stacklevel=2)
    return RunRecord
