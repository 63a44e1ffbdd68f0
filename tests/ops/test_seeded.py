"""`seeded`: the numbers of `torch.manual_seed`, without the global generator."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gfgn.ops.dense import dropout
from gfgn.ops.seeded import seeded, seeded_dropout

X = torch.linspace(0.01, 0.99, 120).view(40, 3)
CALLS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(5, 3),
    "rand out": lambda: torch.rand(3, out=torch.empty(3)),
    "randn": lambda: torch.randn(50, 3),
    "randn bfloat16": lambda: torch.randn(7, dtype=torch.bfloat16),
    "randint": lambda: torch.randint(9, (3,)),
    "randint from": lambda: torch.randint(2, 9, (3,)),
    "randperm": lambda: torch.randperm(30),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 2, 9),
    "normal, mean": lambda: torch.normal(X, 1.0),
    "normal, std": lambda: torch.normal(0.0, X),
    "normal, size": lambda: torch.normal(0.0, 1.0, (4,)),
    "bernoulli": lambda: torch.bernoulli(X),
    "bernoulli_": lambda: X.clone().bernoulli_(0.4),
    "multinomial": lambda: torch.multinomial(X, 2),
    "uniform_": lambda: X.clone().uniform_(),
    "normal_": lambda: X.clone().normal_(),
    "exponential_": lambda: X.clone().exponential_(),
    "random_": lambda: X.clone().random_(),
    "poisson": lambda: torch.poisson(X),  # whose generator is a positional argument
    "dropout": lambda: F.dropout(X),
    "alpha_dropout": lambda: F.alpha_dropout(X, 0.5, True),
    "rrelu": lambda: F.rrelu(X - 0.5, training=True),
    "native_dropout": lambda: torch.native_dropout(X, 0.5, True)[0],  # takes no generator
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
    "orthogonal_": lambda: nn.init.orthogonal_(torch.empty(9, 9)),
    "trunc_normal_": lambda: nn.init.trunc_normal_(torch.empty(99)),
    "Linear": lambda: nn.Linear(9, 9).weight,
    "LSTM": lambda: nn.LSTM(3, 4, 2, dropout=0.5)(X[None])[0],
}


def draw(first: str) -> list[Tensor]:
    return [CALLS[first](), *(call() for call in CALLS.values())]


@pytest.mark.parametrize("first", CALLS)
def test_numbers_are_those_of_manual_seed(first: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = draw(first)
    before = torch.get_rng_state()
    with seeded(3):
        values = draw(first)
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(values, expected, strict=True):
        assert torch.equal(a, b)


def test_it_is_of_one_thread_and_continues() -> None:
    """A second block of the same object goes on, and another thread draws from the global generator meanwhile."""
    random = seeded(5)
    with random:
        values = [torch.rand(3)]
    drawn: list[Tensor] = []
    torch.manual_seed(0)
    with random:
        other = threading.Thread(target=lambda: drawn.append(torch.rand(3)))
        other.start()
        other.join()
        values.append(torch.rand(3))
    with seeded(5):
        assert torch.equal(torch.cat(values), torch.cat([torch.rand(3), torch.rand(3)]))
    torch.manual_seed(0)
    assert torch.equal(drawn[0], torch.rand(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_numbers_of_a_gpu() -> None:
    """Layers, and dropout, which takes no generator there."""

    def draw() -> list[Tensor]:
        layer = nn.Linear(9, 9, device="cuda")
        return [layer.weight, torch.randn(50, device="cuda"), F.dropout(layer(X.cuda().view(-1, 3).repeat(1, 3)))]

    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = draw()
    before = torch.cuda.get_rng_state()
    with seeded(3):
        values = draw()
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert all(map(torch.equal, values, expected))


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)])
def test_seeded_dropout(rate: float | Tensor) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = [dropout(X, rate) for _ in range(2)]
    before = torch.get_rng_state()
    with seeded_dropout(3):
        values = [dropout(X, rate) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(torch.equal, values, expected))
