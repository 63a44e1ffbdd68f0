"""The gates of small heads on the CPU against products of whole tensors, at odd sizes, and a replica among others."""

import pytest
import torch
from torch import Tensor

from gfgn.ops import heads as plain
from gfgn.ops.cpu import small_gates as fused

SHAPES = [(1, 1, 1), (40, 5, 3), (129, 3, 5), (17, 9, 7), (300, 6, 8), (33, 4, 9), (16, 3, 16), (0, 2, 8), (5, 16, 1)]
every_shape = pytest.mark.parametrize(("rows", "heads", "d"), SHAPES)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def inputs(rows: int, heads: int, d: int, dtype: torch.dtype, count: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Features, a gate and λ."""
    make = torch.Generator().manual_seed(rows + 10 * heads + 100 * d)
    features = [torch.randn(rows, heads * d, generator=make, dtype=dtype) for _ in range(count)]
    gate = torch.randn(heads, 2 * d, d, generator=make, dtype=dtype)
    return features, gate, torch.rand(heads * d, generator=make, dtype=dtype)


@pytest.fixture
def by_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_small_gates", lambda x, gate: None)
    monkeypatch.setattr(plain, "_small_products", lambda x, depth, width: None)


def assert_close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    tolerance = 1e-12 if found[0].dtype == torch.float64 else 1e-5
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=10 * tolerance)


@every_dtype
@every_shape
def test_gated_neighbor(rows: int, heads: int, d: int, dtype: torch.dtype, by_whole_tensors: None) -> None:
    (grad, *features), gate, lam = inputs(rows, heads, d, dtype, 4)
    assert_close((fused.gated_neighbor(*features, gate, lam),), (plain.gated_neighbor(*features, gate, lam),))
    args = (grad, *features, gate, lam)
    assert_close(fused.gated_neighbor_backward(*args), plain.gated_neighbor_backward(*args))


@every_dtype
@every_shape
def test_halves(rows: int, heads: int, d: int, dtype: torch.dtype, by_whole_tensors: None) -> None:
    (grad_a, grad_b, grad, z), gate, _ = inputs(rows, heads, d, dtype, 4)
    assert_close(fused.halves(z, gate), plain.halves(z, gate))
    found = fused.halves_backward(grad_a, grad_b, grad, z, gate)
    assert_close(found, plain.halves_backward(grad_a, grad_b, grad, z, gate))


@pytest.mark.parametrize("far", [40.0, 1e4])
def test_gates_far_from_zero(far: float, by_whole_tensors: None) -> None:
    (grad, *features), gate, lam = inputs(20, 3, 5, torch.float32, 4)
    gate = gate * far
    assert_close((fused.gated_neighbor(*features, gate, lam),), (plain.gated_neighbor(*features, gate, lam),))
    found = fused.gated_neighbor_backward(grad, *features, gate, lam)
    assert all(bool(x.isfinite().all()) for x in found)


@pytest.mark.parametrize("d", [5, 7, 8])
def test_a_head_does_not_know_its_neighbours(d: int) -> None:
    """The same bits alone and in any company, even of a head that has become NaN."""
    (grad, *features), gate, lam = inputs(50, 6, d, torch.float32, 4)
    together = [fused.gated_neighbor(*features, gate, lam), *fused.gated_neighbor_backward(grad, *features, gate, lam)]
    together += [*fused.halves(features[0], gate), *fused.halves_backward(*features, grad, gate)]
    for head in range(6):
        columns = slice(head * d, (head + 1) * d)
        one = [x[:, columns].contiguous() for x in (grad, *features)]
        mine, mine_lam = gate[head : head + 1], lam[columns]
        alone = [fused.gated_neighbor(*one[1:], mine, mine_lam), *fused.gated_neighbor_backward(*one, mine, mine_lam)]
        alone += [*fused.halves(one[1], mine), *fused.halves_backward(*one[1:], one[0], mine)]
        for got, wanted in zip(together, alone, strict=True):
            assert torch.equal(got[:, columns] if got.dim() == 2 else got[head : head + 1], wanted)
    for x in features:
        x[:, 2 * d : 3 * d] = torch.nan
    poisoned = [fused.gated_neighbor(*features, gate, lam), *fused.gated_neighbor_backward(grad, *features, gate, lam)]
    poisoned += [*fused.halves(features[0], gate), *fused.halves_backward(*features, grad, gate)]
    for got, wanted in zip(poisoned, together, strict=True):
        by_head = (x.view(50, 6, d).transpose(0, 1) if x.dim() == 2 else x for x in (got, wanted))
        others = torch.arange(6) != 2
        got, wanted = (x[others] for x in by_head)
        assert torch.equal(got, wanted)


def test_same_bits_whatever_the_threads() -> None:
    (grad, *features), gate, lam = inputs(1000, 4, 7, torch.float32, 4)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(fused.gated_neighbor_backward(grad, *features, gate, lam))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
