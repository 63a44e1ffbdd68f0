"""PyTorch's random functions inside `keyed_functions`: the same numbers alone and among replicas, and good ones."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gfgn import ops
from gfgn.ops.random import REFUSED, keyed, keyed_functions

ATTENTION, LSTM, GRU = nn.MultiheadAttention(4, 2, 0.1), nn.LSTM(4, 3, 2, dropout=0.5), nn.GRU(4, 3, 2, dropout=0.5)
KEYS = torch.tensor([7, 2**31 + 5, 0, 123456])
Function = Callable[[Tensor], Tensor]


def alone(function: Function, x: Tensor, key: int | Tensor = 7) -> Tensor:
    with keyed(torch.as_tensor(key)), keyed_functions():
        return function(x)


def among(function: Function, x: Tensor, batched: bool) -> Tensor:
    return torch.vmap(lambda x, key: alone(function, x, key), in_dims=(0 if batched else None, 0))(x, KEYS)


# Of a tensor of values in (0, 1), which only some of them read.
FUNCTIONS: dict[str, Function] = {
    "rand": lambda x: torch.rand(x.shape),
    "rand of sizes": lambda x: torch.rand(3, 2, dtype=torch.float64),
    "rand in half precision": lambda x: torch.rand(50, dtype=torch.bfloat16),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(x.shape),
    "randn_like": torch.randn_like,
    "randint": lambda x: torch.randint(3, 8, x.shape),
    "randint of many": lambda x: torch.randint(high=2**60, size=(9,)),
    "randint_like": lambda x: torch.randint_like(x, 5),
    "randperm": lambda x: torch.randperm(31),
    "normal": lambda x: torch.normal(x, 2.0),
    "bernoulli": torch.bernoulli,
    "Tensor.bernoulli": lambda x: x.bernoulli(),
    "multinomial": lambda x: x.multinomial(2),
    "multinomial with replacement": lambda x: torch.multinomial(x, 20, True),
    "distributions": lambda x: (
        torch.distributions.Normal(x, 1.0).rsample() + torch.distributions.Gumbel(x, 1.0).sample()
    ),
    "numbers in a tensor of the replica's own": lambda x: torch.empty(7).normal_(),
    "dropout": functional.dropout,
    "torch.dropout": lambda x: torch.dropout(x, 0.3, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
    "dropout of a vector": lambda x: functional.dropout(x[:, 0], 0.3),
    "dropout of three dimensions": lambda x: functional.dropout(x.unsqueeze(1) * torch.ones(3, 1), 0.3),
    "dropout of a scalar": lambda x: functional.dropout(x.sum(), 0.5),
    "nn.Dropout": nn.Dropout(0.2),
    "dropout1d": lambda x: functional.dropout1d(x.unsqueeze(-1), 0.4),
    "dropout2d": lambda x: nn.Dropout2d(0.4)(x[:, :, None, None]),
    "alpha_dropout": nn.AlphaDropout(0.3),
    "feature_alpha_dropout": lambda x: functional.feature_alpha_dropout(x[..., None], 0.3, training=True),
    "rrelu": lambda x: nn.RReLU()(x - 0.5),
    "gumbel_softmax": lambda x: functional.gumbel_softmax(x, hard=True),
    "attention": lambda x: functional.scaled_dot_product_attention(0 * x, 0 * x, torch.eye(11), dropout_p=0.5),
    "bernoulli_": lambda x: torch.zeros_like(x).bernoulli_(0.3),
    "uniform_": lambda x: torch.zeros_like(x).uniform_(-1, 1),
    "normal_": lambda x: x.clone().normal_(mean=2, std=3),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "cauchy_": lambda x: torch.empty_like(x).cauchy_(),
    "log_normal_": lambda x: torch.empty_like(x).log_normal_(),
    "geometric_": lambda x: torch.empty_like(x).geometric_(0.3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits_alone_and_among_replicas(name: str) -> None:
    function = FUNCTIONS[name]
    x = torch.rand(4, 11, 5, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    several = among(function, x, batched=True)
    for k in range(4):
        assert torch.equal(several[k], alone(function, x[k], KEYS[k]))
    if not name.endswith("_"):  # a tensor of all replicas cannot hold what differs between them
        shared = among(function, x[0], batched=False)
        assert torch.equal(shared[1], alone(function, x[0], KEYS[1]))
        assert name == "dropout of a scalar" or not torch.equal(shared[0], shared[1])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("inplace", [False, True])
def test_dropout_is_that_of_the_library(inplace: bool) -> None:
    """The first dropout of `F` drops what the first of `gfgn.ops` drops, and so on."""
    x = torch.rand(6, 4, 3)

    def twice(dropout: Callable[..., Tensor], *rest: bool) -> Tensor:
        return torch.cat([dropout(x.clone(), 0.3, True, *rest), dropout(x.clone(), 0.6, True, *rest)])

    with keyed(torch.tensor(5)):
        expected = twice(ops.dropout)
    assert torch.equal(alone(lambda _: twice(functional.dropout, inplace), x, 5), expected)


def test_rates() -> None:
    x = torch.ones(200, 100)

    def kept(out: Tensor) -> float:
        return float((out != 0).double().mean())

    for p in (0.1, 0.5, 0.9):
        out = alone(lambda x, p=p: functional.dropout(x, p), x)
        assert kept(out) == pytest.approx(1 - p, abs=0.015)
        assert torch.unique(out).tolist() == pytest.approx([0, 1 / (1 - p)])
        assert torch.equal(alone(nn.Dropout(torch.tensor(p, dtype=torch.float64)), x), out)  # a rate in a tensor
    assert torch.equal(alone(lambda x: functional.dropout(x, training=False), x), x)
    assert torch.equal(alone(lambda x: functional.dropout(input=x, p=0.0), x), x)
    assert kept(alone(lambda x: functional.dropout(x, 1.0), x)) == 0
    assert alone(functional.dropout, torch.ones(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"p must be between 0 and 1, got 1\.5"):
        alone(lambda x: functional.dropout(x, 1.5), x)


def test_gradient_of_dropout() -> None:
    x = torch.rand(30, 4, requires_grad=True)
    out = alone(functional.dropout, x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, torch.where(out != 0, 2.0, 0.0))
    batch = torch.rand(4, 30, 4, requires_grad=True)
    several = among(functional.dropout, batch, batched=True)
    (grad,) = torch.autograd.grad(several.sum(), batch)
    assert torch.equal(grad, torch.where(several != 0, 2.0, 0.0))


def test_channels_are_dropped_whole() -> None:
    out = alone(lambda x: functional.dropout2d(x, 0.5), torch.ones(40, 30, 2, 3))
    assert torch.equal(out, out[:, :, :1, :1].expand_as(out))
    assert float((out != 0).double().mean()) == pytest.approx(0.5, abs=0.05)
    one = alone(lambda x: functional.dropout1d(x, 0.5), torch.ones(1000, 2))  # one input without a batch
    assert torch.equal(one[:, 0], one[:, 1])
    assert 400 < int((one[:, 0] != 0).sum()) < 600


# Mean and standard deviation of many numbers; 10⁵ of them are within 0.02 of a standard deviation.
MOMENTS: dict[str, tuple[Function, float, float]] = {
    "rand": (torch.rand_like, 0.5, 12**-0.5),
    "rand in double precision": (lambda x: torch.rand(x.shape, dtype=torch.float64), 0.5, 12**-0.5),
    "randn": (torch.randn_like, 0, 1),
    "randn in half precision": (lambda x: torch.randn(x.shape, dtype=torch.float16), 0, 1),
    "normal": (lambda x: torch.normal(3.0, 0.5, x.shape), 3, 0.5),
    "randint": (lambda x: torch.randint(-2, 4, x.shape), 0.5, (35 / 12) ** 0.5),
    "randint of many": (lambda x: torch.randint(0, 2**50, x.shape), 2.0**49, 2.0**50 * 12**-0.5),
    "bernoulli": (lambda x: torch.full_like(x, 0.3).bernoulli(), 0.3, 0.21**0.5),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(2, 5), 3.5, 3 * 12**-0.5),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
    "log_normal_": (lambda x: torch.empty_like(x).log_normal_(0.0, 0.5).log(), 0, 0.5),
    "geometric_": (lambda x: torch.empty_like(x).geometric_(0.25), 4, 12**0.5),
    "cauchy_": (lambda x: torch.empty_like(x).cauchy_(1.0, 2.0).sub(1).div(2).atan(), 0, math.pi * 12**-0.5),
    "multinomial": (lambda x: torch.tensor([1.0, 0.0, 3.0]).expand(10**5, 3).multinomial(1), 1.5, 0.75**0.5),
    "multinomial with replacement": (lambda x: torch.tensor([1.0, 0, 3]).multinomial(10**5, True), 1.5, 0.75**0.5),
    "rrelu": (lambda x: functional.rrelu(-torch.ones_like(x), 0.25, 0.75, training=True), -0.5, 0.5 * 12**-0.5),
    "gumbel_softmax": (
        lambda x: functional.gumbel_softmax(torch.tensor([0.0, math.log(3)]).expand(10**5, 2), hard=True)[:, 1],
        0.75,
        0.1875**0.5,
    ),
    "alpha_dropout": (lambda x: functional.alpha_dropout(torch.randn_like(x), 0.2, training=True), 0, 1),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_distributions(name: str) -> None:
    function, mean, std = MOMENTS[name]
    values = alone(function, torch.empty(10**5)).double()
    assert float(values.mean()) == pytest.approx(mean, abs=0.02 * std)
    assert float(values.std()) == pytest.approx(std, rel=0.02)


def test_permutations_and_ranges() -> None:
    assert sorted(alone(lambda _: torch.randperm(100), KEYS).tolist()) == list(range(100))
    first = [int(alone(lambda _: torch.randperm(4), KEYS, key)[0]) for key in range(200)]
    assert all(20 < first.count(k) < 80 for k in range(4))
    values = alone(lambda _: torch.rand(10**5), KEYS)
    assert 0 <= float(values.min()) < 1e-3
    assert 0.999 < float(values.max()) < 1
    drawn = alone(lambda x: torch.tensor([0.0, 1, 0, 1]).expand(500, 4).multinomial(2), KEYS)
    assert drawn.sort(1).values.unique(dim=0).tolist() == [[1, 3]]
    with pytest.raises(ValueError, match="high must be larger than low, 3, got 3"):
        alone(lambda _: torch.randint(3, 3, (2,)), KEYS)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("torch.poisson", torch.poisson),
        ("torch.binomial", lambda x: torch.binomial(x, x)),
        ("torch.Tensor.random_", lambda x: x.clone().random_()),
        ("_standard_gamma", lambda x: torch.distributions.Gamma(x, x).sample()),
        ("torch.rand with a generator or out", lambda x: torch.rand(2, generator=torch.Generator())),
        ("multi_head_attention_forward", lambda x: ATTENTION(x, x, x)[0]),
        ("lstm", lambda x: LSTM(x)[0]),
        ("gru", lambda x: GRU(nn.utils.rnn.pack_sequence([x]))[0]),
        ("kaiming_uniform_", lambda x: nn.Linear(4, 3)(x)),
    ],
)
def test_other_random_functions_are_refused_by_name(name: str, function: Function) -> None:
    with pytest.raises(NotImplementedError, match=rf"{name}.* is random and has no version with numbers from a key"):
        alone(function, torch.rand(5, 4))


def test_layers_that_drop_nothing_are_not_refused() -> None:
    x = torch.rand(5, 4)
    for layer in (nn.MultiheadAttention(4, 2, dropout=0.5).eval(), nn.MultiheadAttention(4, 2)):
        torch.testing.assert_close(alone(lambda x, m=layer: m(x, x, x)[0], x), layer(x, x, x)[0])
    for rnn in (nn.LSTM(4, 3, 2, dropout=0.5).eval(), nn.GRU(4, 3, 2)):
        assert torch.equal(alone(lambda x, m=rnn: m(x)[0], x), rnn(x)[0])


def test_every_random_operator_of_pytorch_is_served_or_refused() -> None:
    """New random operators of PyTorch are noticed here."""
    from gfgn.ops import random as module

    served = {getattr(function, "__name__", "") for function in module._SERVED}
    internal = {"miopen_rnn", "random", "rrelu_with_noise_functional"}  # and all with a leading underscore
    random = set()
    registered = torch._C._dispatch_get_all_op_names()  # `dir(torch.ops.aten)` lists only those that were used before
    for name in {name.removeprefix("aten::").split(".")[0] for name in registered if name.startswith("aten::")}:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags:
                random.add(name)
    callable_ones = {name for name in random if hasattr(torch, name) or hasattr(Tensor, name)}
    missing = callable_ones - served - REFUSED - set(module._REFUSED_DROPOUT) - internal
    assert {name for name in missing if not name.startswith("_")} == set()
