"""Building blocks of the models: re-initialization, and linear maps of dense or sparse CSR features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.inits import glorot, reset

from gfgn import ops
from gfgn.ops.registration import is_eager
from gfgn.ops.torch_internals import has_derivatives

Rate: TypeAlias = float | Tensor  # of dropout


class ResettableModule(nn.Module):
    """A module that initializes its submodules in the order in which they were added, then its own parameters."""

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: Glorot for own matrices, 0 for own vectors."""
        for child in self.children():
            reset(child)
        for parameter in self.parameters(recurse=False):
            if parameter.dim() > 1:
                glorot(parameter)
            else:
                nn.init.zeros_(parameter)


class Linear(nn.Linear):
    """`H' = H Wᵀ + b` of a dense or sparse CSR `H`, with Glorot weights and a bias that starts at 0.

    `forward` takes the dropout rate of the input; it applies in training only.
    """

    __call__: Callable[..., Tensor]

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        glorot(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor, dropout: Rate = 0.0) -> Tensor:
        return ops.linear(input, self.weight, self.bias, dropout, self.training)


class WeightAndBias(NamedTuple):
    """The parameters of one map of a `StackedLinear`."""

    weight: Tensor
    bias: Tensor | None


class StackedLinear(nn.Module):
    """Several linear maps of the same input, as one matrix and one product; the input is dropped once for all.

    Args:
        in_channels: Input width.
        sizes: Output widths by name, in the order of the outputs.
        bias: Names of the maps that have a bias.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - outputs: one `[N, size]` per map.
    """

    __call__: Callable[..., tuple[Tensor, ...]]
    bias: nn.Parameter | None

    def __init__(self, in_channels: int, sizes: Mapping[str, int], bias: Collection[str] = ()) -> None:
        super().__init__()
        self.names = tuple(sizes)
        self.sizes = tuple(sizes.values())
        self.bias_sizes = tuple(size if name in bias else 0 for name, size in sizes.items())
        self.weight = nn.Parameter(torch.empty(sum(self.sizes), in_channels))
        self.register_parameter("bias", nn.Parameter(torch.empty(sum(self.bias_sizes))) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: Glorot for each map, 0 for biases."""
        for part in self.weight.split(self.sizes):
            glorot(part)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def __getitem__(self, name: str) -> WeightAndBias:
        """The parameters of the map with that name."""
        index = self.names.index(name)
        return WeightAndBias(self.weight.split(self.sizes)[index], self._biases()[index])

    def forward(self, x: Tensor, dropout: Rate = 0.0) -> tuple[Tensor, ...]:
        parts = ops.linear(x, self.weight, None, dropout, self.training).split(self.sizes, dim=1)
        biases = [b if b is None else ops.expand_rows(b, x.size(0)) for b in self._biases()]
        return tuple(part if b is None else part + b for part, b in zip(parts, biases, strict=True))

    def _biases(self) -> list[Tensor | None]:
        if self.bias is None:
            return [None] * len(self.sizes)
        parts = self.bias.split(self.bias_sizes)
        return [part if size else None for part, size in zip(parts, self.bias_sizes, strict=True)]


def two_maps(x: Tensor, first: Tensor, second: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """`x W_1ᵀ` and `x W_2ᵀ + b` of a dense `x`; each result is contiguous, unlike the halves of one product."""
    plain = x.dtype == first.dtype and not torch.is_autocast_enabled(x.device.type)
    if not plain or torch.compiler.is_compiling() or not is_eager(x) or has_derivatives():
        return ops.linear(x, first), ops.linear(x, second, bias)
    results: tuple[Tensor, Tensor] = TwoMaps.apply(x, first, second, bias)  # type: ignore[no-untyped-call]
    return results


class TwoMaps(torch.autograd.Function):
    """`two_maps` whose gradient for `x` is accumulated in one tensor: what counts here is memory traffic."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, second: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, first, second)
        return functional.linear(x, first), functional.linear(x, second, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, first, second = ctx.saved_tensors
        one, two = grads
        needs_x, *_, needs_bias = ctx.needs_input_grad
        grad_x = None
        if needs_x:  # in place unless it is to be differentiated again
            grad_x = one @ first + two @ second if torch.is_grad_enabled() else (one @ first).addmm_(two, second)
        return grad_x, one.t() @ x, two.t() @ x, two.sum(0) if needs_bias else None
