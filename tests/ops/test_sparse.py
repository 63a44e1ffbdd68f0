"""The sparse first layer: values, gradients, dropout by hash, replicas."""

import gc
import weakref

import pytest
import torch
from ops.backends import device, every_backend
from torch import Tensor

from gfgn import ops
from gfgn.ops.keys import keep
from gfgn.ops.sparse import _both_orders_of


def matrix(rows: int = 12, columns: int = 9, seed: int = 0) -> Tensor:
    """Sparse, with an empty first row and an empty first column."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).relu()
    x[0], x[:, 0] = 0, 0
    return x


def weight(columns: int = 9, width: int = 5) -> Tensor:
    return torch.randn(columns, width, generator=torch.Generator().manual_seed(1))


def hash_in_python(entry: int, key: int) -> int:
    mask = 0xFFFFFFFF
    h = (entry & mask) ^ key ^ (((entry >> 32) * 0x9E3779B1) & mask)
    h ^= h >> 16
    h = (h * 0x7FEB352D) & mask
    h ^= h >> 15
    h = (h * 0x846CA68B) & mask
    return h ^ (h >> 16)


def test_hash() -> None:
    entries = [0, 1, 2, 77, 2**31, 2**32 + 5, 3 * 2**40 + 1]
    for key in (0, 1, 0xDEADBEEF, 2**32 - 1):
        for rate in (0.0, 0.3, 0.5, 0.99):
            expected = [hash_in_python(e, key) >= int(rate * 2**32) for e in entries]
            assert (
                keep(torch.tensor(entries), torch.tensor(key), torch.tensor(rate, dtype=torch.float64)).tolist()
                == expected
            )


def test_hash_drops_the_given_fraction_independently() -> None:
    entry, rate = torch.arange(200_000), torch.tensor(0.3, dtype=torch.float64)
    first, second = (keep(entry, torch.tensor(key), rate).double() for key in (1, 2))
    for kept in (first, second):
        assert abs(float(kept.mean()) - 0.7) < 0.005
        assert abs(float(torch.corrcoef(torch.stack([kept[1:], kept[:-1]]))[0, 1])) < 0.01
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.01


@every_backend
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_values_and_gradients(backend: str, dropout: float) -> None:
    dense, key = matrix(), torch.tensor(1234567)
    sparse = dense.to_sparse_csr()
    kept = keep(torch.arange(sparse.values().numel()), key, torch.tensor(dropout, dtype=torch.float64)) / (1 - dropout)
    row = torch.repeat_interleave(torch.arange(12), sparse.crow_indices().diff())
    dropped = torch.zeros(12, 9).index_put((row, sparse.col_indices()), sparse.values() * kept)
    exact = weight().requires_grad_()
    expected = dropped @ exact
    expected.square().sum().backward()
    where = device(backend)
    w = weight().to(where).requires_grad_()
    out = ops.sparse_linear(sparse.to(where), w, dropout, key.to(where), backend)
    out.square().sum().backward()
    torch.testing.assert_close(out.detach().cpu(), expected.detach())
    torch.testing.assert_close(w.grad.cpu(), exact.grad)


def test_keys_come_from_the_generator_of_pytorch() -> None:
    x = matrix().to_sparse_csr()
    torch.manual_seed(0)
    first = ops.sparse_linear(x, weight(), 0.5)
    assert not torch.equal(ops.sparse_linear(x, weight(), 0.5), first)
    torch.manual_seed(0)
    assert torch.equal(ops.sparse_linear(x, weight(), 0.5), first)


def test_transpose_is_cached_with_the_tensor_and_follows_its_values() -> None:
    x = matrix().to_sparse_csr()
    first = ops.sparse_linear(x, weight())
    x.values().mul_(2)
    torch.testing.assert_close(ops.sparse_linear(x, weight()), 2 * first)
    assert x in _both_orders_of
    kept = weakref.ref(_both_orders_of[x])
    del x
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (matrix(), {}, "x must be a sparse CSR matrix"),
        (matrix(columns=8).to_sparse_csr(), {}, r"weight must have shape \[8, D\], got \[9, 5\]"),
        (matrix().to_sparse_csr(), {"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        (matrix().to_sparse_csr().requires_grad_(), {}, "x must not require a gradient"),
    ],
)
def test_bad_arguments_are_named(x: Tensor, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.sparse_linear(x, weight(), **options)
