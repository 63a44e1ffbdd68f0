"""Data for node classification: named datasets, a user's own files, generators, splits and diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gfgn.data.messages import DataError
from gfgn.data.named.catalog import DATASETS
from gfgn.lazy import lazy_names

if TYPE_CHECKING:
    from gfgn.data.assemble import Reading, describe_reading
    from gfgn.data.dataset import NodeDataset
    from gfgn.data.diagnosis import (
        adjusted_homophily,
        degree_profile,
        describe,
        edge_homophily,
        node_homophily,
        smoothness,
    )
    from gfgn.data.generators import (
        add_feature_noise,
        add_random_edges,
        contextual_sbm,
        dimensions,
        remove_random_edges,
    )
    from gfgn.data.named.registry import load
    from gfgn.data.on_disk import OnDiskGraph, pack
    from gfgn.data.packing import pack_tables
    from gfgn.data.raw import ReadOptions
    from gfgn.data.reading import read, read_with_notes
    from gfgn.data.splits import Split, random_splits

__all__ = [
    "DATASETS",
    "DataError",
    "NodeDataset",
    "OnDiskGraph",
    "ReadOptions",
    "Reading",
    "Split",
    "add_feature_noise",
    "add_random_edges",
    "adjusted_homophily",
    "contextual_sbm",
    "degree_profile",
    "describe",
    "describe_reading",
    "dimensions",
    "edge_homophily",
    "load",
    "node_homophily",
    "pack",
    "pack_tables",
    "random_splits",
    "read",
    "read_with_notes",
    "remove_random_edges",
    "smoothness",
]

__getattr__ = lazy_names(
    __name__,
    {
        "gfgn.data.assemble": "Reading describe_reading",
        "gfgn.data.dataset": "NodeDataset",
        "gfgn.data.diagnosis": "adjusted_homophily degree_profile describe edge_homophily node_homophily smoothness",
        "gfgn.data.generators": "add_feature_noise add_random_edges contextual_sbm dimensions remove_random_edges",
        "gfgn.data.named.registry": "load",
        "gfgn.data.on_disk": "OnDiskGraph pack",
        "gfgn.data.packing": "pack_tables",
        "gfgn.data.raw": "ReadOptions",
        "gfgn.data.reading": "read read_with_notes",
        "gfgn.data.splits": "Split random_splits",
    },
    deprecated={"Dataset": "NodeDataset", "GraphStore": "OnDiskGraph"},
)
