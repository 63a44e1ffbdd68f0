"""The generated graph has the properties in its description."""

import hashlib

import pytest
import torch
from torch import Tensor

from gfgn.data import NodeDataset, dimensions
from gfgn.ops import neighbor_mean


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Column by column."""
    a, b = a - a.mean(0), b - b.mean(0)
    return (a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0))


@pytest.fixture(scope="module", params=range(2))
def data(request: pytest.FixtureRequest) -> NodeDataset:
    return dimensions(seed=request.param)


def test_shape(data: NodeDataset) -> None:
    assert (data.num_nodes, data.num_features, data.num_classes) == (1200, 36, 6)
    assert data.smooth_dimensions is not None
    assert data.smooth_dimensions.sum() == 24
    assert torch.bincount(data.y).min() > 150  # no class is rare
    assert abs(data.graph.num_edges / data.num_nodes - 20) < 1
    source, target = data.graph.edge_index
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert all((v, u) in pairs for u, v in pairs)


def test_smooth_dimensions_correlate_with_neighbors_and_own_ones_do_not(data: NodeDataset) -> None:
    smooth = data.smooth_dimensions
    assert smooth is not None
    agreement = correlation(data.x, neighbor_mean(data.x, data.graph))
    assert agreement[smooth].mean() > 0.05
    assert agreement[~smooth].mean().abs() < 0.03
    assert agreement[smooth].mean() > agreement[~smooth].mean() + 0.05


def test_the_label_needs_both_kinds(data: NodeDataset) -> None:
    """Own dimensions reveal the attribute (which third of the classes) and nothing about the group within it."""
    smooth = data.smooth_dimensions
    assert smooth is not None
    attribute, group = data.y // 2, data.y % 2
    own = data.x[:, ~smooth].view(-1, 3, 4).mean(2)
    assert (own.argmax(1) == attribute).float().mean() > 0.99
    assert correlation(data.x[:, ~smooth], group[:, None].float()).abs().max() < 0.12
    averaged = neighbor_mean(data.x, data.graph)[:, smooth].view(-1, 3, 8)
    for reason in range(3):
        of_reason = attribute == reason
        strength = [correlation(averaged[of_reason, r], group[of_reason, None].float()).abs().mean() for r in range(3)]
        assert max(range(3), key=lambda r: float(strength[r])) == reason


@pytest.mark.parametrize(("num_nodes", "reasons", "groups"), [(12, 2, 3), (997, 5, 4), (5_000, 3, 2)])
def test_any_size(num_nodes: int, reasons: int, groups: int) -> None:
    data = dimensions(num_nodes, reasons=reasons, groups=groups, degree=6, smooth_per_reason=3, own_per_reason=2)
    assert (data.num_nodes, data.num_features, data.num_classes) == (num_nodes, 5 * reasons, reasons * groups)
    assert data.smooth_dimensions is not None
    assert data.smooth_dimensions.tolist() == [True] * 3 * reasons + [False] * 2 * reasons
    assert data.y.unique().numel() <= reasons * groups
    assert 0 < data.graph.num_edges <= 6 * num_nodes


def test_the_draw_is_pinned() -> None:
    """Edges and labels are integers and thus identical on every machine; features agree up to rounding."""
    data = dimensions(100, seed=0)
    digest = hashlib.sha256(data.graph.edge_index.numpy().tobytes() + data.y.numpy().tobytes()).hexdigest()
    assert digest[:16] == "c4ae7a8376978222"
    assert data.x[0, :3].tolist() == pytest.approx([-0.677646, -1.436246, 1.148433], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_nodes": 5}, "num_nodes.* 5 nodes"),
        ({"reasons": 1}, "reasons.* 1 reasons"),
        ({"smooth_per_reason": 0}, "smooth_per_reason.* 0 and 4"),
        ({"degree": 0}, "degree must be positive"),
        ({"own_noise": -1}, "own_noise not negative, got .* -1"),
    ],
)
def test_bad_arguments(arguments: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dimensions(**arguments)  # type: ignore[arg-type]
