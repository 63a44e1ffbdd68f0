"""The gates of small heads against products of whole tensors: odd sizes, gates far from 0, several heads."""

import pytest
import torch
from torch import Tensor

from gfgn.ops import heads as plain
from gfgn.ops.cpu import small_gates as fused

# Kernels are compiled per dtype and size of a head: one head per block, several that fill it, several that do not.
CASES = [
    (1, 1, 1, torch.float32),
    (17, 9, 7, torch.float32),
    (300, 6, 8, torch.float32),
    (0, 2, 8, torch.float32),
    (16, 3, 16, torch.float64),
    (129, 4, 9, torch.float64),
]
every_case = pytest.mark.parametrize(("rows", "heads", "d", "dtype"), CASES)


def inputs(rows: int, heads: int, d: int, dtype: torch.dtype, count: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Features, a gate and λ."""
    generator = torch.Generator().manual_seed(rows + 10 * heads + 100 * d)
    features = [torch.randn(rows, heads * d, generator=generator, dtype=dtype) for _ in range(count)]
    gate = torch.randn(heads, 2 * d, d, generator=generator, dtype=dtype)
    return features, gate, torch.rand(heads * d, generator=generator, dtype=dtype)


@pytest.fixture
def by_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_small_gates", lambda x, gate: None)
    monkeypatch.setattr(plain, "_products", lambda x: None)


def assert_close(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    tolerance = 1e-12 if actual[0].dtype == torch.float64 else 1e-5
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=10 * tolerance)


@every_case
def test_gated_neighbor(rows: int, heads: int, d: int, dtype: torch.dtype, by_whole_tensors: None) -> None:
    (grad, *features), gate, lam = inputs(rows, heads, d, dtype, 4)
    assert_close((fused.gated_neighbor(*features, gate, lam),), (plain.gated_neighbor(*features, gate, lam),))
    args = (grad, *features, gate, lam)
    assert_close(fused.gated_neighbor_backward(*args), plain.gated_neighbor_backward(*args))


@every_case
def test_halves(rows: int, heads: int, d: int, dtype: torch.dtype, by_whole_tensors: None) -> None:
    (grad_a, grad_b, grad, z), gate, _ = inputs(rows, heads, d, dtype, 4)
    assert_close(fused.halves(z, gate), plain.halves(z, gate))
    actual = fused.halves_backward(grad_a, grad_b, grad, z, gate)
    assert_close(actual, plain.halves_backward(grad_a, grad_b, grad, z, gate))


@pytest.mark.parametrize("scale", [40.0, 1e4])
def test_gates_far_from_zero(scale: float, by_whole_tensors: None) -> None:
    (grad, *features), gate, lam = inputs(20, 3, 7, torch.float32, 4)
    gate = gate * scale
    assert_close((fused.gated_neighbor(*features, gate, lam),), (plain.gated_neighbor(*features, gate, lam),))
    actual = fused.gated_neighbor_backward(grad, *features, gate, lam)
    assert all(bool(x.isfinite().all()) for x in actual)


@pytest.mark.parametrize("d", [7, 8])
def test_heads_do_not_depend_on_each_other(d: int) -> None:
    """A head has the same bits alone and among others, even if one of them is NaN."""
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


def test_bits_do_not_depend_on_threads() -> None:
    (grad, *features), gate, lam = inputs(1000, 4, 7, torch.float32, 4)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(fused.gated_neighbor_backward(grad, *features, gate, lam))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
