"""One graph in every form: predictions of a fitted classifier and outputs of a layer are the same, or an error says why
they cannot be. The table "One graph, one meaning" in docs/graph.md is what is tested here."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.edge_index import EdgeIndex

from gfgn import GFGNClassifier, GFGNConv, Graph, GraphNodes
from gfgn.data import ReadOptions, pack_tables, read
from gfgn.estimator.edges import build_graph

N = 30  # the last two nodes have no edges
random = np.random.default_rng(0)
X = random.normal(size=(N, 4)).astype(np.float32)
Y = random.integers(2, size=N)
COLUMNS = ["x0", "x1", "x2", "x3"]  # as those of an array
ORDER = random.permutation(N)
pytestmark = pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names:UserWarning")
Rows = list[tuple[int, int, float]]  # source, target, weight: a graph as a list of edges


def make_rows(directed: bool, weights: str) -> Rows:
    """Edges in no order: some repeated, some with their opposite, one a self-loop, one of weight 0."""
    weighted = weights == "weighted"
    pairs = {(int(u), int(v)) for u, v in random.integers(N - 2, size=(70, 2)) if u < v}
    rows = [(u, v, float(random.integers(1, 9)) / 4 if weighted else 1.0) for u, v in sorted(pairs)]
    rows = [(v, u, w) if random.random() < 0.5 else (u, v, w) for u, v, w in rows]
    if directed:
        rows += [(v, u, w + weighted) for u, v, w in rows[:8]]
        rows += [(u, v, w / 2 if weighted else w) for u, v, w in rows[4:12]]
    else:
        rows += [(v, u, w) for u, v, w in rows[:8]]
        rows += [(u, v, w / 2 if weighted else w) for u, v, w in rows[8:16]]
    rows += [(3, 3, 1.0)]
    if weighted:
        absent = next((u, v) for u in range(N - 2) for v in range(u) if not {(u, v), (v, u)} & pairs)
        rows += [(*absent, 0.0)]
    return [rows[k] for k in random.permutation(len(rows))]


WEIGHTS = ["unweighted", "ones", "weighted"]  # of "ones", repeated edges make an edge of weight 2
CASES = {(directed, weights): make_rows(directed, weights) for directed in (False, True) for weights in WEIGHTS}


def matrix_of(rows: Rows, weighted: bool, directed: bool = True) -> NDArray[np.float32]:
    """`A` by its definition: rows are targets, repeated edges are added if they have weights, no self-loops."""
    A = np.zeros((N, N), np.float32)
    for u, v, w in rows:
        if u != v:
            A[v, u] = A[v, u] + w if weighted else 1
    return A if directed else np.maximum(A, A.T)


@pytest.fixture(scope="module", params=[False, True], ids=["undirected", "directed"])
def fitted(request: pytest.FixtureRequest) -> GFGNClassifier:
    """The gate of the neighbor level reads weights, the number of neighbors and directions."""
    clf = GFGNClassifier("neighbor", max_epochs=5, device="cpu", random_state=0, directed=request.param)
    rows = CASES[request.param, "weighted"]
    return clf.fit(X, Y, np.array([row[:2] for row in rows]).T, [row[2] for row in rows])


# --- forms of the same graph ----------------------------------------------------------------------

Form = Callable[[Rows, bool, bool], tuple[Any, ...]]  # rows, weighted, directed -> X, edge_index, edge_weight


def arrays_of(rows: Rows, weighted: bool) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    edges = np.array([row[:2] for row in rows]).T
    return edges, np.array([row[2] for row in rows], np.float32) if weighted else None


def frame_of(rows: Rows, weighted: bool, ids: Any = range(N)) -> pd.DataFrame:
    frame = pd.DataFrame([(ids[u], ids[v], w) for u, v, w in rows], columns=["source", "target", "weight"])
    return frame if weighted else frame[["source", "target"]]


def coo_of(rows: Rows, weighted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows are targets. A matrix has a value for every entry: a repeated edge without a weight is one entry."""
    if not weighted:
        rows = [(u, v, 1.0) for u, v in {row[:2] for row in rows}]
    edges, weight = arrays_of(rows, True)
    return torch.from_numpy(edges[::-1].copy()), torch.from_numpy(weight)


def scipy_of(rows: Rows, weighted: bool) -> sp.coo_array:
    index, weight = coo_of(rows, weighted)
    return sp.coo_array((weight.numpy(), tuple(index.numpy())), shape=(N, N))


def tensor_of(rows: Rows, weighted: bool) -> torch.Tensor:
    return torch.sparse_coo_tensor(*coo_of(rows, weighted), size=(N, N))


def repeated_csr(rows: Rows, weighted: bool) -> sp.csr_array:
    """A CSR matrix that holds entries twice."""
    coo = scipy_of(rows, weighted)
    order = np.argsort(coo.row, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(coo.row, minlength=N))])
    return sp.csr_array((coo.data[order], coo.col[order], ptr), shape=(N, N))


def networkx_of(rows: Rows, weighted: bool, kind: Any, ids: Any = range(N)) -> Any:
    """Nodes come in the order of the edges; those without edges are missing."""
    graph = kind()
    for u, v, w in rows:
        graph.add_edge(ids[u], ids[v], **{"weight": w} if weighted else {})
    return graph


def simple_rows(rows: Rows, weighted: bool, directed: bool) -> Rows:
    """Every edge once, as the simple graphs of NetworkX hold them."""
    A = matrix_of(rows, weighted, directed)
    return [(u, v, float(A[v, u])) for v, u in np.argwhere(A if directed else np.tril(A)).tolist()]


STRINGS = [f"n{k}" for k in range(N)]
GAPS = (7 * np.arange(N) + 3).tolist()  # integers that are not row numbers


def with_ids(ids: Any) -> pd.DataFrame:
    """The features as a data frame with these ids, its rows in another order."""
    return pd.DataFrame(X, columns=COLUMNS, index=pd.Index(ids)).iloc[ORDER]


def array_form(change: Callable[[NDArray[np.int64]], Any]) -> Form:
    def form(rows: Rows, weighted: bool, directed: bool) -> tuple[Any, ...]:
        edges, weight = arrays_of(rows, weighted)
        return X, change(edges), weight

    return form


def matrix_form(make: Callable[[Rows, bool], Any], change: Callable[[Any], Any] = lambda A: A) -> Form:
    return lambda rows, weighted, directed: (X, change(make(rows, weighted)), None)


def network_form(kind: Any, ids: Any = range(N), simple: bool = False) -> Form:
    def form(rows: Rows, weighted: bool, directed: bool) -> tuple[Any, ...]:
        rows = simple_rows(rows, weighted, directed) if simple else rows
        return X if ids == range(N) else with_ids(ids), networkx_of(rows, weighted, kind, ids), None

    return form


def frame_form(ids: Any, change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame) -> Form:
    def form(rows: Rows, weighted: bool, directed: bool) -> tuple[Any, ...]:
        return X if ids == range(N) else with_ids(ids), change(frame_of(rows, weighted, ids)), None

    return form


def data_form(rows: Rows, weighted: bool, directed: bool) -> tuple[Any, ...]:
    edges, weight = arrays_of(rows, weighted)
    values = {} if weight is None else {"edge_weight": torch.from_numpy(weight)}
    return Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(edges), **values), None, None


def graph_form(rows: Rows, weighted: bool, directed: bool) -> tuple[Any, ...]:
    edges, weight = arrays_of(rows, weighted)
    return (
        X,
        Graph.from_edge_index(torch.from_numpy(edges), N, None if weight is None else torch.from_numpy(weight)),
        None,
    )


FORMS: dict[str, Form] = {
    "array": array_form(lambda edges: edges),
    "array, not contiguous": array_form(lambda edges: np.repeat(edges, 2, 1)[:, ::2]),
    "array of uint8": array_form(lambda edges: edges.astype(np.uint8)),
    "lists": array_form(lambda edges: edges.tolist()),
    "tensor": array_form(torch.from_numpy),
    "tensor of int32, not contiguous": array_form(lambda edges: torch.from_numpy(edges.T.astype(np.int32).copy()).t()),
    "EdgeIndex": array_form(lambda edges: EdgeIndex(torch.from_numpy(edges).contiguous(), sparse_size=(N, N))),
    "COO tensor": matrix_form(tensor_of),
    "CSR tensor": matrix_form(tensor_of, lambda A: A.coalesce().to_sparse_csr()),
    "CSC tensor": matrix_form(tensor_of, lambda A: A.coalesce().to_sparse_csc()),
    "COO array": matrix_form(scipy_of),
    "COO matrix": matrix_form(scipy_of, sp.coo_matrix),
    "CSR array": matrix_form(scipy_of, sp.csr_array),
    "CSC matrix": matrix_form(scipy_of, sp.csc_matrix),
    "LIL array": matrix_form(scipy_of, sp.lil_array),
    "CSR array with repeated entries": matrix_form(repeated_csr),
    "frame": frame_form(range(N)),
    "frame, strings as ids": frame_form(STRINGS),
    "frame, categories as ids": frame_form(STRINGS, lambda f: f.astype({"source": "category", "target": "category"})),
    "frame, integers as ids": frame_form(GAPS),
    "frame, integers in another order as ids": frame_form(ORDER.tolist()),
    "MultiDiGraph": network_form(nx.MultiDiGraph),
    "MultiDiGraph, strings as ids": network_form(nx.MultiDiGraph, STRINGS),
    "DiGraph": network_form(nx.DiGraph, simple=True),
    "DiGraph, integers as ids": network_form(nx.DiGraph, GAPS, simple=True),
    "Graph of NetworkX": network_form(nx.Graph, simple=True),
    "Graph of NetworkX, strings as ids": network_form(nx.Graph, STRINGS, simple=True),
    "MultiGraph": network_form(nx.MultiGraph, simple=True),
    "Data": data_form,
    "Graph": graph_form,
    "Graph, both directions": lambda rows, weighted, directed: (
        X,
        Graph.from_scipy(sp.csr_array(matrix_of(rows, weighted, directed))),
        None,
    ),
    "Graph from a COO array": matrix_form(scipy_of, Graph.from_scipy),
    "Graph from a COO tensor": matrix_form(tensor_of, Graph.from_sparse),
    "Graph from NetworkX": lambda rows, weighted, directed: (
        X,
        Graph.from_networkx(networkx_of(rows, weighted, nx.MultiDiGraph), nodelist=range(N)),
        None,
    ),
    "Graph from Data": lambda *case: (X, Graph.from_data(data_form(*case)[0]), None),
    "Nodes": lambda *case: (GraphNodes(*graph_form(*case)), None, None),
    "Nodes with a frame": lambda *case: (GraphNodes(*FORMS["frame, strings as ids"](*case)), None, None),
}
ONE_WAY = ("Graph of NetworkX", "Graph of NetworkX, strings as ids", "MultiGraph")  # undirected by themselves


@functools.cache
def reference(clf: GFGNClassifier, weights: str) -> NDArray[np.float64]:
    A = matrix_of(CASES[clf.directed, weights], weights != "unweighted", clf.directed)
    return clf.predict_proba(X, sp.csr_array(A))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("form", FORMS)
def test_predictions_do_not_depend_on_the_form(fitted: GFGNClassifier, form: str, weights: str) -> None:
    if fitted.directed and form in ONE_WAY:
        pytest.skip("an undirected graph")
    rows, weighted = CASES[fitted.directed, weights], weights != "unweighted"
    features, edges, weight = FORMS[form](rows, weighted, fitted.directed)
    p = fitted.predict_proba(features, edges, weight)
    if isinstance(features, pd.DataFrame) or isinstance(getattr(features, "X", None), pd.DataFrame):
        p = p[np.argsort(ORDER)]
    np.testing.assert_allclose(p, reference(fitted, weights), rtol=1e-5)


def write_tables(folder: Path, rows: Rows, weighted: bool) -> Path:
    ids = [f"n{k}" for k in range(N)]
    folder.mkdir()
    pd.DataFrame(X, columns=COLUMNS).assign(id=ids).to_csv(folder / "nodes.csv", index=False)
    frame_of(rows, weighted, ids).to_csv(folder / "edges.csv", index=False)
    return folder


@pytest.mark.parametrize("weights", WEIGHTS)
def test_predictions_do_not_depend_on_the_file(tmp_path: Path, fitted: GFGNClassifier, weights: str) -> None:
    rows, weighted = CASES[fitted.directed, weights], weights != "unweighted"
    edges, weight = arrays_of(rows, weighted)
    folder, undirected = write_tables(tmp_path / "tables", rows, weighted), not fitted.directed
    np.savez(tmp_path / "a.npz", edge_index=edges, x=X, **{} if weight is None else {"edge_weight": weight})
    options = ReadOptions(undirected=undirected)
    graphs = {
        "CSV": read(folder, undirected=undirected).graph,
        "npz": read(tmp_path / "a.npz", undirected=undirected).graph,
        "Data": read(data_form(rows, weighted, False)[0], undirected=undirected).graph,
        "store": pack_tables(folder, tmp_path / "store", options).dataset().graph,
    }
    for name, graph in graphs.items():
        p = fitted.predict_proba(X, graph)
        np.testing.assert_allclose(p, reference(fitted, weights), rtol=1e-5, err_msg=name)


# --- layers ---------------------------------------------------------------------------------------

LAYER_FORMS = ["tensor", "tensor of int32, not contiguous", "EdgeIndex", "COO tensor", "CSR tensor", "CSC tensor"]
LAYER_FORMS += ["Graph", "Graph from a COO array", "Graph from a COO tensor", "Graph from NetworkX", "Graph from Data"]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("form", LAYER_FORMS)
@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_outputs_do_not_depend_on_the_form(level: str, form: str, weights: str) -> None:
    """A layer adds no opposite edges, and keeps edges of weight 0: a gradient may flow to them."""
    rows, weighted = CASES[True, weights], weights != "unweighted"
    conv = GFGNConv(4, 3, level=level)
    _, edges, weight = FORMS[form](rows, weighted, True)
    A = matrix_of(rows, weighted)
    zeros = [(u, v) for u, v, w in rows if w == 0]
    stored = sp.coo_array(A)
    values = np.concatenate([stored.data, np.zeros(len(zeros), np.float32)])
    index = [np.concatenate([stored.coords[k], [zero[1 - k] for zero in zeros]]) for k in range(2)]
    expected = conv(torch.from_numpy(X), Graph.from_scipy(sp.coo_array((values, tuple(index)), shape=(N, N))))
    out = conv(torch.from_numpy(X), edges, None if weight is None else torch.from_numpy(weight))
    torch.testing.assert_close(out, expected)


# --- what is no form of the same graph ------------------------------------------------------------


def test_a_graph_keeps_its_batch_and_its_self_loops(fitted: GFGNClassifier) -> None:
    edges = torch.tensor([[0, 1, 4], [1, 2, 5]])
    graph = Graph.from_edge_index(edges, N, batch=(torch.arange(N) > 3).long(), batch_size=3, self_loops="add")
    built = build_graph(graph, None, N, directed=fitted.directed)
    assert built.num_graphs == 3
    assert built.num_edges == N + (3 if fitted.directed else 6)
    assert torch.equal(built.batch, graph.batch)  # type: ignore[arg-type]


EDGES = np.array([[0, 1, 2], [1, 2, 3]])
TWICE = torch.tensor([[0, 0], [1, 1]])
HEAVY = nx.DiGraph([(0, 1, {"weight": "heavy"})])
WEIGHTED = pd.DataFrame({"source": [0], "target": [1], "weight": [2.0]})
NAMED = nx.relabel_nodes(nx.path_graph(N, nx.DiGraph), dict(enumerate(STRINGS)))


def weigh(weight: Any) -> Graph:
    return build_graph(EDGES[:, :2], weight, 3)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "bipartite": (lambda: build_graph(Graph.bipartite(TWICE, (N - 2, 2)), None, N), "a Graph of all nodes"),
    "duplicates": (lambda: build_graph(Graph.from_edge_index(TWICE, N, duplicates="keep"), None, N), "'keep'"),
    "names": (lambda: build_graph(NAMED, None, N), "rows of X, 0 to 29.*'n0'"),
    "names, no ids": (lambda: build_graph(NAMED, None, N, pd.RangeIndex(N)), "index of X.*'n0'"),
    "from 1": (lambda: build_graph(nx.relabel_nodes(nx.path_graph(N), lambda k: k + 1), None, N), "node 30"),
    "another order": (lambda: Graph.from_networkx(nx.DiGraph([(2, 0), (0, 1)])), r"nodelist=range\(3\)"),
    "nodelist": (lambda: Graph.from_networkx(nx.DiGraph([(2, 0)]), nodelist=[0, 1]), "nodelist .*none that is 2"),
    "nodelist twice": (lambda: Graph.from_networkx(nx.DiGraph([(2, 0)]), nodelist=[0, 2, 2]), "nodelist .*2 in 3"),
    "ids or rows": (lambda: build_graph(EDGES, None, 4, pd.Index([3, 2, 1, 0])), "0 is the id of row 3"),
    "ids twice": (lambda: build_graph(WEIGHTED, None, 4, pd.Index([3, 2, 1, 1])), "index of X .*1 more than once"),
    "weight by name": (lambda: weigh("amount"), "edge_weight .*'amount'"),
    "texts": (lambda: weigh(list("ab")), "edge_weight .*<U1"),
    "complex": (lambda: weigh(np.array([1j, 2j])), "edge_weight .*complex128"),
    "missing": (lambda: weigh(pd.array([1, None], dtype="Int64")), "edge_weight .*finite.*nan"),
    "tiny": (lambda: weigh([1.0, 1e-60]), "edge_weight .*1.4e-45.*1e-60"),
    "weights twice": (lambda: build_graph(WEIGHTED, [3.0], 2), "edge_weight .*None.*column weight"),
    "heavy": (lambda: build_graph(HEAVY, None, 2), "edge_weight .*'heavy'"),
    "heavy graph": (lambda: Graph.from_networkx(HEAVY), "edge_weight .*'heavy'"),
    "array": (lambda: GFGNConv(1, 1)(torch.ones(2, 1), TWICE, np.ones(2)), r"edge_weight .*\[E\].*ndarray"),
    "other size": (lambda: build_graph(EdgeIndex(TWICE, sparse_size=(5, 5)), None, 4), r"4 nodes.*\(5, 5\)"),
    "too many": (lambda: build_graph([[1, 2], [2, 3]], None, 3), "0 to 2.*got 3.*not from 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_nodes_have_one_row() -> None:
    """They are row numbers, or ids of the index of `X`, and never counted in the order in which they come."""
    assert Graph.from_networkx(nx.DiGraph([(2, 0)]), nodelist=[0, 1, 2]).edge_index.tolist() == [[2], [0]]
    assert Graph.from_networkx(nx.DiGraph([(2, 0), (0, 1)]), nodelist=[2, 0, 1]).edge_index.tolist() == [[0, 1], [1, 2]]
    for names in (pd.RangeIndex(4), pd.Index([0, 1, 2, 4]), pd.Index(["3", "2", "1", "0"]), pd.Index([3, 2, 1, 1])):
        assert build_graph(EDGES, None, 4, names).num_edges == 6
    assert Graph.from_edge_index(EdgeIndex(TWICE, sparse_size=(5, 5))).num_nodes == 5  # without edges at the end
    assert build_graph([[], []], None, 3).num_edges == 0


def test_repeated_entries_of_a_matrix_of_booleans() -> None:
    matrix = sp.coo_array((np.ones(3, bool), ([0, 0, 1], [1, 1, 2])), shape=(N, N))
    tensor = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.ones(3, dtype=torch.bool), (N, N))
    read = [build_graph(given, None, N, directed=True) for given in (matrix, tensor)]
    for graph in (*read, Graph.from_scipy(matrix), Graph.from_sparse(tensor)):
        assert graph.edge_index.tolist() == [[1, 2], [0, 1]]
        assert graph.degree[:2].tolist() == [1, 1]


@pytest.mark.parametrize("rows", [[(0, 1, 1.0), (1, 0, 2.0)], [(0, 1, 0.5), (0, 1, 0.5), (1, 0, 2.0)]])
@pytest.mark.parametrize("form", ["array", "COO array", "frame, strings as ids", "MultiDiGraph", "Graph", "Nodes"])
def test_two_weights_of_an_undirected_edge(fitted: GFGNClassifier, form: str, rows: Rows) -> None:
    """As (0, 1), (0, 1) they would be repeated edges, whose weights are added."""
    given = FORMS[form](rows, True, True)
    if fitted.directed:
        assert fitted.predict_proba(*given).shape == (N, 2)
        return
    names = ("'n0'", "'n1'") if "strings" in form else ("0", "1")
    found = [f"got 1 from {u} to {v} and 2 from {v} to {u}" for u, v in (names, names[::-1])]
    found += [f"got 2 from {v} to {u} and 1 from {u} to {v}" for u, v in (names, names[::-1])]
    with pytest.raises(
        ValueError, match=f"same in both directions of an edge unless directed=True, ({'|'.join(found)})"
    ):
        fitted.predict_proba(*given)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_every_type(dtype: torch.dtype) -> None:
    """Weights of 16 bits are added as float32: 3,000 times 0.1 is no 256."""
    edges, weight = torch.tensor([[0, 2] * 3000, [1, 3] * 3000]), torch.tensor([0.1, 1.0] * 3000).to(dtype)
    expected = weight[:2].double() * 3000
    direct, read = (
        Graph.from_edge_index(edges, 4, weight, dtype=torch.float32),
        build_graph(edges, weight, 4, None, True),
    )
    for graph in (direct, read):
        torch.testing.assert_close(graph.degree[[1, 3]].double(), expected, rtol=1e-3, atol=0)
    assert Graph.from_edge_index(edges, 4, weight).dtype == (dtype if dtype.is_floating_point else torch.float32)


def test_a_data_may_have_a_matrix(fitted: GFGNClassifier) -> None:
    """Its edges were none, in silence."""
    rows = CASES[fitted.directed, "weighted"]
    data = Data(x=torch.from_numpy(X), adj_t=tensor_of(rows, True).coalesce().to_sparse_csr())
    np.testing.assert_allclose(fitted.predict_proba(data), reference(fitted, "weighted"), rtol=1e-5)
