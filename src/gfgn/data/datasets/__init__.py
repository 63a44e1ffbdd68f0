"""Named datasets: the registry, downloads, loaders of raw files, and the cache."""

from gfgn.data.datasets.download import ChecksumError
from gfgn.data.datasets.registry import DATASETS, Entry, Statistics, cache_dir, load

__all__ = ["DATASETS", "ChecksumError", "Entry", "Statistics", "cache_dir", "load"]
