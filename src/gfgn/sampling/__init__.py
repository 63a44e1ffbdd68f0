"""Samplers of graphs: neighborhoods of nodes and subgraphs."""

from gfgn.sampling.loader import NeighborLoader
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.sampling.subgraphs import EdgeSampler, NodeSampler, WalkSampler

__all__ = ["EdgeSampler", "NeighborLoader", "NeighborSampler", "NodeSampler", "WalkSampler"]
