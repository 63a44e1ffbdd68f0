"""`NodeDataset` validates its fields, and its fingerprints depend on the contents alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from gfgn import Graph
from gfgn.data import NodeDataset, Split, load


def small(**changes: Any) -> NodeDataset:
    node = torch.arange(6)
    fields: dict[str, Any] = {
        "name": "small",
        "graph": Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=6),
        "x": torch.randn(6, 3),
        "y": torch.tensor([0, 1, 0, 1, 0, -1]),
        "num_classes": 2,
        "metric": "accuracy",
        "feature_names": ["a", "b", "c"],
        "splits": [Split(node < 2, (node >= 2) & (node < 4), node == 4)],
    }
    return NodeDataset(**{**fields, **changes})


def test_sizes() -> None:
    data = small(smooth_dimensions=torch.tensor([True, False, True]))
    assert (data.num_nodes, data.num_features) == (6, 3)
    assert "num_nodes=6, num_edges=3, num_features=3, num_classes=2, splits=1" in repr(data)
    assert data.to("cpu") is data
    assert small(x=torch.randn(6, 3).to_sparse_csr()).num_features == 3


def test_an_edge_of_weight_0_is_refused() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 6, torch.tensor([1.0, 0.0, 2.0]))
    with pytest.raises(ValueError, match="graph must have no edge of weight 0, got 1: leave them out"):
        small(graph=graph)


def test_a_graph_without_labels() -> None:
    data = small(y=torch.full((6,), -1), num_classes=0, splits=[])
    assert (data.num_classes, data.splits) == (0, [])
    with pytest.raises(ValueError, match="got 0 at node 0"):
        small(num_classes=0, splits=[])


def test_to_moves_all_tensors() -> None:
    moved = small(smooth_dimensions=torch.ones(3, dtype=torch.bool), class_names=["a", "b"]).to("meta")
    assert moved.class_names == ["a", "b"]
    assert moved.smooth_dimensions is not None
    tensors = [moved.x, moved.y, moved.smooth_dimensions, *moved.splits[0], moved.graph.norm]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


# --- multi-label data, several graphs --------------------------------------------------------------------------------

NODE = torch.arange(6)


def in_batches(sizes: list[int], split: Split) -> NodeDataset:
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    edges = torch.empty(2, 0, dtype=torch.int64)
    graph = Graph.from_edge_index(edges, num_nodes=6, batch=batch, batch_size=len(sizes))
    return small(graph=graph, y=NODE % 2, splits=[split])


def test_multilabel() -> None:
    data = small(y=torch.rand(6, 4) > 0.5, num_classes=4, metric="micro_f1")
    assert data.multilabel
    assert not small().multilabel
    whole = small(y=torch.zeros(6, 4, dtype=torch.bool), num_classes=4, metric="micro_f1")
    assert whole.splits[0].test.sum() == 1, "a node without any label is a labelled node"


def test_inductive_where_no_split_divides_a_graph() -> None:
    thirds = Split(NODE < 2, (NODE >= 2) & (NODE < 4), NODE >= 4)
    assert in_batches([2, 2, 2], thirds).inductive
    assert in_batches([1, 1, 2, 1, 1], thirds).inductive
    assert not in_batches([3, 3], thirds).inductive
    assert not in_batches([6], thirds).inductive, "there is one graph only"
    assert not small().inductive
    both = dataclasses.replace(in_batches([2, 2, 2], thirds), splits=[thirds, Split(NODE < 1, NODE == 1, NODE >= 2)])
    assert not both.inductive, "every split must keep the graphs whole"
    partial = Split(NODE < 1, NODE == 2, NODE >= 4)
    assert in_batches([2, 2, 2], partial).inductive, "nodes in no part are ignored"


# --- fingerprints ----------------------------------------------------------------------------------------------------

FIXED = torch.tensor([[0.5, 0.0, 1.0], [0.0, 0.0, 0.0], [2.0, -1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 1.0, 1.0], [0, 0, 4]])


def test_fingerprints_are_pinned() -> None:
    """Results are stored by fingerprint: if this fails, earlier results are not recognized."""
    data = small(x=FIXED)
    assert data.fingerprint == "90fe0d9f3bbf430fd5163bb2031d48e2"
    assert data.split_fingerprint(0) == "319067189909b5729a5223c0c81a5c63"


def test_fingerprints_depend_on_the_contents_only() -> None:
    data = small(x=FIXED)
    equivalent: list[dict[str, Any]] = [
        {"name": "another"},
        {"description": "a description"},
        {"class_names": ["a", "b"], "node_ids": np.arange(6)},
        {"splits": []},
        {"x": FIXED.to_sparse_csr()},
        {"x": FIXED.double()},
        {"graph": data.graph.to(torch.float64)},
        {"graph": Graph.from_edge_index(torch.tensor([[2, 0, 1], [3, 1, 2]]), num_nodes=6)},
    ]
    for changes in equivalent:
        assert small(**{"x": FIXED, **changes}).fingerprint == data.fingerprint, changes


def test_every_change_changes_the_fingerprint() -> None:
    one_edge_else = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 4]]), num_nodes=6)
    weighted = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 6, torch.tensor([1.0, 1.0, 2.0]))
    batched = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 6, batch=NODE // 4)
    labels = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 0]], dtype=torch.bool)
    other_labels = labels.clone()
    other_labels[5, 1] = True
    moved = FIXED.clone()
    moved[5] = torch.tensor([0.0, 4.0, 0.0])
    changes: list[dict[str, Any]] = [
        {},
        {"graph": one_edge_else},
        {"graph": weighted},
        {"graph": batched},
        {"x": moved},
        {"x": FIXED + 1e-6},
        {"y": torch.tensor([0, 1, 0, 1, 0, 0])},
        {"num_classes": 3},
        {"metric": "roc_auc"},
        {"y": labels, "metric": "micro_f1"},
        {"y": other_labels, "metric": "micro_f1"},
    ]
    assert len({small(**{"x": FIXED, **change}).fingerprint for change in changes}) == len(changes)


def test_blocks_are_the_same_for_dense_and_sparse_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgn.data.fingerprint.VALUES", 6)
    x = FIXED.to_sparse_csr()
    with_a_zero = torch.sparse_csr_tensor(
        [0, 2, 3, 5, 6, 9, 10],
        [2, 0, 1, 0, 1, 1, 0, 1, 2, 2],
        x.values().new_tensor([1.0, 0.5, 0.0, 2.0, -1.0, 3.0, 1.0, 1.0, 1.0, 4.0]),
        size=(6, 3),
        check_invariants=False,
    )
    assert torch.equal(with_a_zero.to_dense(), FIXED)
    assert len({small(x=features).fingerprint for features in (FIXED, x, with_a_zero)}) == 1


def test_split_fingerprints() -> None:
    other = Split(NODE < 1, (NODE >= 2) & (NODE < 4), NODE == 4)
    data = small(splits=[*small().splits, other, *small(x=FIXED).splits])
    first, second, third = (data.split_fingerprint(k) for k in range(3))
    assert first == third != second
    swapped = Split(*reversed(other))
    assert small(splits=[swapped]).split_fingerprint(0) != second
    for k in (-1, 3):
        with pytest.raises(IndexError, match=f"k must be the index of a split, 0 to 2, got {k}"):
            data.split_fingerprint(k)


def test_to_keeps_cached_properties() -> None:
    thirds = Split(NODE < 2, (NODE >= 2) & (NODE < 4), NODE >= 4)
    data = in_batches([2, 2, 2], thirds)
    assert data.inductive
    expected = data.fingerprint
    there = data.to("meta")  # where nothing can be computed
    assert there.fingerprint == expected
    assert there.inductive


BAD: list[tuple[dict[str, Any], str]] = [
    ({"metric": "f1"}, "metric must be one of 'accuracy', 'balanced_accuracy', .* 'micro_f1', got 'f1'"),
    ({"metric": "micro_f1"}, r"metric must be one of .* for y of one class per node \(\[N\]\), got 'micro_f1'"),
    (
        {"y": torch.ones(6, 2, dtype=torch.bool)},
        r"metric must be one of .* for multi-label y \(\[N, L\]\), got 'accuracy'",
    ),
    (
        {"y": torch.ones(6, 3, dtype=torch.bool), "metric": "micro_f1"},
        r"y must be \[6, 2\] of bool, got \[6, 3\] of torch.bool",
    ),
    (
        {"y": torch.ones(6, 2), "metric": "micro_f1"},
        r"y must be \[6, 2\] of bool, got \[6, 2\] of torch.float32",
    ),
    ({"x": torch.randn(5, 3)}, r"x must have shape \[6, F\], one row per node, got \[5, 3\]"),
    ({"x": torch.randn(6, 3).to_sparse_coo()}, "x must be a dense or a sparse CSR tensor"),
    ({"x": torch.ones(6, 3, dtype=torch.int64)}, "x must be floating point, got torch.int64"),
    ({"x": torch.full((6, 3), torch.nan)}, "x must be finite, got 18 values"),
    ({"y": torch.zeros(6)}, r"y must be \[6\] of int64, got \[6\] of torch.float32"),
    ({"y": torch.tensor([0, 1, 2, 0, 0, 0])}, "got 2 at node 2"),
    ({"num_classes": 1}, "num_classes must be 2 or larger, got 1"),
    ({"feature_names": ["a"]}, "feature_names must have 3 entries, got 1"),
    ({"class_names": ["a"]}, "class_names must have 2 entries, got 1"),
    ({"node_ids": np.arange(7)}, "node_ids must have 6 entries, got 7"),
    ({"smooth_dimensions": torch.ones(3)}, r"smooth_dimensions must be \[3\] of bool, got \[3\] of torch.float32"),
    ({"splits": [Split(NODE < 2, NODE < 4, NODE == 4)]}, r"splits\[0\] must be disjoint, got 2 nodes"),
    ({"splits": [Split(NODE < 2, NODE == 2, NODE == 5)]}, r"splits\[0\].test must contain labelled nodes only, got 1"),
    (
        {"splits": [Split(NODE < 2, NODE == 2, NODE)]},
        r"splits\[0\].test must be \[6\] of bool, got \[6\] of torch.int64",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError if "floating point" in message else ValueError, match=message):
        small(**changes)


def test_load_by_name_and_frozen() -> None:
    data = load("Dimensions")
    assert data.name == "dimensions"
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


def test_unknown_name_suggests_a_close_one() -> None:
    with pytest.raises(ValueError, match=r"must be one of 'dimensions'.*got 'dimension'; did you mean 'dimensions'"):
        load("dimension")
    with pytest.raises(ValueError, match=r"got 'xyz'$"):
        load("xyz")
