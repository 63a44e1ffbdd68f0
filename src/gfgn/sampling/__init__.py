"""Samplers of graphs, compiled with Numba."""

from gfgn.sampling.neighbors import NeighborSampler

__all__ = ["NeighborSampler"]
