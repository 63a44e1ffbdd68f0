"""Graphs as users have them: arrays, tensors, sparse matrices, data frames, NetworkX graphs and PyG `Data`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.mapped import is_mapped
from gfgn.data.splits import is_mask
from gfgn.data.tables import find_ends
from gfgn.graph import Graph, TwoWeights, merge_edges, networkx_edges, symmetrize

Indices = NDArray[np.int64]


class Nodes:
    """Some or all nodes of a graph: features and edges of the whole graph, and the indices of these nodes.

    Indexing selects nodes and keeps the graph, so that scikit-learn's cross-validation gives every fold the whole
    graph and the labels of its training nodes only:

        GridSearchCV(GFGNClassifier(), {"lr": [0.005, 0.05]}).fit(Nodes(X, edge_index), y)

    Args:
        X: Features of all nodes, as for `GFGNClassifier.fit`.
        edge_index: Edges, as for `GFGNClassifier.fit`.
        edge_weight: One weight per edge.
    """

    def __init__(self, X: Any, edge_index: Any = None, edge_weight: Any = None) -> None:
        X, edge_index, edge_weight, _, _ = unpack_data(X, edge_index, edge_weight)
        self.X, self.edge_index, self.edge_weight = X, edge_index, edge_weight
        self.index: Indices = np.arange(_num_rows(X))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of selected nodes, and number of features."""
        return self.index.size, self.X.shape[1]

    def __len__(self) -> int:
        return self.index.size

    def __getitem__(self, key: Any) -> Nodes:
        selected = Nodes(self.X, self.edge_index, self.edge_weight)
        selected.index = np.atleast_1d(self.index[key[0] if isinstance(key, tuple) else key])
        return selected

    def __repr__(self) -> str:
        return f"Nodes({self.index.size} of {_num_rows(self.X)} nodes, {self.shape[1]} features)"


@dataclass(frozen=True)
class Inputs:
    """What an estimator method was given: the features of all nodes, the edges, and the nodes that are meant."""

    X: Any
    edges: Any
    weight: Any
    nodes: Indices | None = None  # all nodes if None
    y: Any = None
    val_mask: Any = None


def unpack(X: Any, edge_index: Any, edge_weight: Any, y: Any = None, val_mask: Any = None) -> Inputs:
    """Takes `Nodes` and PyG `Data` apart; everything else stays as it is."""
    if isinstance(X, Nodes):
        if edge_index is not None or edge_weight is not None:
            raise ValueError("edge_index and edge_weight must not be given together with Nodes, which have edges")
        return Inputs(X.X, X.edge_index, X.edge_weight, X.index, y, val_mask)
    X, edge_index, edge_weight, labels, mask = unpack_data(X, edge_index, edge_weight)
    given = Inputs(X, edge_index, edge_weight, None, labels, mask)
    return replace(given, y=given.y if y is None else y, val_mask=given.val_mask if val_mask is None else val_mask)


def unpack_data(X: Any, edge_index: Any, edge_weight: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Features, edges, weights, labels and validation mask of a PyG `Data`; other `X` are returned with the edges.

    Labels of nodes in neither `train_mask` nor `val_mask` are left out, because they are for testing.
    """
    if not (hasattr(X, "num_nodes") and hasattr(X, "edge_index") and hasattr(X, "x")):
        return X, edge_index, edge_weight, None, None
    if X.x is None:
        raise ValueError("X must have features, got a Data whose x is None")
    given = X.get("adj_t") if X.edge_index is None else X.edge_index
    edges = given if edge_index is None else edge_index
    weight = X.get("edge_weight") if edge_weight is None and edge_index is None else edge_weight
    y, train, val = X.get("y"), _data_mask(X, "train_mask"), _data_mask(X, "val_mask")
    if y is not None and train is not None:
        known = train if val is None else train | val
        missing = torch.full_like(y, -1, dtype=torch.int64 if y.dim() == 1 else torch.float32)
        y = torch.where(known.view(-1, *[1] * (y.dim() - 1)), y.to(missing.dtype), missing)
    return X.x, edges, weight, y, val


def _data_mask(data: Any, name: str) -> Tensor | None:
    mask = data.get(name)
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or not is_mask(mask, data.x.size(0)):
        got = f"shape {list(mask.shape)} of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} of a Data must be a [N] tensor of booleans, got {got}; select one split of several")
    return mask.bool()


def to_numpy(values: Any) -> Any:
    """A tensor as an array; anything else unchanged."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def build_graph(edges: Any, weight: Any, num_nodes: int, names: Any = None, directed: bool = False) -> Graph:
    """The graph of `num_nodes` nodes.

    Args:
        edges: See `GFGNClassifier.fit`; `None` for no edges. The table in docs/graph.md says what every form means.
        names: The index of a data frame of features: ids that a data frame of edges or a NetworkX graph may use.
        directed: Whether to keep directions; otherwise the opposite of every edge is added.
    """
    if isinstance(edges, Graph):
        if weight is not None:
            raise ValueError("edge_weight must be None together with a Graph: build the Graph with it")
        if edges.num_nodes != num_nodes:
            raise ValueError(f"X must have one row per node of the graph, {edges.num_nodes:,}, got {num_nodes:,}")
        return _from_graph(edges.to("cpu"), names, directed)
    source, target, weight = _edge_arrays(edges, weight, num_nodes, names)
    ends = np.concatenate([source, target])
    if ends.size and not 0 <= ends.min() <= ends.max() < num_nodes:
        wrong = int(ends[(ends < 0) | (ends >= num_nodes)][0])
        hint = "; in cross-validation, pass Nodes(X, edge_index) as X" if wrong >= num_nodes else ""
        hint = "; count nodes from 0, not from 1" if ends.min() == 1 and ends.max() == num_nodes else hint
        raise ValueError(f"edge_index must hold nodes 0 to {num_nodes - 1}, one per row of X, got {wrong}{hint}")
    if weight is not None and not (np.isfinite(weight).all() and (weight >= 0).all()):
        bad = weight[~(np.isfinite(weight) & (weight >= 0))][0]
        raise ValueError(f"edge_weight must hold finite numbers, 0 or larger, got {bad}")
    if weight is not None and not weight.all():  # an edge of weight 0 is no edge
        source, target, weight = source[weight > 0], target[weight > 0], weight[weight > 0]
    matrix = merge_edges(source.astype(np.int32), target.astype(np.int32), weight, num_nodes)
    if weight is not None and (matrix.data == 1).all():
        matrix = matrix.astype(np.int8)  # no weights
    return Graph.from_csr(matrix if directed else _symmetrize(matrix, names), undirected=not directed)


def _symmetrize(matrix: scipy.sparse.csr_array, names: Any) -> scipy.sparse.csr_array:
    try:
        return symmetrize(matrix)
    except TwoWeights as error:
        raise ValueError(error.message(int if names is None else names.tolist().__getitem__)) from None


def _from_graph(graph: Graph, names: Any, directed: bool) -> Graph:
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
    built = Graph.from_csr(
        matrix if directed else _symmetrize(matrix, names), undirected=not directed, batch=graph.batch
    )
    return replace(built, num_graphs=graph.num_graphs).to(graph.dtype)


def _edge_arrays(edges: Any, weight: Any, num_nodes: int, names: Any) -> tuple[Indices, Indices, Any]:
    """Sources, targets and weights (or `None`)."""
    weight = None if weight is None else _read_weight(weight)
    if edges is None:
        edges = np.empty((2, 0), dtype=np.int64)
    if isinstance(edges, Tensor) and edges.layout != torch.strided:
        coo = edges.detach().cpu().to_sparse_coo().coalesce()
        edges = scipy.sparse.coo_array((to_numpy(coo.values()), coo.indices().numpy()), shape=tuple(coo.shape))
    if hasattr(edges, "tocoo"):
        return _from_matrix(edges.tocoo(), weight, num_nodes)
    if hasattr(edges, "is_directed") and hasattr(edges, "nodes"):
        return _from_networkx(edges, weight, num_nodes, names)
    if hasattr(edges, "columns") and hasattr(edges, "iloc"):
        return _from_frame(edges, weight, names)
    if hasattr(edges, "sparse_size") and set(edges.sparse_size()) - {None, num_nodes}:
        raise ValueError(f"edge_index must have {num_nodes:,} nodes, one per row of X, got {edges.sparse_size()}")
    array = np.asarray(to_numpy(edges.as_tensor() if hasattr(edges, "as_tensor") else edges))
    array = array.astype(np.int64) if array.shape == (2, 0) else array
    if array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        got = f"shape {list(array.shape)} of {array.dtype}{hint}"
        raise ValueError(f"edge_index must hold integers of shape [2, E], sources and targets, got {got}")
    array = array.astype(np.int64)
    _refuse_ids(array, num_nodes, names)
    return array[0], array[1], _checked_weight(weight, array.shape[1])


def _refuse_ids(array: Indices, num_nodes: int, names: Any) -> None:
    """An array holds row numbers. If all of them are ids of other rows too, nobody can tell which are meant."""
    if names is None or names.nlevels > 1 or names.dtype.kind not in "iufO" or not names.is_unique:
        return
    nodes = np.unique(array)
    row = names.get_indexer(nodes)
    if nodes.size and 0 <= nodes[0] <= nodes[-1] < num_nodes and (row >= 0).all() and (row != nodes).any():
        node, other = int(nodes[row != nodes][0]), int(row[row != nodes][0])
        raise ValueError(
            f"edge_index could hold row numbers or ids of the index of X, where {node} is the id of row {other}: for "
            "ids, pass a data frame with the columns source and target, for row numbers X.reset_index(drop=True)"
        )


def _read_weight(values: Any) -> NDArray[np.float32]:
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


def _checked_weight(weight: Any, count: int) -> Any:
    if weight is not None and weight.size != count:
        raise ValueError(f"edge_weight must have one value per edge, {count:,}, got {weight.size:,}")
    return weight


def _from_matrix(coo: Any, weight: Any, num_nodes: int) -> tuple[Indices, Indices, Any]:
    """`A[i, j]` is the weight of the edge from `j` to `i`, as in `Graph.from_scipy`; repeated entries are added."""
    if weight is not None:
        raise ValueError("edge_weight must be None together with a matrix, whose values are the weights")
    if coo.shape != (num_nodes, num_nodes):
        raise ValueError(f"edge_index must be a matrix of shape {(num_nodes, num_nodes)}, got {tuple(coo.shape)}")
    if coo.dtype == bool:  # whose sum is "or"
        coo = coo.copy()
        coo.sum_duplicates()
    return coo.col.astype(np.int64), coo.row.astype(np.int64), np.asarray(coo.data, dtype=np.float32)


def _from_networkx(graph: Any, weight: Any, num_nodes: int, names: Any) -> tuple[Indices, Indices, Any]:
    if weight is not None:
        raise ValueError("edge_weight must be None together with a NetworkX graph, whose edges have the weights")
    _check_index(names)
    rows = {name: k for k, name in enumerate(range(num_nodes) if names is None else names)}
    unknown = [node for node in graph if node not in rows]
    if unknown and names is None:
        hint = "pass X as a data frame whose index holds the nodes, or Graph.from_networkx(graph, nodelist=…)"
        raise ValueError(f"edge_index must hold rows of X, 0 to {num_nodes - 1}, got the node {unknown[0]!r}; {hint}")
    if unknown:
        raise ValueError(f"edge_index must hold ids of the index of X, got the node {unknown[0]!r}")
    source, target, values = networkx_edges(graph, rows)
    ends = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    return *ends, None if values is None else np.array(values, dtype=np.float32)


def _from_frame(frame: Any, weight: Any, names: Any) -> tuple[Indices, Indices, Any]:
    columns = find_ends([str(name) for name in frame.columns], "edge_index", None, None, [])
    _check_index(names)
    ends = []
    for name in columns:
        column = frame[name].to_numpy()
        position = column if names is None else names.get_indexer(column)
        if names is not None and (position < 0).any():
            wrong = column[position < 0][:1].tolist()[0]
            raise ValueError(f"edge_index must hold ids of the index of X, got {wrong!r} in column {name!r}")
        ends.append(np.asarray(position))
    if names is None and any(end.dtype.kind not in "iu" for end in ends):
        raise ValueError("edge_index must hold row numbers where X is not a data frame, got other values")
    if "weight" in frame.columns:
        if weight is not None:
            raise ValueError("edge_weight must be None together with a data frame that has the column weight")
        weight = _read_weight(frame["weight"])
    return ends[0].astype(np.int64), ends[1].astype(np.int64), _checked_weight(weight, len(frame))


def _check_index(names: Any) -> None:
    """Ids that edges name must be unique, as in tables."""
    if names is not None and not names.is_unique:
        row = int(names.duplicated().argmax())
        first, repeated = int((names == names[row]).argmax()), names[row : row + 1].tolist()[0]
        rows = f"rows {first} and {row}"
        raise ValueError(f"the index of X must hold every id once, got {repeated!r} more than once, in {rows}")


def _num_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
