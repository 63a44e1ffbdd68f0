"""`Graph`: the adjacency in the two orders that aggregation needs, normalized once and reused by every layer.

The forward pass walks the edges by target, the backward pass by source. Both orders, the normalized weights `Â` and
the position of every edge of the given `edge_index` are computed here, so that layers and kernels only read them.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.ops.cache import TensorCache, can_be_remembered
from gfgn.ops.csr import CSR, compress, per_graph, traced_per_graph
from gfgn.ops.dispatch import cpu_kernels, cuda_kernels
from gfgn.ops.index import MAX_KERNEL_EDGES, Indexed, index_edges
from gfgn.ops.registration import is_eager
from gfgn.ops.torch_internals import coo_entries, is_wrapped, outside_of_all_transforms, parse_to

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

__all__ = [
    "Graph",
    "TwoWeights",
    "as_graph",
    "differ",
    "merge_edges",
    "networkx_edges",
    "per_graph",
    "row_normalized",
    "symmetrize",
    "with_self_loops",
]

SelfLoops: TypeAlias = Literal["remove", "add"]
Duplicates: TypeAlias = Literal["merge", "keep"]

MAX_NODES = 2**31 - 1  # node ids are stored as int32; offsets into the edges are 64-bit
MAX_CACHED_GRAPHS = 16  # graphs of tensors that `as_graph` remembers: the edge types of a heterogeneous graph, and more
KERNEL_FLOATS = (torch.float32, torch.float64)
SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    r"""An adjacency `A`, ready for aggregation from source to target.

    With the weighted in-degree `d_i = Σ_j A_ij` it holds, for every edge from `j` to `i`, the symmetrically normalized
    weight `Â_ij = A_ij / √(d_i d_j)` (0 where a degree is 0) and `A_ij / d_i`. Build it once with one of the
    `from_…` constructors and pass it wherever an `edge_index` is expected:

        graph = Graph.from_edge_index(edge_index, num_nodes=x.size(0))
        h = conv(x, graph)

    Attributes:
        num_nodes: Number of nodes.
        num_graphs: Number of graphs that the nodes belong to; 1 unless `batch` was given.
        by_target: The edges in compressed rows: one row per target with its sources in ascending order.
        by_source: The same edges: one row per source with its targets in ascending order.
        norm: `[E]`, `Â` in the order of `by_target`.
        row_norm: `[E]`, `A_ij / d_i` in the order of `by_target`.
        reverse_norm: `[E]`, `Â` in the order of `by_source`.
        reverse_row_norm: `[E]`, `A_ij / d_i` in the order of `by_source`.
        weight: `[E]`, `A` in the order of `by_target`, or `None` where every weight is 1.
        degree: `[N]`, the weighted in-degree.
        transpose: `[E]`, for every edge of `by_source` its index in `by_target`.
        given_order: `edge_position`, or `None` if the edges were given in the order of `by_target`.
        batch: `[N]`, the graph that each node belongs to, or `None` for a single graph.
        num_targets: Number of targets of a bipartite graph, which are its first nodes; `None` for any other graph.
        num_seeds: Number of nodes that a sample was drawn for, which are its first ones; `None` for a whole graph.
    """

    num_nodes: int
    num_graphs: int
    by_target: CSR
    by_source: CSR
    norm: Tensor
    row_norm: Tensor
    reverse_norm: Tensor
    reverse_row_norm: Tensor
    weight: Tensor | None
    degree: Tensor
    transpose: Tensor
    given_order: Tensor | None
    batch: Tensor | None
    num_targets: int | None = None
    num_seeds: int | None = None

    # --- constructors -----------------------------------------------------------------------------

    @staticmethod
    def from_edge_index(
        edge_index: Tensor,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        self_loops: SelfLoops = "remove",
        duplicates: Duplicates = "merge",
        dtype: torch.dtype | None = None,
    ) -> Graph:
        """Builds the graph from a PyG `edge_index` of shape `[2, E]` (source, target).

        Args:
            edge_index: Source and target ids; a plain tensor or a PyG `EdgeIndex`.
            num_nodes: Number of nodes; by default that of an `EdgeIndex` that knows it, else one more than the largest
                id: nodes at the end that have no edges are missing then.
            edge_weight: `[E]`, finite and not negative; gradients flow to it through the reference operators.
            batch: `[N]`, the graph each node belongs to; edges must stay inside their graph.
            batch_size: Number of graphs; by default one more than the largest value in `batch`.
            self_loops: `"remove"` drops given self-loops, as the paper's `A` has none; `"add"` replaces them by one
                of weight 1 at every node, which is GCN's `Ã`.
            duplicates: `"merge"` merges repeated edges into one, with the sum of their weights, or weight 1 if there
                are no weights; `"keep"` keeps all of them.
            dtype: Dtype of `norm` and `row_norm`; by default that of `edge_weight`, else the default dtype.
        """
        _one_of("self_loops", self_loops, ("remove", "add"))
        _one_of("duplicates", duplicates, ("merge", "keep"))
        edges = _plain(edge_index)
        _check_layout(edges)
        if edge_weight is not None and not isinstance(edge_weight, Tensor):
            raise TypeError(f"edge_weight must be a Tensor of shape [E], got {type(edge_weight).__name__}")
        if dtype is None and edge_weight is not None and edge_weight.is_floating_point():
            dtype = edge_weight.dtype
        if num_nodes is None and hasattr(edge_index, "sparse_size") and None not in edge_index.sparse_size():
            num_nodes = max(edge_index.sparse_size())
        by_target, by_source, transpose, edge_position, weight = _sort(
            edges, num_nodes, edge_weight, self_loops == "add", duplicates == "merge"
        )
        num_nodes = by_target.ptr.numel() - 1
        batch, num_graphs = _check_batch(batch, batch_size, num_nodes, edges)
        if dtype is None:
            dtype = torch.get_default_dtype()
        weight = None if weight is None else weight.to(dtype)
        return Graph(
            num_nodes=num_nodes,
            num_graphs=num_graphs,
            by_target=by_target,
            by_source=by_source,
            weight=weight,
            transpose=transpose,
            given_order=edge_position[: edge_index.size(1)],
            batch=batch,
            **_normalization(by_target, by_source, transpose, weight, dtype),
        )

    @staticmethod
    def from_undirected(
        source: NDArray[Any], target: NDArray[Any], num_nodes: int, batch: Tensor | None = None
    ) -> Graph:
        """Builds the graph of the given edges and their opposites, each once and without self-loops.

        It needs a fraction of the memory of `from_edge_index`, and does not check its arguments: `source` and `target`
        hold integers from 0 to `num_nodes` − 1, and every graph of `batch` has a node.
        """
        return Graph.from_csr(symmetrize(merge_edges(source, target, None, num_nodes)), undirected=True, batch=batch)

    @staticmethod
    def from_csr(matrix: scipy.sparse.csr_array, *, undirected: bool = False, batch: Tensor | None = None) -> Graph:
        """Builds the graph from the result of `merge_edges` or `symmetrize`, in a small multiple of its own memory.

        Args:
            matrix: `A` with one row per target, sorted and without repeated entries; int8 if it has no weights.
            undirected: States that `A` is symmetric.
            batch: `[N]`, the graph each node belongs to.
        """
        weight = None if matrix.data.dtype == np.int8 else torch.from_numpy(matrix.data)
        by_target = _csr(matrix.indptr, matrix.indices)
        # SciPy's conversion is a counting sort: linear time. The numbers of the entries are int32 where that is enough.
        numbers = np.arange(matrix.nnz, dtype=matrix.indices.dtype)
        flipped = scipy.sparse.csr_array((numbers, matrix.indices, matrix.indptr), shape=matrix.shape).tocsc()
        del numbers, matrix
        by_source = by_target if undirected else _csr(flipped.indptr, flipped.indices)
        transpose = torch.from_numpy(flipped.data).long()
        del flipped
        return Graph.from_rows(by_target, by_source, transpose, weight, symmetric=undirected, batch=batch)

    @staticmethod
    def from_rows(
        by_target: CSR,
        by_source: CSR,
        transpose: Tensor,
        weight: Tensor | None = None,
        *,
        symmetric: bool = False,
        batch: Tensor | None = None,
    ) -> Graph:
        """Builds the graph from edges that are already sorted; the arguments are attributes of `Graph`. `symmetric`
        states that every edge has the weight of its opposite, so that `norm` serves both orders."""
        if by_source.same_pattern(by_target):
            by_source = by_target
        transpose = transpose.long()
        dtype = torch.get_default_dtype() if weight is None else weight.dtype
        return Graph(
            num_nodes=by_target.ptr.numel() - 1,
            num_graphs=1 if batch is None else int(batch.max()) + 1,
            by_target=by_target,
            by_source=by_source,
            weight=weight,
            transpose=transpose,
            given_order=None,
            batch=batch,
            **_normalization(by_target, by_source, transpose, weight, dtype, symmetric),
        )

    @staticmethod
    def from_sparse(adjacency: Tensor, **options: Any) -> Graph:
        """Builds the graph from a square sparse CSR, CSC or COO tensor `A`, where `A[i, j]` is the edge from `j` to
        `i`: rows are targets, as in the paper and in PyG's `adj_t`. Every stored entry is an edge, its value is the
        weight; repeated entries of a COO tensor with a gradient are merged. `options` are those of
        `from_edge_index`."""
        if adjacency.dim() != 2 or adjacency.size(0) != adjacency.size(1):
            raise ValueError(f"adjacency must be a square matrix, got shape {tuple(adjacency.shape)}")
        if adjacency.layout not in SPARSE_LAYOUTS:
            raise ValueError(f"adjacency must be a sparse CSR, CSC or COO tensor, got layout {adjacency.layout}")
        if adjacency.layout == torch.sparse_coo:
            adjacency = adjacency.coalesce() if adjacency.dtype == torch.bool else adjacency  # whose sum is "or"
            (target, source), value = coo_entries(adjacency)
        else:
            by_row = adjacency.layout == torch.sparse_csr
            ptr = adjacency.crow_indices() if by_row else adjacency.ccol_indices()
            inner = (adjacency.col_indices() if by_row else adjacency.row_indices()).long()
            outer = torch.repeat_interleave(torch.arange(ptr.numel() - 1, device=ptr.device), ptr.diff())
            target, source = (outer, inner) if by_row else (inner, outer)
            value = adjacency.values()
        return Graph.from_edge_index(torch.stack([source, target]), adjacency.size(0), value, **options)

    @staticmethod
    def from_scipy(adjacency: scipy.sparse.sparray | scipy.sparse.spmatrix, **options: Any) -> Graph:
        """Builds the graph from a square SciPy sparse matrix or array, read as `from_sparse` reads a tensor."""
        coo = adjacency.tocoo(copy=True)  # type: ignore[union-attr]
        if coo.dtype == bool:  # whose sum is "or"
            coo.sum_duplicates()
        if coo.shape[0] != coo.shape[1]:
            raise ValueError(f"adjacency must be a square matrix, got shape {tuple(coo.shape)}")
        edge_index = torch.stack([torch.as_tensor(coo.col).long(), torch.as_tensor(coo.row).long()])
        return Graph.from_edge_index(edge_index, coo.shape[0], torch.as_tensor(coo.data), **options)

    @staticmethod
    def from_networkx(
        graph: networkx.Graph[Any],
        weight: str | None = "weight",
        nodelist: Sequence[Any] | None = None,
        **options: Any,
    ) -> Graph:
        """Builds the graph from a NetworkX graph. An undirected graph gives both directions.

        Args:
            graph: The graph; parallel edges are repeated edges.
            weight: The edge attribute that holds the weight (1 where it is missing); `None` for no weights.
            nodelist: The nodes in the order of the rows of `x`, as NetworkX's functions take it; nodes without edges
                need not be in `graph`. By default `graph.nodes`, which is an error if these are 0 … N − 1 in another
                order: node `k` could be row `k`, or row `k` the `k`-th node.
            options: Those of `from_edge_index`.
        """
        nodes = list(graph.nodes)
        if nodelist is None and nodes != (expected := list(range(len(nodes)))) and set(nodes) == set(expected):
            shown = ", ".join(map(str, nodes[:5]))
            raise ValueError(
                f"graph has the nodes 0 to {len(nodes) - 1} in another order ({shown}, …): pass nodelist="
                f"range({len(nodes)}) if they are rows of x, or nodelist=list(graph) if x has the order of graph.nodes"
            )
        rows = {node: k for k, node in enumerate(nodes if nodelist is None else nodelist)}
        if nodelist is not None and len(rows) < len(nodelist):
            raise ValueError(f"nodelist must hold every node once, got {len(rows)} in {len(nodelist)}")
        missing = [node for node in nodes if node not in rows]
        if missing:
            raise ValueError(f"nodelist must hold all nodes of graph, got none that is {missing[0]!r}")
        source, target, value = networkx_edges(graph, rows, weight)
        edge_index = torch.tensor([source, target], dtype=torch.int64).view(2, -1)
        return Graph.from_edge_index(edge_index, len(rows), None if value is None else torch.tensor(value), **options)

    @staticmethod
    def from_data(data: Data, **options: Any) -> Graph:
        """Builds the graph from a PyG `Data` or `Batch`: its `edge_index`, `edge_weight` and `batch`."""
        weight, batch = data.get("edge_weight"), data.get("batch")
        sizes = {} if batch is None else {"batch": batch, "batch_size": getattr(data, "num_graphs", None)}
        return Graph.from_edge_index(data.edge_index, data.num_nodes, weight, **sizes, **options)

    @staticmethod
    def bipartite(
        edge_index: Tensor,
        size: tuple[int, int],
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        duplicates: Duplicates = "merge",
        dtype: torch.dtype | None = None,
    ) -> Graph:
        """Builds the graph of edges from one set of nodes to another, for layers that take `(x_src, x_dst)`.

        Its nodes are the targets and then the sources. With `d_i = Σ_j A_ij` over the edges into target `i` and
        `d_j = Σ_i A_ij` over the edges out of source `j`, the normalized weight is `Â_ij = A_ij / √(d_i d_j)`. Every
        edge is kept: source 3 and target 3 are different nodes.

        Args:
            edge_index: `[2, E]`, ids of sources and of targets, each counted from 0.
            size: Number of sources and number of targets, as PyG orders them.
            batch: `[size[1]]`, the graph each target belongs to.

        The others are those of `from_edge_index`.
        """
        return _bipartite(edge_index, size, edge_weight, batch, batch_size, duplicates, dtype)

    @staticmethod
    def from_sample(batch: Data) -> Graph:
        """Builds the graph of a batch of `gfgn.sampling.NeighborLoader`, with the weights of its edges: `norm` and
        `row_norm` are those of the whole graph, corrected for the sampling."""
        missing = [name for name in ("norm", "row_norm", "batch_size") if getattr(batch, name, None) is None]
        if missing:
            raise ValueError(f"batch must come from gfgn.sampling.NeighborLoader, got one without {', '.join(missing)}")
        graph = Graph.from_edge_index(batch.edge_index, batch.num_nodes, dtype=batch.norm.dtype)
        norm, row_norm = torch.zeros_like(graph.norm), torch.zeros_like(graph.row_norm)
        norm[graph.edge_position], row_norm[graph.edge_position] = batch.norm, batch.row_norm
        return dataclasses.replace(
            graph,
            norm=norm,
            row_norm=row_norm,
            reverse_norm=norm[graph.transpose],
            reverse_row_norm=row_norm[graph.transpose],
            num_seeds=batch.batch_size,
        )

    # --- derived tensors --------------------------------------------------------------------------

    @property
    def num_edges(self) -> int:
        """Number of stored edges; both directions of an undirected edge count."""
        return self.by_target.idx.numel()

    @property
    def row_lengths(self) -> Tensor:
        """`[N]`: the number of incoming edges of each node, `|N(i)|`."""
        return self.by_target.ptr.diff()

    @property
    def targets(self) -> Tensor:
        """`[E]`: the target of every edge, in the order of `by_target`."""
        return self.by_target.row_of_each_entry()

    @property
    def edge_index(self) -> Tensor:
        """`[2, E]`: source and target of every stored edge, in the order of `by_target`."""
        return torch.stack([self.by_target.idx.long(), self.targets])

    @property
    def edge_position(self) -> Tensor:
        """For every edge *as it was given* its index in `by_target`, or −1 for a removed self-loop."""
        return torch.arange(self.num_edges, device=self.device) if self.given_order is None else self.given_order

    @property
    def device(self) -> torch.device:
        return self.by_target.ptr.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of `norm` and `row_norm`."""
        return self.norm.dtype

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph on another device, in another floating dtype, or both; arguments as for `torch.Tensor.to`."""
        device, dtype, non_blocking = parse_to(*args, **kwargs)
        graph = self
        if device is not None and device != self.device:

            def move(value: Any) -> Any:
                if isinstance(value, Tensor):
                    return value.to(device, non_blocking=non_blocking)
                return CSR(*map(move, value)) if isinstance(value, CSR) else value

            fields = {f.name: move(getattr(self, f.name)) for f in dataclasses.fields(self)}
            if self.by_source is self.by_target:
                fields["by_source"] = fields["by_target"]
            if self.reverse_norm is self.norm:
                fields["reverse_norm"] = fields["norm"]
            graph = Graph(**fields)
        if dtype is None or dtype == graph.dtype:
            return graph
        weight, symmetric = None if graph.weight is None else graph.weight.to(dtype), graph.reverse_norm is graph.norm
        changes: dict[str, Any] = _normalization(
            graph.by_target, graph.by_source, graph.transpose, weight, dtype, symmetric
        )
        if graph.num_seeds is not None:  # the weights of a sample are not those of its own degrees
            names = ("degree", "norm", "row_norm", "reverse_norm", "reverse_row_norm")
            changes = {name: getattr(graph, name).to(dtype) for name in names}
        elif graph.num_targets is not None:
            changes = _bipartite_normalization(graph.by_target, graph.transpose, weight, dtype)
        return dataclasses.replace(graph, weight=weight, **changes)

    def __repr__(self) -> str:
        facts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        if self.num_targets is not None:
            facts.append(f"num_targets={self.num_targets}")
        if self.batch is not None:
            facts.append(f"num_graphs={self.num_graphs}")
        if self.weight is not None:
            facts.append("weighted")
        return f"Graph({', '.join(facts)}, dtype={self.dtype}, device='{self.device}')"


def as_graph(
    edge_index: Tensor | Graph,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    dtype: torch.dtype | None = None,
    pooled: bool = False,
) -> Graph:
    """The `Graph` that a layer needs, from a `Graph`, an `edge_index` or a sparse matrix.

    The graph of an `edge_index` is remembered until one of the tensors is changed or deleted, see `TensorCache`.
    `pooled` says that the layer pools all nodes of a graph: then an `edge_index` that looks like a batch of graphs is
    answered with a warning if there is no `batch`.
    """
    if isinstance(edge_index, Graph):
        given = [name for name, value in (("edge_weight", edge_weight), ("batch", batch)) if value is not None]
        if given:
            raise ValueError(f"{' and '.join(given)} cannot be combined with a Graph: build the Graph with it")
        if edge_index.num_targets is not None:
            raise ValueError("x must be a pair (x_src, x_dst) for a bipartite Graph, got one Tensor")
        if edge_index.num_nodes != num_nodes:
            raise ValueError(f"x has {num_nodes} rows, but the Graph has {edge_index.num_nodes} nodes")
        return edge_index if dtype is None or dtype == edge_index.dtype else edge_index.to(dtype)
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index must be a Tensor, a PyG EdgeIndex or a Graph, got {type(edge_index).__name__}")
    if edge_index.layout in SPARSE_LAYOUTS:
        if edge_weight is not None:
            raise ValueError("edge_weight cannot be combined with a sparse matrix, whose values are the weights")
        if edge_index.size(0) != num_nodes:
            raise ValueError(f"x has {num_nodes} rows, but the sparse matrix has {edge_index.size(0)}")
        return Graph.from_sparse(edge_index, batch=batch, batch_size=batch_size, dtype=dtype)
    graph = _remembered(Graph.from_edge_index, edge_index, num_nodes, edge_weight, batch, batch_size, dtype)
    if pooled and batch is None and not torch.compiler.is_compiling():
        warn_of_missing_batch(graph)
    return graph


_graphs: TensorCache[Graph] = TensorCache(MAX_CACHED_GRAPHS)


def _remembered(
    build: Callable[..., Graph],
    edge_index: Tensor,
    size: int | tuple[int, int],
    edge_weight: Tensor | None,
    batch: Tensor | None,
    batch_size: int | None,
    dtype: torch.dtype | None,
) -> Graph:
    """The graph that `build` returns, remembered."""
    # A PyG `EdgeIndex` wraps a tensor; either of them may be changed.
    tensors = [x for x in (edge_index, edge_weight, batch) if isinstance(x, Tensor)]
    if type(edge_index) is not Tensor:
        tensors.append(_plain(edge_index))
    options = {"batch_size": batch_size, "dtype": dtype}
    if not can_be_remembered(*tensors):
        return build(edge_index, size, edge_weight, batch=batch, **options)
    arguments = build, size, edge_weight is None, batch is None, batch_size, dtype, torch.get_default_dtype()

    def compute() -> Graph:
        copy = None if batch is None else batch.clone()  # the graph must not keep the given batch alive
        return build(edge_index, size, edge_weight, batch=copy, **options)

    return _graphs.get(tensors, arguments, compute)


@per_graph
def warn_of_missing_batch(graph: Graph) -> None:
    """Warns if the nodes are runs of consecutive nodes without an edge between them, as PyG's `Batch` makes them."""
    with outside_of_all_transforms():
        if count_runs(graph) > 1:
            # Constant, so that it is shown once; from the caller of the module, as its forward calls `as_graph`.
            message = (
                "edge_index looks like a batch of graphs, but batch is not given: level='graph' computes one gate for "
                "all nodes. Pass batch=data.batch, or Graph.from_data(data); for one graph in several parts, pass a "
                "Graph as edge_index"
            )
            warnings.warn(message, stacklevel=7)


def count_runs(graph: Graph) -> int:
    """The number of runs of consecutive nodes without an edge between them; runs of a single node do not count."""
    node = torch.arange(graph.num_nodes, device=graph.device)
    reach = node
    for rows in (graph.by_target, graph.by_source):
        if rows.idx.numel():
            last = rows.idx[(rows.ptr[1:] - 1).clamp(min=0)].long()  # columns ascend: the last one is the largest
            reach = torch.where(rows.ptr.diff() > 0, torch.maximum(reach, last), reach)
    end = torch.cummax(reach, 0).values == node  # no edge leads from up to here to a later node
    return int((end[1:] & ~end[:-1]).sum())


@traced_per_graph
def with_self_loops(graph: Graph) -> Graph:
    """GCN's `Ã = A + I`."""
    return Graph.from_edge_index(
        graph.edge_index, graph.num_nodes, graph.weight, batch=graph.batch, self_loops="add", dtype=graph.dtype
    )


@traced_per_graph
def row_normalized(graph: Graph) -> Graph:
    """The graph whose `norm`, which `ops.propagate` reads, is `A_ij / d_i`: it averages neighbors."""
    return dataclasses.replace(graph, norm=graph.row_norm, reverse_norm=graph.reverse_row_norm)


def merge_edges(
    source: NDArray[Any], target: NDArray[Any], weight: NDArray[np.float32] | None, num_nodes: int
) -> scipy.sparse.csr_array:
    """`A` with one row per target, every edge once and no self-loops; weights of repeated edges are added.

    Without weights the entries are ones of dtype int8.
    """
    keep = source != target
    if not keep.all():
        source, target, weight = source[keep], target[keep], None if weight is None else weight[keep]
    del keep
    values = np.ones(source.size, dtype=np.int8) if weight is None else weight
    with np.errstate(over="ignore"):
        matrix = scipy.sparse.coo_array((values, (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    if weight is None:
        matrix.data[:] = 1  # it held the number of repetitions, which may have overflowed
    return matrix


def networkx_edges(
    graph: networkx.Graph[Any], rows: Mapping[Any, int], weight: str | None = "weight"
) -> tuple[list[int], list[int], list[float] | None]:
    """Sources, targets and weights of a NetworkX graph whose nodes have these rows, in both directions if it is
    undirected; no weights if no edge has the attribute `weight`."""
    edges = [(rows[u], rows[v], data.get(weight) if weight else None) for u, v, data in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(v, u, w) for u, v, w in edges if u != v]
    weighted = any(w is not None for *_, w in edges)
    for *_, w in edges:
        if w is not None and not isinstance(w, SupportsFloat):
            raise ValueError(f"edge_weight must hold numbers, got {w!r} from the attribute {weight!r} of an edge")
    value = [1.0 if w is None else float(w) for *_, w in edges] if weighted else None
    return [u for u, _, _ in edges], [v for _, v, _ in edges], value


class TwoWeights(ValueError):
    """The two directions of an edge that should have none have different weights."""

    def __init__(self, source: int, target: int, weight: float, opposite: float) -> None:
        self.source, self.target, self.weight, self.opposite = source, target, weight, opposite
        super().__init__(self.message())

    def message(self, name: Callable[[int], Any] = int, unless: str = "directed=True") -> str:
        """The error with the names of the nodes, and the option that keeps directions."""
        u, v = repr(name(self.source)), repr(name(self.target))
        got = f"got {self.weight:.7g} from {u} to {v} and {self.opposite:.7g} from {v} to {u}"
        return f"the weight must be the same in both directions of an edge unless {unless}, {got}"


def differ(low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.bool_]:
    """Where weights differ by more than the rounding of sums and of text."""
    return np.asarray(low < (1 - 1e-5) * high)


def symmetrize(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """The edges and their opposites; `TwoWeights` where an edge and its opposite are given with different weights."""
    opposite = scipy.sparse.csr_array(matrix.T)
    both = scipy.sparse.csr_array(matrix.maximum(opposite))
    if matrix.dtype != np.int8:
        low = matrix.minimum(opposite)  # of the edges that are given in both directions
        high = both.multiply(low.astype(bool))
        for entry in np.flatnonzero(differ(low.data, high.data))[:1]:
            target = int(np.searchsorted(low.indptr, entry, side="right")) - 1
            source = int(low.indices[entry])
            raise TwoWeights(source, target, float(matrix[target, source]), float(matrix[source, target]))
    return both


def _csr(ptr: NDArray[Any], idx: NDArray[Any]) -> CSR:
    return CSR.from_pointers(torch.from_numpy(ptr.astype(np.int64)), torch.from_numpy(idx))


# --- sorting --------------------------------------------------------------------------------------


def _sort(edges: Tensor, num_nodes: int | None, weight: Tensor | None, add: bool, merge: bool) -> Indexed:
    """The edges in both orders, and their weights; `add` is for self-loops.

    The kernels find bad ids, on a GPU bad weights too, so that they are read once."""
    kernels = _sorting_kernels(edges, weight)
    num_nodes = _check_edges(edges, num_nodes, read=kernels is None or num_nodes is None)
    if weight is not None:
        weight = _check_weight(weight, edges, read=kernels is None or edges.device.type == "cpu")
    given, given_weight = edges, weight
    if add:
        edges, weight = _with_loops(edges, weight, num_nodes)
    if kernels is None:
        return _sort_by_operators(edges, num_nodes, weight, num_nodes if add else 0, merge)
    try:
        indexed: Indexed = kernels.index(edges, num_nodes, merge, num_nodes if add else 0, weight)
    except ValueError:  # these name the first bad value
        _check_edges(given, num_nodes)
        if given_weight is not None:
            _check_weight(given_weight, given)
        raise
    return indexed


def _sorting_kernels(edges: Tensor, weight: Tensor | None) -> Any:
    """The kernels that sort the edges and add their weights, or `None` where PyTorch must see the operations."""
    if torch.compiler.is_compiling() or not is_eager(edges) or edges.size(1) > MAX_KERNEL_EDGES:
        return None
    if weight is not None and (weight.requires_grad or not is_eager(weight) or weight.dtype not in KERNEL_FLOATS):
        return None
    return _kernels("index", edges.device)


def _sort_by_operators(edges: Tensor, num_nodes: int, weight: Tensor | None, num_loops: int, merge: bool) -> Indexed:
    tensors = index_edges(edges, num_nodes, merge, num_loops)
    by_target, by_source = CSR(*tensors[0:5]), CSR(*tensors[5:10])
    transpose, edge_position = tensors[10], tensors[11]
    if weight is not None:
        # One more element at the end takes the removed self-loops, whose edge_position is −1.
        size = by_target.idx.numel()
        index = torch.where(edge_position < 0, size, edge_position)
        weight = weight.new_zeros(size + 1).index_add(0, index, weight)[:-1]
    if not torch.compiler.is_compiling() and by_source.same_pattern(by_target):
        by_source = by_target  # an undirected graph: one copy for both orders
    return Indexed(by_target, by_source, transpose, edge_position, weight)


def _with_loops(edges: Tensor, weight: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor | None]:
    """The edges and then one self-loop of weight 1 at every node."""
    loop = torch.arange(num_nodes, device=edges.device, dtype=edges.dtype)
    edges = torch.cat([edges, loop.expand(2, -1)], dim=1)
    return edges, None if weight is None else torch.cat([weight, weight.new_ones(num_nodes)])


# --- normalization --------------------------------------------------------------------------------


def _normalization(
    by_target: CSR,
    by_source: CSR,
    transpose: Tensor,
    weight: Tensor | None,
    dtype: torch.dtype,
    symmetric: bool = False,
) -> dict[str, Any]:
    """The attributes `degree`, `norm`, `row_norm`, `reverse_norm` and `reverse_row_norm` of a graph.

    Tensors of one value per edge are few and short-lived: on a large graph they are most of the memory. Those of 16
    bits are rounded from float32, as sums of 16 bits are far off.
    """
    if dtype in (torch.float16, torch.bfloat16):
        given = None if weight is None else weight.float()
        wide = _normalization(by_target, by_source, transpose, given, torch.float32, symmetric)
        rounded = {name: x.to(dtype) for name, x in wide.items()}
        if wide["reverse_norm"] is wide["norm"]:
            rounded["reverse_norm"] = rounded["norm"]
        _check_degrees(rounded["degree"], weight is not None)
        return rounded
    symmetric = symmetric or (weight is None and by_source is by_target)
    kernels = _normalizing_kernels(by_target.ptr, weight, dtype)
    if kernels is not None:
        by_kernels: dict[str, Any]
        by_kernels, bad = kernels.normalize(by_target, by_source, transpose, weight, dtype, symmetric)
        if bad:
            _check_degrees(by_kernels["degree"], weight is not None)
        return by_kernels
    target = by_target.row_of_each_entry()
    if weight is None:
        degree = by_target.ptr.diff().to(dtype)
    else:
        degree = weight.new_zeros(by_target.ptr.numel() - 1).index_add(0, target, weight)
    _check_degrees(degree, weight is not None)
    inverse, root = _inverse_and_root(degree)
    norm = root.index_select(0, target).mul_(root.index_select(0, by_target.idx))
    row_norm = inverse.index_select(0, target)
    del target
    reverse_row_norm = inverse.index_select(0, by_source.idx)  # by_source holds the targets
    if weight is not None:
        norm.mul_(weight)
        row_norm.mul_(weight)
        reverse_row_norm.mul_(weight if symmetric else weight.index_select(0, transpose))
    reverse_norm = norm if symmetric else norm.index_select(0, transpose)
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}


def _inverse_and_root(degree: Tensor) -> tuple[Tensor, Tensor]:
    """`1 / d` and `1 / √d`, 0 where a degree is 0. The inner `where` keeps infinities, of which second derivatives
    would make NaN, out of what the outer ones discard."""
    positive = degree > 0
    inverse = torch.where(positive, degree, 1).reciprocal()
    return torch.where(positive, inverse, 0), torch.where(positive, inverse.sqrt(), 0)


def _check_degrees(degree: Tensor, weighted: bool) -> None:
    """Raises an error where a degree, or its inverse, is too large for its dtype."""
    if not (weighted or degree.dtype == torch.float16) or torch.compiler.is_compiling() or is_wrapped(degree):
        return
    given = degree.detach()
    bad = given.isinf() | (given.reciprocal().isinf() & (given > 0))
    if bad.any():
        node = int(bad.nonzero()[0])
        low, high = torch.finfo(degree.dtype).tiny, torch.finfo(degree.dtype).max
        raise ValueError(
            f"edge_weight must add up to 0, or {low:.1e} to {high:.1e}, at every node (the range of "
            f"{str(degree.dtype).removeprefix('torch.')}), got {float(degree[node]):.1e} at node {node}"
        )


def _normalizing_kernels(ptr: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Any:
    """The kernels that normalize a graph, or `None` where PyTorch must see the operations."""
    if dtype not in KERNEL_FLOATS or torch.compiler.is_compiling() or not is_eager(ptr):
        return None
    if weight is not None and (weight.requires_grad or not is_eager(weight)):
        return None
    return _kernels("normalize", ptr.device)


def _kernels(module: str, device: torch.device) -> Any:
    return cpu_kernels(module) if device.type == "cpu" else cuda_kernels(module, device)


# --- checks of arguments --------------------------------------------------------------------------


def _one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _plain(edge_index: Tensor) -> Tensor:
    """The plain tensor of a PyG `EdgeIndex`."""
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index must be a Tensor of shape [2, E], got {type(edge_index).__name__}")
    as_tensor = getattr(edge_index, "as_tensor", None)
    return edge_index if as_tensor is None else as_tensor()


def _check_layout(edges: Tensor) -> None:
    if edges.dim() != 2 or edges.size(0) != 2:
        raise ValueError(f"edge_index must have shape [2, E], got {list(edges.shape)}")
    if edges.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"edge_index must hold int64 or int32 ids, got {edges.dtype}")


def _check_edges(edges: Tensor, num_nodes: int | None, read: bool = True) -> int:
    """Checks the number of nodes and, with `read`, the ids; returns the number of nodes."""
    if torch.compiler.is_compiling():
        if num_nodes is None:
            raise ValueError("num_nodes must be given under torch.compile and torch.export")
        return num_nodes
    read = read and edges.numel() > 0
    low, high = torch.stack(edges.aminmax()).tolist() if read else (0, -1)  # waits once for a GPU
    if num_nodes is None:
        num_nodes = high + 1
    if not 0 <= num_nodes <= MAX_NODES:
        raise ValueError(f"num_nodes must be between 0 and {MAX_NODES}, got {num_nodes}")
    if low < 0 or high >= num_nodes:
        row, column = torch.nonzero((edges < 0) | (edges >= num_nodes))[0].tolist()
        raise ValueError(
            f"edge_index holds the {('source', 'target')[row]} id {int(edges[row, column])} at edge {column}, "
            f"expected ids from 0 to {num_nodes - 1} ({num_nodes} nodes)"
        )
    return num_nodes


def _check_weight(weight: Tensor, edges: Tensor, read: bool = True) -> Tensor:
    if weight.device != edges.device:
        raise ValueError(f"edge_weight is on {weight.device}, but edge_index is on {edges.device}")
    if weight.shape == (edges.size(1), 1):
        weight = weight.view(-1)
    if weight.shape != (edges.size(1),):
        raise ValueError(f"edge_weight must have shape [{edges.size(1)}], one per edge, got {list(weight.shape)}")
    if not weight.is_floating_point():
        weight = weight.to(torch.get_default_dtype())
    if weight.dtype in (torch.float16, torch.bfloat16):
        weight = weight.float()  # sums of 16 bits are far off
    if read and not torch.compiler.is_compiling() and not is_wrapped(weight):
        low, high = torch.stack(weight.detach().aminmax()).tolist() if weight.numel() else (0, 0)
        if not (low >= 0 and high < math.inf):  # a NaN too
            edge = int(torch.nonzero(~(weight >= 0) | weight.isinf())[0])
            raise ValueError(f"edge_weight must be finite and not negative, got {float(weight[edge])} at edge {edge}")
    return weight


def _check_batch(
    batch: Tensor | None, batch_size: int | None, num_nodes: int, edges: Tensor
) -> tuple[Tensor | None, int]:
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch_size={batch_size} needs batch, the graph that each node belongs to")
        return None, 1
    if batch.device != edges.device:
        raise ValueError(f"batch is on {batch.device}, but edge_index is on {edges.device}")
    if batch.shape != (num_nodes,) or batch.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"batch must be [{num_nodes}] integers, got {list(batch.shape)} of {batch.dtype}")
    if torch.compiler.is_compiling():
        if batch_size is None:
            raise ValueError("batch_size must be given under torch.compile and torch.export")
        return batch.long(), batch_size
    batch = batch.long()
    crosses = batch[edges[0].long()] != batch[edges[1].long()]
    low, high, any_crosses = torch.stack([*batch.aminmax(), crosses.any()]).tolist() if num_nodes else (0, -1, 0)
    size = high + 1 if batch_size is None else batch_size
    if low < 0 or high >= size:
        raise ValueError(f"batch must hold graph numbers from 0 to {size - 1}, got {low} to {high}")
    if any_crosses:
        edge = int(torch.nonzero(crosses)[0])
        source, target = edges[:, edge].tolist()
        raise ValueError(
            f"edge {edge} of edge_index joins node {source} of graph {int(batch[source])} "
            f"with node {target} of graph {int(batch[target])}; edges must stay inside their graph"
        )
    return batch, size


# --- blocks of edges: bipartite graphs and the layers of a sample ----------------------------------


def as_bipartite(
    edge_index: Tensor | Graph,
    size: tuple[int, int],
    edge_weight: Tensor | None = None,
    batch: Tensor | None = None,
    batch_size: int | None = None,
    dtype: torch.dtype | None = None,
) -> Graph:
    """The bipartite `Graph` that a layer needs, from a `Graph`, an `edge_index` or a sparse matrix."""
    if isinstance(edge_index, Graph):
        given = [name for name, value in (("edge_weight", edge_weight), ("batch", batch)) if value is not None]
        if given:
            raise ValueError(f"{' and '.join(given)} cannot be combined with a Graph: build the Graph with it")
        if edge_index.num_targets is None:
            raise TypeError("x is a pair (x_src, x_dst): its Graph must come from Graph.bipartite")
        if (edge_index.num_nodes - edge_index.num_targets, edge_index.num_targets) != size:
            raise ValueError(f"x has {size[0]} sources and {size[1]} targets, which the Graph has not: {edge_index}")
        return edge_index if dtype is None or dtype == edge_index.dtype else edge_index.to(dtype)
    if isinstance(edge_index, Tensor) and edge_index.layout in SPARSE_LAYOUTS:
        if edge_weight is not None:
            raise ValueError("edge_weight cannot be combined with a sparse matrix, whose values are the weights")
        if edge_index.shape != (size[1], size[0]):
            raise ValueError(f"edge_index must be a [{size[1]}, {size[0]}] matrix, got {list(edge_index.shape)}")
        (target, source), edge_weight = coo_entries(edge_index.to_sparse_coo())
        edge_index = torch.stack([source, target])
    return _remembered(Graph.bipartite, edge_index, size, edge_weight, batch, batch_size, dtype)


def _bipartite(
    edge_index: Tensor,
    size: tuple[int, int],
    edge_weight: Tensor | None,
    batch: Tensor | None,
    batch_size: int | None,
    duplicates: Duplicates,
    dtype: torch.dtype | None,
) -> Graph:
    num_sources, num_targets = size
    edges = _plain(edge_index)
    _check_layout(edges)
    _check_edges(edges, max(size))
    for row, (name, count) in zip(edges, (("source", num_sources), ("target", num_targets)), strict=True):
        _check_ids(name, row, count)
    shifted = torch.stack([edges[0] + num_targets, edges[1]])
    graph = Graph.from_edge_index(shifted, num_sources + num_targets, edge_weight, duplicates=duplicates, dtype=dtype)
    # No edge is checked against the batch: sources belong to no graph.
    batch, num_graphs = _check_batch(batch, batch_size, num_targets, edges[:, :0])
    if batch is not None:
        batch = torch.nn.functional.pad(batch, (0, num_sources))
    norm: dict[str, Any] = _bipartite_normalization(graph.by_target, graph.transpose, graph.weight, graph.dtype)
    return dataclasses.replace(graph, num_targets=num_targets, batch=batch, num_graphs=num_graphs, **norm)


def _bipartite_normalization(
    by_target: CSR, transpose: Tensor, weight: Tensor | None, dtype: torch.dtype
) -> dict[str, Tensor]:
    """What `_normalization` returns, with degrees of incoming edges for targets and of outgoing edges for sources."""
    source, target, weighted = by_target.idx.long(), by_target.row_of_each_entry(), weight is not None
    weight = torch.ones_like(source, dtype=dtype) if weight is None else weight
    degree = weight.new_zeros(by_target.ptr.numel() - 1).index_add(0, target, weight).index_add(0, source, weight)
    _check_degrees(degree, weighted)
    inverse, root = _inverse_and_root(degree)
    norm, row_norm = weight * root[target] * root[source], weight * inverse[target]
    reverse = {"reverse_norm": norm[transpose], "reverse_row_norm": row_norm[transpose]}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}


def _check_ids(name: str, ids: Tensor, count: int) -> None:
    if torch.compiler.is_compiling() or not ids.numel():
        return
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= count:
        raise ValueError(f"edge_index holds the {name} id {low if low < 0 else high}, expected 0 to {count - 1}")


def first_edges(graph: Graph, num_nodes: int, num_edges: int) -> Graph:
    """The first `num_nodes` nodes and the first `num_edges` of the given edges, with the weights `Â` that they have in
    the whole graph; the edges must join these nodes."""
    position = graph.edge_position[:num_edges]
    kept = torch.zeros(graph.num_edges, dtype=torch.bool, device=graph.device)
    kept[position[position >= 0]] = True
    source, target = graph.edge_index[:, kept]
    number = torch.nn.functional.pad(torch.cumsum(kept, 0), (0, 1)) - 1  # the last, −1, is for removed self-loops
    kept_by_source = kept[graph.transpose]
    transpose = number[graph.transpose[kept_by_source]]
    return Graph(
        num_nodes=num_nodes,
        num_graphs=graph.num_graphs,
        by_target=compress(target, source, num_nodes),
        by_source=compress(source[transpose], target[transpose], num_nodes),
        norm=graph.norm[kept],
        row_norm=graph.row_norm[kept],
        reverse_norm=graph.reverse_norm[kept_by_source],
        reverse_row_norm=graph.reverse_row_norm[kept_by_source],
        weight=None if graph.weight is None else graph.weight[kept],
        degree=graph.degree[:num_nodes],
        transpose=transpose,
        given_order=number[position],
        batch=None if graph.batch is None else graph.batch[:num_nodes],
        num_seeds=graph.num_seeds,
    )


torch.export.register_dataclass(Graph, serialized_type_name="gfgn.Graph")
