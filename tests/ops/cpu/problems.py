"""Random sparse patterns with node tensors, and what the kernels must compute on them, in plain float64 PyTorch."""

import torch
from torch import Tensor

from gfgn.ops.cpu import kernels
from gfgn.ops.csr import CSR, compress

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}
KEYS = torch.tensor([0, 1, 0xFFFFFFFF, 0x9E3779B1])
RATE = torch.tensor([0.0, 0.5, 0.25, 0.999], dtype=torch.float64)


class Problem:
    """A pattern in both orders with weights, and node tensors; entry `e` sends from `source[e]` to `target[e]`."""

    def __init__(
        self, target: Tensor, source: Tensor, nodes: int, columns: int, dtype: torch.dtype, scale: float = 1.0
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        order = torch.argsort(target, stable=True)
        self.target, self.source = target[order], source[order]
        self.rows = compress(self.target, self.source, nodes)
        self.entry = torch.argsort(self.source, stable=True)
        self.rows_t = compress(self.source[self.entry], self.target[self.entry], nodes)
        self.norm, self.row_norm = (
            torch.rand(target.numel(), generator=generator, dtype=torch.float64).to(dtype) for _ in range(2)
        )
        self.norm_t, self.row_norm_t = self.norm[self.entry], self.row_norm[self.entry]
        self.a, self.b, self.z, self.grad = (
            (torch.randn(nodes, columns, generator=generator, dtype=torch.float64) * size).to(dtype)
            for size in (scale, scale, 1.0, 1.0)
        )
        self.lam = torch.rand(columns, generator=generator, dtype=torch.float64).to(dtype)

    def forward(self, save: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        return kernels.pair_forward(self.a, self.b, self.z, self.lam, self.norm, self.row_norm, self.rows, save)

    def backward(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        args = (self.grad, self.a, self.b, self.z, p, q, self.lam, self.norm_t, self.row_norm_t, self.rows_t)
        return kernels.pair_backward(*args)

    def all(self) -> list[Tensor]:
        out, p, q = self.forward()
        return [out, p, q, *self.backward(p, q)]

    def expected(self) -> list[Tensor]:
        """Everything `all` returns, by index operations and autograd in float64."""
        a, b, z = (x.double().clone().requires_grad_() for x in (self.a, self.b, self.z))
        norm, row_norm, lam = (x.double() for x in (self.norm, self.row_norm, self.lam))
        s = torch.sigmoid(a[self.target] + b[self.source])
        t = norm[:, None] * z[self.source] - row_norm[:, None] * z[self.target]
        nothing = torch.zeros_like(z)
        out = z + lam * nothing.index_add(0, self.target, s * t)
        p = nothing.index_add(0, self.target, s * (1 - s) * t)
        q = nothing.index_add(0, self.target, s * row_norm[:, None])
        grads = torch.autograd.grad(out, (a, b, z), self.grad.double(), allow_unused=True)
        return [x.detach() for x in (out, p, q, *(g if g is not None else nothing for g in grads))]


def random_problem(
    nodes: int, entries: int, columns: int, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> Problem:
    generator = torch.Generator().manual_seed(nodes + entries)
    ends = torch.randint(max(nodes - 2, 1), (2, entries), generator=generator)  # the last nodes are isolated
    return Problem(ends[0], ends[1], nodes, columns, dtype, scale)


def ragged(*lengths: int, nodes: int) -> tuple[Tensor, Tensor]:
    """Rows of the given lengths, then empty ones."""
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return row, torch.arange(row.numel()) * 7 % nodes


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    scale = expected.abs().max().item() if expected.numel() else 1.0
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=TOLERANCE[dtype] * max(scale, 1e-3))


def check_all(problem: Problem) -> None:
    for actual, expected in zip(problem.all(), problem.expected(), strict=True):
        assert_close(actual, expected, problem.z.dtype)


def dense(rows: CSR, values: Tensor | None, columns: int) -> Tensor:
    """The pattern with values (default: 1) as a dense float64 matrix."""
    count = rows.ptr.numel() - 1
    row = torch.repeat_interleave(torch.arange(count), rows.ptr.diff())
    values = torch.ones(row.numel(), dtype=torch.float64) if values is None else values.double()
    return torch.zeros(count, columns, dtype=torch.float64).index_put((row, rows.idx.long()), values, accumulate=True)
