"""`build_graph`: the graph of edges as users have them: arrays, sparse matrices, data frames, NetworkX graphs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.mapped import is_mapped
from gfgn.data.tables import find_ends
from gfgn.estimator.inputs import Given, Indices, to_numpy
from gfgn.graph import Graph, TwoWeights, merge_edges, networkx_edges, symmetrize

if TYPE_CHECKING:
    import networkx

Index: TypeAlias = "pd.Index | None"  # of a data frame of features: ids that edges may use
Series: TypeAlias = "pd.Series"
Weight: TypeAlias = NDArray[np.float32]
Ends: TypeAlias = tuple[Indices, Indices]


def build_graph(edges: Given, weight: Given, num_nodes: int, names: Index = None, directed: bool = False) -> Graph:
    """The graph of `num_nodes` nodes.

    Args:
        edges: See `GFGNClassifier.fit`; `None` for no edges. The table in docs/graph.md says what every form means.
        names: The index of a data frame of features: ids that a data frame of edges or a NetworkX graph may use.
        directed: Whether to keep directions; otherwise the opposite of every edge is added.
    """
    given = None if weight is None else _read_weight(weight)
    if isinstance(edges, Tensor) and edges.layout != torch.strided:
        coo = edges.detach().cpu().to_sparse_coo().coalesce()
        edges = scipy.sparse.coo_array((to_numpy(coo.values()), coo.indices().numpy()), shape=tuple(coo.shape))
    found: Weight | None = None
    if isinstance(edges, Graph):
        kind = "a Graph: build the Graph with it"
    elif hasattr(edges, "tocoo"):
        kind = "a matrix, whose values are the weights"
        ends, found = _from_matrix(edges.tocoo(), num_nodes)
    elif hasattr(edges, "is_directed") and hasattr(edges, "nodes"):
        kind = "a NetworkX graph, whose edges have the weights"
        ends, found = _from_networkx(edges, num_nodes, names)
    elif isinstance(edges, pd.DataFrame):
        ends, found = _from_frame(edges, names)
        kind = "" if found is None else "a data frame that has the column weight"
    else:
        kind, ends = "", _from_array(edges, num_nodes, names)
    if given is not None and kind:
        raise ValueError(f"edge_weight must be None together with {kind}")
    if isinstance(edges, Graph):
        if edges.num_nodes != num_nodes:
            raise ValueError(f"X must have one row per node of the graph, {edges.num_nodes:,}, got {num_nodes:,}")
        return _from_graph(edges.to("cpu"), names, directed)
    if given is not None and given.size != ends[0].size:
        raise ValueError(f"edge_weight must have one value per edge, {ends[0].size:,}, got {given.size:,}")
    return _from_ends(ends, found if given is None else given, num_nodes, names, directed)


def _from_ends(ends: Ends, weight: Weight | None, num_nodes: int, names: Index, directed: bool) -> Graph:
    source, target = ends
    nodes = np.concatenate(ends)
    if nodes.size and not 0 <= nodes.min() <= nodes.max() < num_nodes:
        wrong = int(nodes[(nodes < 0) | (nodes >= num_nodes)][0])
        hint = "; in cross-validation, pass GraphNodes(X, edge_index) as X" if wrong >= num_nodes else ""
        hint = "; count nodes from 0, not from 1" if nodes.min() == 1 and nodes.max() == num_nodes else hint
        raise ValueError(f"edge_index must hold nodes 0 to {num_nodes - 1}, one per row of X, got {wrong}{hint}")
    if weight is not None:
        usable = np.isfinite(weight) & (weight >= 0)
        if not usable.all():
            raise ValueError(f"edge_weight must hold finite numbers, 0 or larger, got {weight[~usable][0]}")
        if not weight.all():  # an edge of weight 0 is no edge
            source, target, weight = source[weight > 0], target[weight > 0], weight[weight > 0]
    matrix = merge_edges(source.astype(np.int32), target.astype(np.int32), weight, num_nodes)
    if weight is not None and (matrix.data == 1).all():
        matrix = matrix.astype(np.int8)  # no weights
    return Graph.from_csr(matrix if directed else _symmetrize(matrix, names), undirected=not directed)


def _symmetrize(matrix: scipy.sparse.csr_array, names: Index) -> scipy.sparse.csr_array:
    try:
        return symmetrize(matrix)
    except TwoWeights as error:
        raise ValueError(error.message(int if names is None else names.tolist().__getitem__)) from None


def _from_graph(graph: Graph, names: Index, directed: bool) -> Graph:
    """The graph without edges of weight 0 and, unless `directed`, with the opposite of every edge."""
    if graph.num_targets is not None or graph.num_seeds is not None:
        raise ValueError(f"edge_index must be a Graph of all nodes, got a bipartite one or a sample: {graph}")
    if is_mapped(graph):  # as it was packed: to look at its edges would take them all into memory
        return graph
    weight = None if graph.weight is None else graph.weight.detach()
    same = graph.by_source.same_pattern(graph.by_target)
    symmetric = same and (weight is None or torch.equal(weight[graph.transpose], weight))
    if (weight is None or bool(weight.all())) and (directed or symmetric):
        return graph
    rows = graph.by_target
    values = torch.ones_like(rows.idx, dtype=torch.int8) if weight is None else weight
    arrays = tuple(array.numpy() for array in (values, rows.idx, rows.ptr))
    matrix = scipy.sparse.csr_array(arrays, shape=(graph.num_nodes, graph.num_nodes))
    if not matrix.has_canonical_format:
        raise ValueError("edge_index must be a Graph with every edge once, got one built with duplicates='keep'")
    matrix.eliminate_zeros()
    matrix = matrix if directed else _symmetrize(matrix, names)
    built = Graph.from_csr(matrix, undirected=not directed, batch=graph.batch)
    return replace(built, num_graphs=graph.num_graphs).to(graph.dtype)


def _from_array(edges: Given, num_nodes: int, names: Index) -> Ends:
    """An array, a tensor or an `EdgeIndex` of row numbers."""
    if hasattr(edges, "sparse_size") and set(edges.sparse_size()) - {None, num_nodes}:
        raise ValueError(f"edge_index must have {num_nodes:,} nodes, one per row of X, got {edges.sparse_size()}")
    edges = np.empty((2, 0), dtype=np.int64) if edges is None else edges
    array = np.asarray(to_numpy(edges.as_tensor() if hasattr(edges, "as_tensor") else edges))
    array = array.astype(np.int64) if array.shape == (2, 0) else array
    if array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        got = f"shape {list(array.shape)} of {array.dtype}{hint}"
        raise ValueError(f"edge_index must hold integers of shape [2, E], sources and targets, got {got}")
    array = array.astype(np.int64)
    _refuse_ids(array, num_nodes, names)
    return array[0], array[1]


def _refuse_ids(array: Indices, num_nodes: int, names: Index) -> None:
    """An array holds row numbers. If all of them are ids of other rows too, nobody can tell which are meant."""
    if names is None or names.nlevels > 1 or names.dtype.kind not in "iufO" or not names.is_unique:
        return
    nodes = np.unique(array)
    row = names.get_indexer(pd.Index(nodes))
    if nodes.size and 0 <= nodes[0] <= nodes[-1] < num_nodes and (row >= 0).all() and (row != nodes).any():
        node, other = int(nodes[row != nodes][0]), int(row[row != nodes][0])
        raise ValueError(
            f"edge_index could hold row numbers or ids of the index of X, where {node} is the id of row {other}: for "
            "ids, pass a data frame with the columns source and target, for row numbers X.reset_index(drop=True)"
        )


def _read_weight(values: Given) -> Weight:
    array = np.asarray(to_numpy(values))
    if array.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        got = repr(values) if isinstance(values, str) else f"values of {array.dtype}"
        raise ValueError(f"edge_weight must be one number per edge, got {got}")
    with np.errstate(over="ignore"):
        weight = array.astype(np.float32).reshape(-1)
    lost = array.reshape(-1)[(weight == 0) & (array.reshape(-1) != 0)]
    if lost.size:
        raise ValueError(f"edge_weight must be 0 or at least 1.4e-45, the smallest number in float32, got {lost[0]}")
    return weight


def _from_matrix(coo: scipy.sparse.coo_array, num_nodes: int) -> tuple[Ends, Weight]:
    """`A[i, j]` is the weight of the edge from `j` to `i`, as in `Graph.from_scipy`; repeated entries are added."""
    if coo.shape != (num_nodes, num_nodes):
        raise ValueError(f"edge_index must be a matrix of shape {(num_nodes, num_nodes)}, got {tuple(coo.shape)}")
    if coo.dtype == bool:  # whose sum is "or"
        coo = coo.copy()
        coo.sum_duplicates()
    return (coo.col.astype(np.int64), coo.row.astype(np.int64)), np.asarray(coo.data, dtype=np.float32)


def _from_networkx(graph: networkx.Graph[Given], num_nodes: int, names: Index) -> tuple[Ends, Weight | None]:
    _check_index(names)
    rows = {name: k for k, name in enumerate(range(num_nodes) if names is None else names)}
    for node in graph:
        if node not in rows and names is None:
            hint = "pass X as a data frame whose index holds the nodes, or Graph.from_networkx(graph, nodelist=…)"
            raise ValueError(f"edge_index must hold rows of X, 0 to {num_nodes - 1}, got the node {node!r}; {hint}")
        if node not in rows:
            raise ValueError(f"edge_index must hold ids of the index of X, got the node {node!r}")
    source, target, values = networkx_edges(graph, rows)
    ends = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    return ends, None if values is None else np.array(values, dtype=np.float32)


def _from_frame(frame: pd.DataFrame, names: Index) -> tuple[Ends, Weight | None]:
    columns = find_ends([str(name) for name in frame.columns], "edge_index", None, None, [])
    _check_index(names)
    source, target = (_rows_of(frame[name], names) for name in columns)
    return (source, target), _read_weight(frame["weight"]) if "weight" in frame.columns else None


def _rows_of(column: Series, names: Index) -> Indices:
    """The rows of the nodes that a column of edges holds."""
    values = column.to_numpy()
    if names is None:
        if values.dtype.kind not in "iu":
            raise ValueError("edge_index must hold row numbers where X is not a data frame, got other values")
        return values.astype(np.int64)
    rows = names.get_indexer(pd.Index(values))
    if (rows < 0).any():
        wrong = values[rows < 0][:1].tolist()[0]
        raise ValueError(f"edge_index must hold ids of the index of X, got {wrong!r} in column {column.name!r}")
    return rows.astype(np.int64)


def _check_index(names: Index) -> None:
    """Ids that edges name must be unique, as in tables."""
    if names is not None and not names.is_unique:
        row = int(names.duplicated().argmax())
        first, repeated = int((names == names[row]).argmax()), names[row : row + 1].tolist()[0]
        rows = f"rows {first} and {row}"
        raise ValueError(f"the index of X must hold every id once, got {repeated!r} more than once, in {rows}")
