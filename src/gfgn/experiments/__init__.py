"""Experiments: comparing models on a dataset, and reading the gates they learn."""

from gfgn.data.diagnosis import smoothness
from gfgn.experiments.compare import Comparison, compare
from gfgn.experiments.gates import gates_by_dimension

__all__ = ["Comparison", "compare", "gates_by_dimension", "smoothness"]
