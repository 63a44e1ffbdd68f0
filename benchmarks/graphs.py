"""Graphs for the benchmarks: two real structures read from `GFGN_DATA`, and random graphs of any size and skew."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def _data(path: str) -> Path:
    root = os.environ.get("GFGN_DATA")
    if root is None:
        raise SystemExit("GFGN_DATA must name the folder with the benchmark datasets")
    return Path(root) / path


def _undirected(source: np.ndarray, target: np.ndarray, num_nodes: int) -> Tensor:
    """Both directions, without self-loops and duplicates, sorted by source as in PyG."""
    key = np.concatenate([source.astype(np.int64) * num_nodes + target, target.astype(np.int64) * num_nodes + source])
    key = np.unique(key)
    source, target = key // num_nodes, key % num_nodes
    keep = source != target
    return torch.from_numpy(np.stack([source[keep], target[keep]]))


def blogcatalog() -> tuple[Tensor, int]:
    """BlogCatalog: 5,196 nodes, 343,486 directed edges, mean degree 66."""
    edges = np.loadtxt(_data("blogcatalog/raw/edgelist.txt"), dtype=np.int64)
    return _undirected(edges[:, 0], edges[:, 1], 5196), 5196


def arxiv() -> tuple[Tensor, int]:
    """The structure of ogbn-arxiv, symmetrized: 169,343 nodes, 2.3 million directed edges, a hub of over 13,000."""
    with gzip.open(_data("ogbn_arxiv_structure/raw/edge.csv.gz"), "rt") as file:
        edges = np.loadtxt(file, dtype=np.int64, delimiter=",")
    return _undirected(edges[:, 0], edges[:, 1], 169_343), 169_343


def even(num_nodes: int, num_edges: int, device: str = "cpu", seed: int = 0) -> tuple[Tensor, int]:
    """A random directed graph in which every node has the same in-degree, up to rounding."""
    generator = torch.Generator(device).manual_seed(seed)
    target = torch.arange(num_edges, device=device) % num_nodes
    source = torch.randint(num_nodes, (num_edges,), device=device, generator=generator)
    return torch.stack([source, target]), num_nodes


def skewed(num_nodes: int, num_edges: int, exponent: float, seed: int = 0) -> tuple[Tensor, int]:
    """An undirected random graph with power-law degrees: exponent 0 is uniform, 1 is very skewed."""
    generator = torch.Generator().manual_seed(seed)
    chance = torch.arange(1, num_nodes + 1, dtype=torch.float64).pow(-exponent)
    chance = (chance / chance.sum()).cumsum(0)
    ends = torch.searchsorted(chance, torch.rand(2, num_edges // 2, dtype=torch.float64, generator=generator))
    shuffle = torch.randperm(num_nodes, generator=generator)
    source, target = shuffle[ends.clamp(max=num_nodes - 1)]
    return torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1), num_nodes
