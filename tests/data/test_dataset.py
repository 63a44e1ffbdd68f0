"""`Dataset` refuses what does not fit together, and says what was expected; the registry knows its names."""

import dataclasses
from typing import Any

import pytest
import torch

from gfgn import Graph
from gfgn.data import Dataset, Split, load


def small(**changes: Any) -> Dataset:
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
    return Dataset(**{**fields, **changes})


def test_a_good_one_knows_its_sizes() -> None:
    data = small(smooth_dimensions=torch.tensor([True, False, True]))
    assert (data.num_nodes, data.num_features) == (6, 3)
    assert "num_nodes=6, num_edges=3, num_features=3, num_classes=2, splits=1" in repr(data)
    assert data.to("cpu") is data


def test_sparse_features() -> None:
    assert small(x=torch.randn(6, 3).to_sparse_csr()).num_features == 3


def test_a_graph_without_labels() -> None:
    data = small(y=torch.full((6,), -1), num_classes=0, splits=[])
    assert (data.num_classes, data.splits) == (0, [])
    with pytest.raises(ValueError, match="got 0 at node 0"):
        small(num_classes=0, splits=[])


def test_moves_with_everything() -> None:
    moved = small(smooth_dimensions=torch.ones(3, dtype=torch.bool)).to("meta")
    assert moved.smooth_dimensions is not None
    tensors = [moved.x, moved.y, moved.smooth_dimensions, *moved.splits[0], moved.graph.norm]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


NODE = torch.arange(6)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"metric": "f1"}, "metric must be one of 'accuracy', 'roc_auc', got 'f1'"),
    ({"x": torch.randn(5, 3)}, r"x must have shape \[6, F\], one row a node, got \[5, 3\]"),
    ({"x": torch.randn(6, 3).to_sparse_coo()}, "x must be a dense or a sparse CSR tensor"),
    ({"x": torch.full((6, 3), torch.nan)}, "x must be finite, got 18 values"),
    ({"y": torch.zeros(6)}, r"y must be \[6\] of int64, got \[6\] of torch.float32"),
    ({"y": torch.tensor([0, 1, 2, 0, 0, 0])}, "got 2 at node 2"),
    ({"num_classes": 1}, "num_classes must be 2 or larger, got 1"),
    ({"feature_names": ["a"]}, "feature_names must be 3 names, got 1"),
    ({"smooth_dimensions": torch.ones(3)}, r"smooth_dimensions must be \[3\] of bool, got \[3\] of torch.float32"),
    ({"splits": [Split(NODE < 2, NODE < 4, NODE == 4)]}, r"splits\[0\] must be disjoint, got 2 nodes"),
    ({"splits": [Split(NODE < 2, NODE == 2, NODE == 5)]}, r"splits\[0\].test must hold labelled nodes only, got 1"),
    (
        {"splits": [Split(NODE < 2, NODE == 2, NODE)]},
        r"splits\[0\].test must be \[6\] of bool, got \[6\] of torch.int64",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_bad_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_integer_features_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"x must be floating point, got torch.int64"):
        small(x=torch.ones(6, 3, dtype=torch.int64))


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
