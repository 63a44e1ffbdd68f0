"""Datasets: the registry of named ones, splits and generators."""

from gfgn.data.dataset import Dataset
from gfgn.data.dimensions import dimensions
from gfgn.data.registry import DATASETS, load
from gfgn.data.splits import Split, random_splits

__all__ = ["DATASETS", "Dataset", "Split", "dimensions", "load", "random_splits"]
