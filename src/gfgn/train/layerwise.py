"""`infer_layerwise`: the exact output of a `GFGN` on a graph larger than the device, one layer after the other."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.on_disk import release
from gfgn.graph import Graph
from gfgn.nn.conv import GFGNConv, norm_dtype
from gfgn.nn.model import GFGN
from gfgn.ops.csr import CSR
from gfgn.ops.features import take_rows
from gfgn.sampling.neighbors import NeighborSampler, normalized, number_nodes

Features = Tensor | NDArray[Any]
ROWS_AT_A_TIME = 2**16


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
    sampler = NeighborSampler.from_graph(graph, [-1]) if isinstance(graph, Graph) else graph
    if x.shape[0] != sampler.num_nodes:
        raise ValueError(f"x has {x.shape[0]} rows, but the graph has {sampler.num_nodes} nodes")
    training = model.training
    model.eval()
    try:
        return _run(model, x, _Chunks(sampler, edges_per_chunk, scratch))
    finally:
        model.train(training)


class _Chunks:
    """All nodes in ranges, each of at most `limit` edges and nodes, or of one node."""

    def __init__(self, sampler: NeighborSampler, limit: int, scratch: Path | str | None) -> None:
        self.sampler, self.limit, self.scratch = sampler, limit, scratch

    def __iter__(self) -> Iterator[slice]:
        ptr, start, nodes = self.sampler.ptr, 0, self.sampler.num_nodes
        while start < nodes:
            stop = int(np.searchsorted(ptr, ptr[start] + self.limit, side="right")) - 1
            stop = min(max(stop, start + 1), start + self.limit, nodes)
            yield slice(start, stop)
            start = stop

    def empty(self, columns: int, dtype: torch.dtype) -> Features:
        """Memory for one row per node: of a file without a name if there is a folder for it."""
        rows = self.sampler.num_nodes
        if self.scratch is None or rows * columns == 0:
            return torch.empty(rows, columns, dtype=dtype)
        Path(self.scratch).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.scratch) as file:
            return np.memmap(file, torch.empty(0, dtype=dtype).numpy().dtype, "w+", shape=(rows, columns))

    def block(self, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Graph]:
        """Some targets and then their other neighbors, and the graph of the edges into the targets, with the weights
        that these have in the whole graph. It has no order by source, which only gradients need."""
        sampler, targets = self.sampler, np.arange(rows.start, rows.stop)
        ptr = sampler.ptr[rows.start : rows.stop + 1] - sampler.ptr[rows.start]
        edges = slice(int(sampler.ptr[rows.start]), int(sampler.ptr[rows.stop]))
        source = sampler.idx[edges].astype(np.int64)
        weight = None if sampler.edge_weight is None else sampler.edge_weight[edges]
        degrees = np.repeat(sampler.degree[rows], np.diff(ptr)), sampler.degree[source]
        norm, row_norm = (torch.from_numpy(values).to(dtype) for values in normalized(weight, *degrees))
        number, others = number_nodes(targets, source)
        node = np.concatenate([targets, others])
        ptr = np.concatenate([ptr, np.full(others.size, source.size)])
        none = torch.zeros(node.size + 1, dtype=torch.int64)
        graph = Graph(
            num_nodes=node.size,
            num_graphs=1,
            by_target=CSR.from_pointers(torch.from_numpy(ptr), torch.from_numpy(number)),
            by_source=CSR.from_pointers(none, none[:0]),
            norm=norm,
            row_norm=row_norm,
            reverse_norm=norm[:0],
            reverse_row_norm=norm[:0],
            weight=None,
            degree=torch.from_numpy(sampler.degree[node]).to(dtype),
            transpose=none[:0],
            given_order=None,
            batch=None,
            num_seeds=targets.size,
        )
        return torch.from_numpy(node), graph


def _run(model: GFGN, x: Features, chunks: _Chunks) -> Tensor:
    hidden: list[Features] = []
    for layer, conv in enumerate(model.convs):
        assert isinstance(conv, GFGNConv)
        x = _layer(model, layer, conv, x, chunks)
        hidden = [*hidden, x] if model.jk is not None else []
    if model.lin is None:
        return _tensor(x)
    parameter = next(model.parameters())
    out = chunks.empty(model.out_channels, parameter.dtype)
    for rows in chunks:
        parts = [_take(part, rows).to(parameter.device) for part in hidden or [x]]
        joined = parts[0] if model.jk is None else model.jk(parts)
        _write(out, rows, model.lin(joined))
    return _tensor(out)


def _layer(model: GFGN, layer: int, conv: GFGNConv, x: Features, chunks: _Chunks) -> Features:
    """One layer with what follows it: normalization, activation and the residual."""
    device, dtype = conv.gate.device, conv.gate.dtype
    width = conv.heads * conv.out_channels
    z = chunks.empty(width, dtype)
    for rows in chunks:
        _write(z, rows, conv.transform(_take(x, rows).to(device, dtype)))
    pool = _pool(conv, _tensor(z)) if conv.level == "graph" else None
    norm = model.norms[layer] if layer < len(model.norms) else None
    whole = norm is not None and model.norm_takes_batch  # it may read all nodes
    out = chunks.empty(width if conv.concat else conv.out_channels, dtype)
    for rows in chunks:
        node, block = chunks.block(rows, norm_dtype(conv.gate))
        near = _tensor(z).index_select(0, node).to(device)
        h = conv.combine(near, block.to(device), pool)[0][: rows.stop - rows.start]
        _write(out, rows, h if norm is None or whole else _activate(model, norm(h)))
    del z
    if norm is not None and whole:
        _tensor(out).copy_(_activate(model, copy.deepcopy(norm).cpu()(_tensor(out))))
    if model.residual and out.shape == x.shape and not (isinstance(x, Tensor) and x.layout != torch.strided):
        for rows in chunks:
            _write(out, rows, _take(out, rows) + _take(x, rows))
    return out


def _activate(model: GFGN, h: Tensor) -> Tensor:
    return h if model.act is None else model.act(h)


def _pool(conv: GFGNConv, z: Tensor) -> Callable[[Tensor, Graph], Tensor]:
    """The pooled representation of all nodes."""
    if conv.pool == "max":
        pooled = z.amax(0, keepdim=True) if z.size(0) else z.new_zeros(1, z.size(1))
    else:
        pooled = torch.zeros(1, z.size(1), dtype=torch.float64)
        for part in z.split(ROWS_AT_A_TIME):  # PyTorch would copy all of it to float64
            pooled += part.double().sum(0, keepdim=True)
        pooled /= max(z.size(0), 1) if conv.pool == "mean" else 1
    value = pooled.to(conv.gate)
    return lambda _, __: value


# --- rows in memory or in files ---------------------------------------------------------------------------------------


def _tensor(x: Features) -> Tensor:
    return x if isinstance(x, Tensor) else torch.from_numpy(np.asarray(x))


def _take(x: Features, rows: slice) -> Tensor:
    if isinstance(x, Tensor):
        return x[rows] if x.layout == torch.strided else take_rows(x, torch.arange(rows.start, rows.stop))
    taken = torch.from_numpy(np.array(x[rows]))
    release(x)
    return taken


def _write(x: Features, rows: slice, values: Tensor) -> None:
    _tensor(x)[rows] = values.cpu()
    release(x)
