"""Samplers of graphs, compiled with Numba: neighborhoods of nodes and subgraphs."""

from gfgn.sampling.neighbors import NeighborSampler
from gfgn.sampling.subgraphs import EdgeSampler, NodeSampler, WalkSampler

__all__ = ["EdgeSampler", "NeighborSampler", "NodeSampler", "WalkSampler"]
