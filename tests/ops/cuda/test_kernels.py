"""The Triton kernels against plain PyTorch in float64: on a GPU if there is one, else in Triton's interpreter."""

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from gfgn.ops.csr import CSR, SEGMENT, compress  # noqa: E402
from gfgn.ops.cuda import attention, gates, gather, kernels, products  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
WIDTHS = [1, 17, 64, 129]  # one per shape of a tile, and more than one block of columns


class Graph:
    """Random entries (target, source) in both orders, with random values."""

    def __init__(self, target: Tensor, source: Tensor, targets: int, sources: int | None = None) -> None:
        sources = targets if sources is None else sources
        self.shape = targets, sources
        order = torch.argsort(target, stable=True)
        self.target, self.source = target[order], source[order]
        self.rows = compress(self.target, self.source, targets)
        self.order = torch.argsort(self.source, stable=True)
        self.rows_t = compress(self.source[self.order], self.target[self.order], sources)
        entries = target.numel()
        self.norm = torch.rand(entries, device=DEVICE) + 0.1
        self.row_norm = torch.rand(entries, device=DEVICE) + 0.1
        self.norm_t, self.row_norm_t = self.norm[self.order], self.row_norm[self.order]

    def gather(self, x: Tensor, by: str) -> Tensor:
        return x.double()[getattr(self, by)]

    def sum(self, entries: Tensor, by: str = "target") -> Tensor:
        size = self.shape[0] if by == "target" else self.shape[1]
        zero = torch.zeros(size, *entries.shape[1:], dtype=torch.float64, device=DEVICE)
        return zero.index_add(0, getattr(self, by), entries)


def integers(high: int, count: int) -> Tensor:
    return torch.randint(high, (count,), device=DEVICE)


def random_graph(nodes: int = 13, entries: int = 45, sources: int | None = None) -> Graph:
    """The first rows are empty, the last node is isolated."""
    target = integers(nodes - 4, entries) + 3
    return Graph(target, integers(nodes - 1 if sources is None else sources, entries), nodes, sources)


def long_graph() -> Graph:
    """Rows of one segment, of one entry more, of none and of a few; the first column has two segments as well."""
    length = torch.tensor([SEGMENT, SEGMENT + 1, 0, 3], device=DEVICE)
    target = torch.repeat_interleave(torch.arange(4, device=DEVICE), length)
    source = integers(4, target.numel())
    source[: SEGMENT + 9] = 0
    return Graph(target, source, 4)


def star() -> Graph:
    """A hub with edges from and to all leaves. The interpreter takes milliseconds per row: few leaves, many edges."""
    leaves, repetitions = (100_000, 1) if CUDA else (16, 33)
    leaf = torch.arange(1, leaves + 1, device=DEVICE).repeat(repetitions)
    hub = torch.zeros_like(leaf)
    return Graph(torch.cat([hub, leaf]), torch.cat([leaf, hub]), leaves + 1)


def empty_graph(nodes: int) -> Graph:
    return Graph(integers(1, 0), integers(1, 0), nodes)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "random": random_graph,
    "long rows": long_graph,
    "one node": lambda: empty_graph(1),
    "self": lambda: Graph(integers(1, 2), integers(1, 2), 1),
    "no entries": lambda: empty_graph(5),
    "no nodes": lambda: empty_graph(0),
}
CASES = [("random", width) for width in WIDTHS] + [(name, 17) for name in GRAPHS if name != "random"]
EACH_CASE = pytest.mark.parametrize(("name", "width"), CASES)


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN, so that an element that is not written is noticed."""
    torch.manual_seed(0)

    class Poisoned:
        def __getattr__(self, name: str) -> object:
            return getattr(torch, name)

        @staticmethod
        def empty(*args: object, **kwargs: object) -> Tensor:
            return torch.empty(*args, **kwargs).fill_(torch.nan)

        @staticmethod
        def empty_like(*args: object, **kwargs: object) -> Tensor:
            return torch.empty_like(*args, **kwargs).fill_(torch.nan)

    for module in (attention, gates, gather):
        monkeypatch.setattr(module, "torch", Poisoned())


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def assert_close(got: Tensor, expected: Tensor) -> None:
    assert got.shape == expected.shape
    low = got.dtype != torch.float32
    torch.testing.assert_close(got.double(), expected.double(), rtol=2e-2 if low else 2e-5, atol=5e-2 if low else 1e-4)


def exact_pair(graph: Graph, a: Tensor, b: Tensor, z: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s = torch.sigmoid(graph.gather(a, "target") + graph.gather(b, "source"))
    norm, row_norm = graph.norm.double()[:, None], graph.row_norm.double()[:, None]
    t = norm * graph.gather(z, "source") - row_norm * graph.gather(z, "target")
    out = z.double() + lam.double() * graph.sum(s * t)
    return out, graph.sum(s * (1 - s) * t), graph.sum(s * row_norm)


def check_pair(graph: Graph, width: int, dtype: torch.dtype = torch.float32, size: float = 1.0) -> None:
    nodes = graph.shape[0]
    a, b, z, grad = (normal(nodes, width, dtype=dtype) for _ in range(4))
    a, b = a * size, b * size
    lam = torch.rand(width, device=DEVICE) * 2
    leaves = [x.double().requires_grad_() for x in (a, b, z)]
    truth = exact_pair(graph, *leaves, lam)
    args = (a, b, z, lam, graph.norm, graph.row_norm, graph.rows)
    out, p, q = kernels.pair_forward(*args, save=True)
    for got, expected in zip((out, p, q), truth, strict=True):
        assert_close(got, expected.detach())
    plain, *nothing = kernels.pair_forward(*args, save=False)
    assert torch.equal(plain, out)
    assert [x.numel() for x in nothing] == [0, 0]
    grads = kernels.pair_backward(grad, a, b, z, p, q, lam, graph.norm_t, graph.row_norm_t, graph.rows_t)
    expected = torch.autograd.grad(truth[0], leaves, grad.double())
    for got, want in zip(grads, expected, strict=True):
        assert got.dtype == dtype
        assert_close(got, want)


@EACH_CASE
def test_pair(name: str, width: int) -> None:
    check_pair(GRAPHS[name](), width)


@pytest.mark.parametrize("shape", [(2, 8, 16), (1, 4, 16), (4, 8, 32)])
def test_pair_in_other_tile_shapes(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "plan", lambda *_: gather.Tile(*shape))
    check_pair(random_graph(), 20)


def test_pair_star(monkeypatch: pytest.MonkeyPatch) -> None:
    if not CUDA:  # fewer steps for the interpreter
        monkeypatch.setattr(gather, "plan", lambda *_: gather.Tile(64, 2, 16))
    check_pair(star(), 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pair_low_precision(dtype: torch.dtype) -> None:
    check_pair(random_graph(), 64, dtype)


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_pair_saturated_gates(size: float) -> None:
    check_pair(random_graph(), 8, size=size)


def test_pair_propagates_nan_to_neighbors_only() -> None:
    graph = random_graph()
    nodes, width = graph.shape[0], 5
    a, b, z = (normal(nodes, width) for _ in range(3))
    for tensor, node in ((a, 0), (a, 4), (b, 5), (z, nodes - 1)):
        tensor[node, 2] = torch.nan
    lam = torch.ones(width, device=DEVICE)
    results = kernels.pair_forward(a, b, z, lam, graph.norm, graph.row_norm, graph.rows, save=True)
    for got, expected in zip(results, exact_pair(graph, a, b, z, lam), strict=True):
        torch.testing.assert_close(got.double(), expected, equal_nan=True, rtol=2e-5, atol=1e-4)
    assert results[0].isnan().any()


@pytest.mark.parametrize("weighted", [True, False])
@EACH_CASE
def test_spmm(name: str, width: int, weighted: bool) -> None:
    graph = GRAPHS[name]()
    x = normal(graph.shape[1], width)
    weight = graph.norm.double() if weighted else torch.ones_like(graph.norm, dtype=torch.float64)
    got = kernels.spmm(x, graph.rows, graph.norm if weighted else None)
    assert_close(got, graph.sum(weight[:, None] * graph.gather(x, "source")))


@EACH_CASE
def test_spmm_pair(name: str, width: int) -> None:
    graph = GRAPHS[name]()
    x, g0, g1 = (normal(graph.shape[1], width) for _ in range(3))
    norm = graph.norm.double()[:, None]
    inverse = torch.rand(graph.shape[0], device=DEVICE)
    weighted, mean = kernels.spmm_pair(x, graph.rows, graph.norm, inverse)
    assert_close(weighted, graph.sum(norm * graph.gather(x, "source")))
    assert_close(mean, inverse.double()[:, None] * graph.sum(graph.gather(x, "source")))
    got = kernels.spmm_pair_backward(g0, g1, graph.rows_t, graph.norm_t, inverse)
    scaled = inverse[:, None] * g1
    assert_close(got, graph.sum(norm * graph.gather(g0, "target") + graph.gather(scaled, "target"), "source"))


def test_rectangular() -> None:
    graph = random_graph(nodes=9, sources=31)
    x, g0, g1 = normal(31, 20), normal(9, 20), normal(9, 20)
    norm = graph.norm.double()[:, None]
    assert_close(kernels.spmm(x, graph.rows, graph.norm), graph.sum(norm * graph.gather(x, "source")))
    got = kernels.spmm_pair_backward(g0, g1, graph.rows_t, graph.norm_t, torch.ones(9, device=DEVICE))
    assert_close(got, graph.sum(norm * graph.gather(g0, "target") + graph.gather(g1, "target"), "source"))


@pytest.mark.parametrize("shared", [False, True])
@EACH_CASE
def test_gated(name: str, width: int, shared: bool) -> None:
    graph = GRAPHS[name]()
    nodes = graph.shape[0]
    z, grad = normal(nodes, width), normal(nodes, width)
    s = torch.rand(1 if shared else nodes, width, device=DEVICE)
    norm = graph.norm.double()[:, None]
    gate, leaf = s.double().expand(nodes, width).clone().requires_grad_(), z.double().requires_grad_()
    diff_truth = graph.sum(norm * graph.gather(leaf, "source")) - leaf
    truth = leaf + gate * diff_truth
    out, diff = kernels.gated_propagate(z, s, graph.rows, graph.norm, save=True)
    assert_close(out, truth.detach())
    assert_close(diff, diff_truth.detach())
    plain, nothing = kernels.gated_propagate(z, s, graph.rows, graph.norm, save=False)
    assert torch.equal(plain, out)
    assert nothing.numel() == 0
    grads = kernels.gated_propagate_backward(grad, s, diff, graph.rows_t, graph.norm_t)
    for got, want in zip(grads, torch.autograd.grad(truth, (leaf, gate), grad.double()), strict=True):
        assert_close(got, want)


HEADS = [("random", 1, 1), ("random", 3, 5), ("random", 2, 130), ("random", 40, 1)]
EACH_HEADS = pytest.mark.parametrize(
    ("name", "heads", "width"), HEADS + [(name, 5, 3) for name in GRAPHS if name != "random"]
)


@EACH_HEADS
def test_attend(name: str, heads: int, width: int) -> None:
    """Both orders: the entries of the transposed rows read their weights by their numbers."""
    graph = GRAPHS[name]()
    x, grad = normal(graph.shape[1], heads * width), normal(graph.shape[0], heads * width)
    alpha = normal(graph.target.numel(), heads)
    spread = alpha.double().repeat_interleave(width, 1)
    own = torch.arange(graph.target.numel(), device=DEVICE)
    got = kernels.attend(alpha, x, graph.rows, own)
    assert_close(got, graph.sum(spread * graph.gather(x, "source")))
    back = kernels.attend(alpha, grad, graph.rows_t, graph.order)
    assert_close(back, graph.sum(spread * graph.gather(grad, "target"), "source"))


@EACH_HEADS
def test_edge_dot(name: str, heads: int, width: int) -> None:
    graph = GRAPHS[name]()
    q, k = normal(graph.shape[0], heads * width), normal(graph.shape[1], heads * width)
    expected = (graph.gather(q, "target") * graph.gather(k, "source")).unflatten(1, (heads, width)).sum(2)
    own = torch.arange(graph.target.numel(), device=DEVICE)
    assert_close(kernels.edge_dot(q, k, graph.rows, own, width), expected)
    assert_close(kernels.edge_dot(k, q, graph.rows_t, graph.order, width), expected)


@EACH_HEADS
def test_softmax(name: str, heads: int, width: int) -> None:
    """Scores so far apart that the maximum of each row must be subtracted, and some that are -inf."""
    graph = GRAPHS[name]()
    entries = graph.target.numel()
    scores = normal(entries, heads) + 200 * width * integers(3, entries)[:, None]
    not_first = graph.target == torch.cat([graph.target.new_full((1,), -1), graph.target])[:-1]
    scores[not_first & (integers(3, entries) == 0)] = -torch.inf
    leaf = scores.double().requires_grad_()
    top = leaf.new_full((graph.shape[0], heads), -torch.inf)
    top = top.index_reduce(0, graph.target, leaf.detach(), "amax")
    weight = (leaf - top[graph.target]).exp()
    truth = weight / graph.sum(weight)[graph.target]
    alpha = kernels.softmax(scores, graph.rows)
    assert_close(alpha, truth.detach())
    grad = normal(*scores.shape)
    assert_close(kernels.softmax_backward(grad, alpha, graph.rows), torch.autograd.grad(truth, leaf, grad.double())[0])


def test_edges_in_low_precision() -> None:
    graph, own = random_graph(), torch.arange(45, device=DEVICE)
    x, alpha = normal(13, 12, dtype=torch.bfloat16), normal(45, 3, dtype=torch.bfloat16)
    attended, dots = kernels.attend(alpha, x, graph.rows, own), kernels.edge_dot(x, x, graph.rows, own, 4)
    softmax = kernels.softmax(alpha, graph.rows)
    assert {t.dtype for t in (attended, dots, softmax)} == {torch.bfloat16}
    spread = alpha.double().repeat_interleave(4, 1)
    assert_close(attended, graph.sum(spread * graph.gather(x, "source")))
    assert_close(dots, (graph.gather(x, "target") * graph.gather(x, "source")).unflatten(1, (3, 4)).sum(2))
    assert_close(graph.sum(softmax.double()), (graph.sum(torch.ones(45, 3, dtype=torch.float64, device=DEVICE)) > 0))


def kept(entry: int, key: int, rate: float) -> bool:
    """Whether dropout keeps an entry, in Python's integers."""
    word = 2**32 - 1
    h = (entry & word) ^ key
    h ^= (entry >> 32) * 0x9E3779B1 & word
    h ^= h >> 16
    h = h * 0x7FEB352D & word
    h ^= h >> 15
    h = h * 0x846CA68B & word
    h ^= h >> 16
    return h >= int(rate * 2**32)


def exact_dropout(
    graph: Graph, weight: Tensor, keys: list[int], rates: list[float], numbers: list[int], by: str
) -> Tensor:
    """`by`: whether the rows of the result are targets (`"target"`) or sources (`"source"`)."""
    blocks = []
    for key, rate, block in zip(keys, rates, weight.chunk(len(keys), 1), strict=True):
        keep = torch.tensor([kept(e, key, rate) for e in numbers], device=DEVICE, dtype=torch.float64)
        value = graph.norm.double() * keep / (1 - rate)
        blocks.append(graph.sum(value[:, None] * graph.gather(block, {"target": "source"}.get(by, "target")), by))
    return torch.cat(blocks, 1)


RATES = [0.0, 0.5, 0.8, 0.999999]


@pytest.mark.parametrize(
    ("name", "width"),
    [("random", 1), ("random", 7), ("random", 40), ("long rows", 20), ("no entries", 7), ("no nodes", 7)],
)
def test_sparse_linear_and_its_transpose(name: str, width: int) -> None:
    graph = GRAPHS[name]()
    keys = [0, 2**32 - 1, 2**31, 123456789]
    key, rate = torch.tensor(keys, device=DEVICE), torch.tensor(RATES, device=DEVICE, dtype=torch.float64)
    entries = graph.target.numel()
    weight, grad = normal(graph.shape[1], 4 * width), normal(graph.shape[0], 4 * width)
    out = kernels.sparse_linear(weight, graph.rows, graph.norm, key, rate, None, width)
    expected = exact_dropout(graph, weight, keys, RATES, list(range(entries)), "target")
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-3)
    back = kernels.sparse_linear(grad, graph.rows_t, graph.norm_t, key, rate, graph.order, width)
    expected = exact_dropout(graph, grad, keys, RATES, list(range(entries)), "source")
    torch.testing.assert_close(back.double(), expected, rtol=1e-4, atol=1e-3)


def test_sparse_linear_with_entry_numbers_of_more_than_32_bits() -> None:
    graph = random_graph()
    numbers = [e + (e % 5) * 2**32 + 2**31 for e in range(graph.target.numel())]
    key, rate = torch.tensor([77], device=DEVICE), torch.tensor([0.5], device=DEVICE, dtype=torch.float64)
    weight = normal(graph.shape[1], 33)
    got = kernels.sparse_linear(weight, graph.rows, graph.norm, key, rate, torch.tensor(numbers, device=DEVICE), 33)
    assert_close(got, exact_dropout(graph, weight, [77], [0.5], numbers, "target"))


def test_sparse_linear_replicas_are_independent() -> None:
    graph = random_graph()
    keys, rate = integers(2**32, 3), torch.tensor([0.1, 0.5, 0.9], device=DEVICE, dtype=torch.float64)
    weight = normal(graph.shape[1], 3 * 24)
    together = kernels.sparse_linear(weight, graph.rows, graph.norm, keys, rate, None, 24)
    for r, block in enumerate(weight.chunk(3, 1)):
        one = slice(r, r + 1)
        alone = kernels.sparse_linear(block, graph.rows, graph.norm, keys[one], rate[one], None, 24)
        assert torch.equal(alone, together.chunk(3, 1)[r])


def all_results(graph: Graph, dtype: torch.dtype) -> list[Tensor]:
    """The results of every function on fixed input."""
    torch.manual_seed(1)
    nodes, width = graph.shape[0], 33
    a, b, z, grad = (normal(nodes, width, dtype=dtype) for _ in range(4))
    lam, rows, rows_t = torch.rand(width, device=DEVICE), graph.rows, graph.rows_t
    keys, rate = integers(2**32, 3), torch.full((3,), 0.5, device=DEVICE, dtype=torch.float64)
    inverse = torch.rand(nodes, device=DEVICE)
    own = torch.arange(graph.target.numel(), device=DEVICE)
    out, p, q = kernels.pair_forward(a, b, z, lam, graph.norm, graph.row_norm, rows, save=True)
    gated, diff = kernels.gated_propagate(z, a, rows, graph.norm, save=True)
    return [
        out,
        p,
        q,
        gated,
        diff,
        *kernels.pair_backward(grad, a, b, z, p, q, lam, graph.norm_t, graph.row_norm_t, rows_t),
        *kernels.gated_propagate_backward(grad, a, diff, rows_t, graph.norm_t),
        kernels.spmm(z, rows, graph.norm),
        *kernels.spmm_pair(z, rows, graph.norm, inverse),
        kernels.spmm_pair_backward(a, b, rows_t, graph.norm_t, inverse),
        kernels.sparse_linear(z, rows, graph.norm, keys, rate, None, width // 3),
        dots := kernels.edge_dot(a, b, rows, own, width // 3),
        alpha := kernels.softmax(dots, rows),
        kernels.softmax_backward(dots, alpha, rows),
        kernels.attend(alpha, z, rows, own),
        kernels.attend(alpha, grad, rows_t, graph.order),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_same_bits_twice(dtype: torch.dtype) -> None:
    graph = long_graph() if CUDA else random_graph()
    for first, second in zip(all_results(graph, dtype), all_results(graph, dtype), strict=True):
        assert first.dtype == dtype
        assert torch.equal(first, second)
        assert first.isfinite().all()


def test_views_are_accepted() -> None:
    graph = random_graph()
    wide = normal(graph.shape[1], 30)
    view = wide[:, 5:17]
    assert_close(kernels.spmm(view, graph.rows, None), graph.sum(graph.gather(view, "source")))


def test_errors_name_the_argument() -> None:
    graph = random_graph()
    x = normal(graph.shape[1], 4)
    with pytest.raises(TypeError, match="float64"):
        kernels.spmm(x.double(), graph.rows, None)
    keys, rate = integers(9, 3), torch.zeros(3, device=DEVICE, dtype=torch.float64)
    with pytest.raises(ValueError, match="weight has 4 columns, expected 3 replicas of 2"):
        kernels.sparse_linear(x, graph.rows, graph.norm, keys, rate, None, 2)


def test_csr_fields_are_those_the_kernels_read() -> None:
    assert CSR._fields == ("ptr", "idx", "hub_rows", "hub_ptr", "seg_hub")


@pytest.mark.parametrize(
    ("rows", "heads", "depth", "width"), [(1, 1, 1, 1), (70, 3, 8, 8), (300, 2, 70, 5), (65, 1, 33, 130)]
)
def test_products_of_heads(rows: int, heads: int, depth: int, width: int) -> None:
    x, weight, grad = normal(rows, heads * depth), normal(heads, depth, width), normal(rows, heads * width)
    by_head = x.double().view(rows, heads, depth).transpose(0, 1)
    expected = (by_head @ weight.double()).transpose(0, 1).reshape(rows, -1)
    out = torch.empty(rows, heads * width, device=DEVICE)
    products.head_matmul(x, weight, out, add=False)
    assert_close(out, expected)
    products.head_matmul(x, weight.transpose(1, 2).contiguous().transpose(1, 2), out, add=True)
    assert_close(out, 2 * expected)
    of_weight = by_head.transpose(1, 2) @ grad.double().view(rows, heads, width).transpose(0, 1)
    assert_close(products.head_weight_gradient(x, grad, heads), of_weight)
    assert_close(products.row_sums(grad), grad.double().sum(0))


@pytest.mark.parametrize(("rows", "heads", "d"), [(0, 2, 3), (1, 1, 1), (300, 3, 8), (70, 2, 70)])
def test_halves_of_a_gate(rows: int, heads: int, d: int) -> None:
    z, grad, grad_a, grad_b = (normal(rows, heads * d).requires_grad_() for _ in range(4))
    gate = normal(heads, 2 * d, d).requires_grad_()
    by_head = z.double().view(rows, heads, d).transpose(0, 1)
    expected = [(by_head @ half.double()).transpose(0, 1).reshape(rows, heads * d) for half in gate.chunk(2, dim=1)]
    found = products.halves(z.detach(), gate.detach())
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other.detach())
    of_z, of_gate = torch.autograd.grad(expected, (z, gate), (grad_a.double(), grad_b.double()))
    given = (x.detach().clone() for x in (grad_a, grad_b, grad, z, gate))
    for one, other in zip(products.halves_backward(*given), (grad + of_z, of_gate), strict=True):
        assert_close(one, other.detach())


@pytest.mark.parametrize("rows", [7, 200])
@pytest.mark.parametrize(("depth", "width"), [(8, 8), (64, 5), (20, 40)])
def test_bits_of_a_head_do_not_depend_on_the_others(rows: int, depth: int, width: int) -> None:
    """Alone, and at any place among three and among nineteen heads."""
    x, weight, grad = normal(rows, 19 * depth), normal(19, depth, width), normal(rows, 19 * width)
    gate = normal(19, 2 * depth, depth)

    def results(first: int, last: int) -> list[Tensor]:
        heads = last - first
        part = x[:, first * depth : last * depth].contiguous()
        of_part = grad[:, first * width : last * width].contiguous()
        out = torch.empty(rows, heads * width, device=DEVICE)
        products.head_matmul(part, weight[first:last], out, add=False)
        of_weight = products.head_weight_gradient(part, of_part, heads)
        gates = gate[first:last]
        a, b = products.halves(part, gates)
        of_z, of_gate = products.halves_backward(a, b, a.clone(), part, gates)
        return [
            a.view(rows, heads, depth),
            of_z.view(rows, heads, depth),
            of_gate.transpose(0, 1),
            out.view(rows, heads, width),
            of_weight.transpose(0, 1),
            products.row_sums(of_part).view(1, heads, width),
        ]

    together = results(0, 19)
    for first, last in ((0, 1), (18, 19), (3, 6)):
        for part, whole in zip(results(first, last), together, strict=True):
            assert torch.equal(part, whole[:, first:last])
