"""PyTorch's functions on replicas inside `keyed_functions`: gathers, sums and linear maps equal PyTorch's own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gfgn.ops import batched_functions as module
from gfgn.ops.random import computed, keyed, keyed_functions

NODES, EDGES, REPLICAS = 12, 40, 3
Function = Callable[..., Tensor]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def edges() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    source, target = torch.randint(0, NODES, (2, EDGES), generator=generator)
    target[target == 5] = 6  # a node without neighbors
    return source, target


def scatter_sum(messages: Tensor, index: Tensor, size: int = NODES) -> Tensor:
    """As PyG does it."""
    expanded = index.view(-1, *[1] * (messages.dim() - 1)).expand_as(messages)
    return messages.new_zeros(size, *messages.shape[1:]).scatter_add_(0, expanded, messages)


def assert_batched_as_alone(function: Function, *args: Tensor) -> None:
    """Values and gradients of `function` for all replicas inside `keyed_functions` and for one after another."""
    ours = [x.detach().clone().requires_grad_() for x in args]
    theirs = [x.detach().clone().requires_grad_() for x in args]

    def one(key: Tensor, *args: Tensor) -> Tensor:
        with keyed(key), keyed_functions():
            return computed(function(*args))  # type: ignore[no-any-return]

    out = torch.vmap(one)(torch.arange(REPLICAS), *ours)
    expected = torch.stack([function(*(x[k] for x in theirs)) for k in range(REPLICAS)])
    torch.testing.assert_close(out, expected)
    weight = normal(*out.shape, seed=9)
    for a, b in zip(
        torch.autograd.grad(out, ours, weight, allow_unused=True),
        torch.autograd.grad(expected, theirs, weight, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(torch.zeros(1) if a is None else a, torch.zeros(1) if b is None else b)


SOURCE, TARGET = edges()
WEIGHT = normal(EDGES, seed=2)
WIDTH = 4
X = normal(REPLICAS, NODES, WIDTH)
SHARED = normal(NODES, 5, seed=5) * (normal(NODES, 5, seed=6) > 1)  # mostly 0
HEADS = normal(REPLICAS, NODES, 2, 3)

FUNCTIONS: dict[str, tuple[Function, Tensor]] = {
    "select": (lambda x: x.index_select(0, SOURCE), X),
    "select columns": (lambda x: x.index_select(1, torch.tensor([2, 0])), X),
    "index": (lambda x: x[SOURCE], X),
    "index with negative numbers": (lambda x: x[torch.tensor([-1, 0, -2])], X),
    "no edges": (lambda x: scatter_sum(x[SOURCE[:0]], TARGET[:0]), X),
    "sum of neighbors": (lambda x: scatter_sum(x[SOURCE], TARGET), X),
    "sum of neighbors with heads": (lambda x: scatter_sum(x[SOURCE], TARGET), HEADS),
    "to more nodes": (lambda x: scatter_sum(x[SOURCE], TARGET, 30), X),
    "weighted sum": (lambda x: scatter_sum(WEIGHT.view(-1, 1) * x[SOURCE], TARGET), X),
    "weighted twice": (lambda x: scatter_sum(WEIGHT.view(-1, 1) * (x[SOURCE] * WEIGHT.view(-1, 1)), TARGET), X),
    "both ends": (lambda x: scatter_sum(x[SOURCE] * x[TARGET] - x[SOURCE], TARGET), X),
    "sum, square and maximum of the same": (
        lambda x: (lambda m: scatter_sum(m, TARGET) + scatter_sum(m * m, TARGET) + m.max())(x[SOURCE]),
        X,
    ),
    "into numbers": (lambda x: x.scatter_add(0, TARGET.view(-1, 1).expand(-1, WIDTH), x[SOURCE]), X),
    "one index per column": (lambda x: x.scatter_add(0, torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]), x[:2]), X),
    "index_add": (lambda x: x.index_add(0, TARGET, x[SOURCE]), X),
    "index_add_": (lambda x: x.clone().index_add_(0, TARGET, x[SOURCE] * 2, alpha=0.5), X),
    "cat": (lambda x: torch.cat([x[SOURCE], x[TARGET]], dim=-1), X),
    "without dropout": (lambda x: functional.dropout(x[SOURCE], 0.0), X),
    "to wider rows": (lambda x: x.scatter_add(0, TARGET.view(-1, 1), x[:, :1][SOURCE]), X),
    "zeros": (lambda x: x.new_zeros(NODES, WIDTH) + x, X),
    "zeros that are written to": (lambda x: x.new_zeros(NODES, WIDTH).copy_(x).mul_(2), X),
    "two sums into zeros": (lambda x: _two_sums(x), X),
    "logarithms of probabilities": (lambda x: functional.log_softmax(x, dim=1), X),
    "mask": (lambda x: _masked(x), X),
}


def _two_sums(x: Tensor) -> Tensor:
    """Every name of a tensor that is changed in place has its new values."""
    index, zeros = TARGET.view(-1, 1).expand(-1, WIDTH), x.new_zeros(NODES, WIDTH)
    first = zeros.scatter_add_(0, index, x[SOURCE])
    before = first * 1
    second = zeros.scatter_add_(0, index, x[SOURCE] * x[TARGET])
    first.mul_(3)
    return before + first * 10 + second * 100 + zeros * 1000


def _masked(x: Tensor) -> Tensor:
    out = x * 1
    out[x > 0] = 3.0
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str) -> None:
    function, x = FUNCTIONS[name]
    assert_batched_as_alone(function, x)


@pytest.mark.parametrize("heads", [1, 2])
def test_attention(heads: int) -> None:
    """One weight per edge and head, of each replica's own."""
    assert_batched_as_alone(
        lambda x, a: scatter_sum(a.unsqueeze(-1) * x[SOURCE], TARGET), HEADS, normal(REPLICAS, EDGES, heads, seed=3)
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda w: functional.linear(SHARED, w),
        lambda w: SHARED @ w.t(),
        lambda w: torch.matmul(SHARED.view(4, 3, 5), w.t()),
        lambda w: functional.linear(functional.linear(SHARED, w), w.t(), w[0]),
    ],
)
def test_linear_maps(function: Function) -> None:
    for _ in range(3):  # features that come again may be multiplied in another form
        assert_batched_as_alone(function, normal(REPLICAS, 4, 5, seed=4))


def test_features_that_are_mostly_zero_are_multiplied_in_compressed_rows() -> None:
    x = torch.zeros(6, 40)
    x[:, 3] = 2
    form = module._smaller(x)
    assert form.layout == torch.sparse_csr
    assert module._smaller(x) is form
    x[0, 0] = 1
    assert torch.equal(module._smaller(x).to_dense(), x)
    dense = torch.ones(4, 40)
    assert module._smaller(dense) is dense


def test_dropout_of_rows() -> None:
    def one(x: Tensor, key: Tensor, index: Tensor) -> Tensor:
        with keyed(key), keyed_functions():
            return functional.dropout(x[index])

    keys = torch.arange(REPLICAS)
    out = torch.vmap(one, in_dims=(0, 0, None))(X, keys, SOURCE)
    for k in range(REPLICAS):
        torch.testing.assert_close(out[k], one(X[k], keys[k], SOURCE))


def test_a_change_after_the_gather_is_noticed() -> None:
    def one(x: Tensor, key: Tensor) -> Tensor:
        with keyed(key), keyed_functions():
            x = x * 1
            message = x[SOURCE]
            x.zero_()
            return message + 0

    with pytest.raises(RuntimeError, match="modified in place after rows of it were selected"):
        torch.vmap(one)(X, torch.arange(REPLICAS))


def test_indices_of_inference_mode() -> None:
    with torch.inference_mode():
        index = SOURCE.clone()
        for _ in range(2):
            out = torch.vmap(lambda x, key: _selected(x, key, index))(X, torch.arange(REPLICAS))
            torch.testing.assert_close(out, X[:, SOURCE] + 1)
            index.copy_(SOURCE)


def _selected(x: Tensor, key: Tensor, index: Tensor) -> Tensor:
    with keyed(key), keyed_functions():
        return x[index] + 1


def test_layers_of_pytorch() -> None:
    layer = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 2)).double()
    names = dict(layer.named_parameters())

    def function(x: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(layer, given, (scatter_sum(x[SOURCE], TARGET),))

    assert_batched_as_alone(function, X, *[normal(REPLICAS, *value.shape, seed=6) for value in names.values()])
