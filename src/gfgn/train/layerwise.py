"""`infer_layerwise`: the exact output of a `GFGN` on a graph larger than the device, one layer after the other."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.graph import Graph
from gfgn.nn.conv import GFGNConv, norm_dtype
from gfgn.nn.model import GFGN
from gfgn.ops.features import take_rows
from gfgn.sampling.neighbors import NeighborSampler

Features = Tensor | NDArray[Any]
ROWS = 2**16  # that are summed at a time


@torch.no_grad()
def infer_layerwise(
    model: GFGN,
    x: Features,
    graph: Graph | NeighborSampler,
    *,
    edges_per_chunk: int = 2**20,
    scratch: Path | str | None = None,
) -> Tensor:
    """Computes `model(x, graph)` in evaluation mode, on the CPU: every layer for all nodes, chunk by chunk of targets.

    The model's device holds the parameters and one chunk: its targets, their neighbors and the edges between them. The
    representations of all nodes in two layers are in main memory, or in files. A normalization that may read all nodes
    (PyG's `LayerNorm`, `PairNorm`, …) runs on the CPU and needs one more of them. Every gate is exact: the one of the
    graph level reads the mean over all nodes.

    Args:
        model: The model; its mode does not matter.
        x: `[N, in_channels]`, dense or sparse CSR, or an array such as a memory map.
        graph: One graph, or a sampler of it, whose fan-outs do not matter.
        edges_per_chunk: Edges of a chunk at most, and nodes; a node with more edges is a chunk of its own.
        scratch: Folder of files for the representations; they are removed when they are no longer used.
    """
    if isinstance(graph, Graph) and (graph.batch is not None or graph.num_targets is not None):
        raise ValueError(f"graph must be one graph without batch and not bipartite, got {graph}")
    if edges_per_chunk < 1:
        raise ValueError(f"edges_per_chunk must be 1 or larger, got {edges_per_chunk}")
    sampler = NeighborSampler.from_graph(graph, [-1]) if isinstance(graph, Graph) else graph.all_neighbors()
    if x.shape[0] != sampler.num_nodes:
        raise ValueError(f"x has {x.shape[0]} rows, but the graph has {sampler.num_nodes} nodes")
    training = model.training
    model.eval()
    try:
        return _run(model, x, sampler, edges_per_chunk, functools.partial(_empty, scratch))
    finally:
        model.train(training)


Allocate = Callable[[int, int, torch.dtype], Tensor]


def _run(model: GFGN, x: Features, sampler: NeighborSampler, limit: int, allocate: Allocate) -> Tensor:
    hidden: list[Tensor] = []
    for layer, conv in enumerate(model.convs):
        assert isinstance(conv, GFGNConv)
        x = _layer(model, layer, conv, x, sampler, limit, allocate)
        hidden = [*hidden, x] if model.jk is not None else []
    assert isinstance(x, Tensor)
    if model.lin is None:
        return x
    parameter = next(model.parameters())
    out = allocate(sampler.num_nodes, model.out_channels, parameter.dtype)
    for rows in _chunks(sampler.ptr, limit):
        parts = [part[rows].to(parameter.device) for part in hidden or [x]]
        joined = parts[0] if model.jk is None else model.jk(parts)
        out[rows] = model.lin(joined).cpu()
    return out


def _layer(
    model: GFGN, layer: int, conv: GFGNConv, x: Features, sampler: NeighborSampler, limit: int, allocate: Allocate
) -> Tensor:
    """One layer with what follows it: normalization, activation and the residual."""
    device, dtype = conv.gate.device, conv.gate.dtype
    nodes, width = sampler.num_nodes, conv.heads * conv.out_channels
    z = allocate(nodes, width, dtype)
    for rows in _chunks(sampler.ptr, limit):
        z[rows] = conv.transform(_take(x, rows).to(device, dtype)).cpu()
    pool = _pool(conv, z) if conv.level == "graph" else None
    norm = model.norms[layer] if layer < len(model.norms) else None
    whole = norm is not None and model.norm_takes_batch  # it may read all nodes
    out = allocate(nodes, width if conv.concat else conv.out_channels, dtype)
    for rows in _chunks(sampler.ptr, limit):
        node, block = _block(sampler, rows)
        h = conv.combine(z[node].to(device), block.to(device, norm_dtype(conv.gate)), pool)[0][: rows.stop - rows.start]
        out[rows] = (h if norm is None or whole else _activate(model, norm(h))).cpu()
    del z
    if norm is not None and whole:
        out.copy_(_activate(model, copy.deepcopy(norm).cpu()(out)))
    if model.residual and out.shape == x.shape and not (isinstance(x, Tensor) and x.layout != torch.strided):
        for rows in _chunks(sampler.ptr, limit):
            out[rows] += _take(x, rows)
    return out


def _activate(model: GFGN, h: Tensor) -> Tensor:
    return h if model.act is None else model.act(h)


def _pool(conv: GFGNConv, z: Tensor) -> Callable[[Tensor, Graph], Tensor]:
    """The pooled representation of all nodes."""
    if conv.pool == "max":
        pooled = z.amax(0, keepdim=True) if z.size(0) else z.new_zeros(1, z.size(1))
    else:
        pooled = torch.zeros(1, z.size(1), dtype=torch.float64)
        for part in z.split(ROWS):  # PyTorch would copy all of it to float64
            pooled += part.double().sum(0, keepdim=True)
        pooled /= max(z.size(0), 1) if conv.pool == "mean" else 1
    value = pooled.to(conv.gate)
    return lambda _, __: value


def _block(sampler: NeighborSampler, rows: slice) -> tuple[Tensor, Graph]:
    """Some targets and then their other neighbors, and the edges into the targets."""
    sample = sampler.sample(torch.arange(rows.start, rows.stop))
    return torch.from_numpy(sample.node), sampler.graph(sample)


def _chunks(ptr: NDArray[np.int64], limit: int) -> Iterator[slice]:
    """Ranges of nodes, each of at most `limit` edges and nodes, or of one node."""
    start, nodes = 0, ptr.size - 1
    while start < nodes:
        stop = int(np.searchsorted(ptr, ptr[start] + limit, side="right")) - 1
        stop = min(max(stop, start + 1), start + limit, nodes)
        yield slice(start, stop)
        start = stop


def _take(x: Features, rows: slice) -> Tensor:
    if isinstance(x, Tensor):
        return x[rows] if x.layout == torch.strided else take_rows(x, torch.arange(rows.start, rows.stop))
    return torch.from_numpy(np.array(x[rows]))


def _empty(scratch: Path | str | None, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Memory for one row per node, of a file without a name if there is a folder for it."""
    if scratch is None or rows * columns == 0:
        return torch.empty(rows, columns, dtype=dtype)
    Path(scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        return torch.from_numpy(np.asarray(np.memmap(file, kind, "w+", shape=(rows, columns))))
