"""Datasets: the registry of named ones, readers of a user's own files, splits and generators."""

from gfgn.data.dataset import Dataset
from gfgn.data.datasets.registry import DATASETS, load
from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.data.generators.dimensions import dimensions
from gfgn.data.io.read import DataError, Reading, describe_reading, read, read_with_notes
from gfgn.data.splits import Split, random_splits

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "Reading",
    "Split",
    "contextual_sbm",
    "describe_reading",
    "dimensions",
    "load",
    "random_splits",
    "read",
    "read_with_notes",
]
