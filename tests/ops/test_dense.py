"""Dropout by hash, linear maps of replicas, gates of neighborhoods and of two hops, Adam: against the equations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ops.backends import BACKENDS, CUDA, device, every_backend
from torch import Tensor, nn

from gfgn import ops
from gfgn.ops.adam import adam_, copy_where_
from gfgn.ops.keys import keep, keyed


def normal(*shape: int, seed: int = 0, where: str = "cpu") -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(where)


def kept_by_loop(rows: int, width: int, key: int, rate: float) -> Tensor:
    """Which values dropout keeps, one at a time."""
    keys, rates = torch.tensor(key), torch.tensor(rate, dtype=torch.float64)
    return torch.tensor(
        [[bool(keep(torch.tensor(n * width + d), keys, rates)) for d in range(width)] for n in range(rows)]
    )


# --- dropout ---


@every_backend
@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (7, 16), (0, 4), (4, 0), (130, 5)])
def test_dropout_values_and_gradients(backend: str, shape: tuple[int, int]) -> None:
    where = device(backend)
    x = normal(*shape, where=where).requires_grad_()
    out = ops.dropout(x, 0.4, True, torch.tensor(99, device=where), backend)
    factor = kept_by_loop(*shape, 99, 0.4).reshape(shape) / 0.6
    torch.testing.assert_close(out.detach().cpu(), x.detach().cpu() * factor)
    grad = normal(*shape, seed=1, where=where)
    torch.testing.assert_close(torch.autograd.grad(out, x, grad)[0].cpu(), grad.cpu() * factor)


def test_dropout_without_a_key_is_pytorchs() -> None:
    x = torch.ones(50, 4)
    torch.manual_seed(0)
    expected = nn.functional.dropout(x, 0.3)
    torch.manual_seed(0)
    assert torch.equal(ops.dropout(x, 0.3), expected)
    assert ops.dropout(x, 0.3, training=False) is x
    assert ops.dropout(x, 0.0) is x
    with pytest.raises(ValueError, match=r"rate must be at least 0 and below 1, got 1\.0"):
        ops.dropout(x, 1.0)


def test_keys_depend_on_the_given_key_and_the_order_of_calls() -> None:
    x = torch.ones(200, 3)

    def twice(key: int) -> tuple[Tensor, Tensor]:
        with keyed(torch.tensor(key)):
            return ops.dropout(x, 0.5), ops.dropout(x, 0.5)

    first, second = twice(1)
    assert not torch.equal(first, second)
    again = twice(1)
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, twice(2)[0])


# --- linear maps ---


@pytest.mark.parametrize("sparse", [False, True])
def test_linear_of_replicas(sparse: bool) -> None:
    x, weight, bias = normal(7, 6).relu(), normal(3, 4, 6, seed=1), normal(3, 4, seed=2)
    features = x.to_sparse_csr() if sparse else x
    weight.requires_grad_()
    out = torch.vmap(lambda w, b: ops.linear(features, w, b))(weight, bias)
    expected = torch.einsum("nf,rdf->rnd", x, weight) + bias.unsqueeze(1)
    torch.testing.assert_close(out, expected)
    grad = normal(3, 7, 4, seed=3)
    torch.testing.assert_close(
        torch.autograd.grad(out, weight, grad)[0], torch.autograd.grad(expected, weight, grad)[0]
    )


def test_linear_of_replicas_with_features_of_their_own() -> None:
    x, weight = normal(3, 7, 6).requires_grad_(), normal(3, 4, 6, seed=1).requires_grad_()
    out, expected = torch.vmap(ops.linear)(x, weight), torch.einsum("rnf,rdf->rnd", x, weight)
    torch.testing.assert_close(out, expected)
    grad = normal(3, 7, 4, seed=3)
    for got, expected_grad in zip(
        torch.autograd.grad(out, (x, weight), grad), torch.autograd.grad(expected, (x, weight), grad), strict=True
    ):
        torch.testing.assert_close(got, expected_grad)


def test_linear_alone_is_pytorchs() -> None:
    x, weight, bias = normal(7, 6), normal(4, 6, seed=1), normal(4, seed=2)
    torch.testing.assert_close(ops.linear(x, weight, bias), nn.functional.linear(x, weight, bias))
    key = torch.tensor(5)
    with keyed(key):
        dropped = ops.linear(x, weight, bias, 0.5, training=True)
    with keyed(key):
        torch.testing.assert_close(dropped, nn.functional.linear(ops.dropout(x, 0.5), weight, bias))


# --- neighbor level ---


def gated_by_loop(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    rows, heads, d = z.size(0), gate.size(0), gate.size(2)
    out = torch.zeros_like(z)
    for n in range(rows):
        for h in range(heads):
            columns = range(h * d, (h + 1) * d)
            for j in range(d):
                inner = sum(float(z[n, c]) * float(gate[h, k, j]) for k, c in enumerate(columns))
                inner += sum(float(mean[n, c]) * float(gate[h, d + k, j]) for k, c in enumerate(columns))
                s = float(lam[h * d + j]) * float(torch.sigmoid(torch.tensor(inner, dtype=torch.float64)))
                c = h * d + j
                out[n, c] = (1 - s) * z[n, c] + s * propagated[n, c]
    return out


@every_backend
def test_gated_neighbor_is_the_equation(backend: str) -> None:
    where = device(backend)
    z, propagated, mean = (normal(4, 6, seed=k) for k in range(3))
    gate, lam = normal(2, 6, 3, seed=3), torch.tensor([0.5, 1.0, 2.0, 0.0, 1.5, 1.0])
    out = ops.gated_neighbor(*(x.to(where) for x in (z, propagated, mean, gate, lam)), backend)
    torch.testing.assert_close(out.cpu(), gated_by_loop(z, propagated, mean, gate, lam))


# --- gates of two hops ---


@every_backend
def test_gated_two_hops_is_the_equation(backend: str) -> None:
    where = device(backend)
    inputs, lam = [normal(4, 5, seed=k) for k in range(5)], torch.tensor([0.5, 1.0, 2.0, 0.0, 1.5])
    out = ops.gated_two_hops(*(x.to(where) for x in (*inputs, lam)), backend)
    for n in range(4):
        for c in range(5):
            own, one, two, first, second = (float(x[n, c]) for x in inputs)
            total = 1 + math.exp(first) + math.exp(second)
            s1, s2 = (float(lam[c]) * math.exp(logit) / total for logit in (first, second))
            assert float(out[n, c]) == pytest.approx((1 - s1 - s2) * own + s1 * one + s2 * two, rel=1e-5, abs=1e-6)


# --- optimizer steps ---


@every_backend
@pytest.mark.parametrize("outer", [1, 7])
def test_adam_equals_pytorchs_with_one_rate_per_replica(backend: str, outer: int) -> None:
    where = device(backend)
    rates, decays = [0.1, 0.003, 0.02], [0.0, 0.1, 5e-4]
    p = normal(outer, 3, 5, where=where)
    singles = [nn.Parameter(p[:, r].clone()) for r in range(3)]
    optimizers = [
        torch.optim.Adam([single], lr=lr, weight_decay=decay)
        for single, lr, decay in zip(singles, rates, decays, strict=True)
    ]
    m, v, scale = torch.zeros_like(p), torch.zeros_like(p), torch.ones(3, device=where)
    for step in range(1, 6):
        grad = normal(outer, 3, 5, seed=step, where=where)
        rate = torch.tensor(rates, device=where) / (1 - 0.9**step)
        correction = torch.tensor([(1 - 0.999**step) ** 0.5], device=where)
        adam_(p, grad, m, v, scale, torch.tensor(decays, device=where), rate, correction, backend)
        for r in range(3):
            singles[r].grad = grad[:, r].clone()
            optimizers[r].step()
    torch.testing.assert_close(p, torch.stack([single.detach() for single in singles], 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_on_a_cpu_has_the_bits_of_its_formula(dtype: torch.dtype) -> None:
    p, grad, m, v = (normal(2, 3, 21, seed=seed).to(dtype) for seed in range(4))
    v = v.abs()
    scale, decay, rate = (torch.tensor(values, dtype=dtype) for values in ([1, 0.3, 1], [0, 0.1, 5e-4], [0.1, 3e-3, 1]))
    correction = torch.tensor([0.03], dtype=dtype)
    number = p.numpy().dtype.type
    by_replica = [factor.view(3, 1).numpy() for factor in (scale, decay, rate)]
    g = grad.numpy() * by_replica[0] + by_replica[1] * p.numpy()
    first = m.numpy() * number(0.9) + g * number(1 - 0.9)
    second = v.numpy() * number(0.999) + g * g * number(1 - 0.999)
    expected = p.numpy() - by_replica[2] * first / (np.sqrt(second) / correction.numpy() + number(1e-8))
    adam_(p, grad, m, v, scale, decay, rate, correction, "numba")
    for found, wanted in ((p, expected), (m, first), (v, second)):
        np.testing.assert_array_equal(found.numpy(), wanted)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 4))
def test_copy_where(chosen: list[bool], outer: int, inner: int) -> None:
    source, mask = normal(outer, len(chosen), inner), torch.tensor(chosen)
    for backend in BACKENDS:
        if backend == "triton" and CUDA:
            continue
        target = torch.zeros_like(source)
        copy_where_(source, target, mask, backend)
        assert torch.equal(target, source * mask.view(1, -1, 1))
