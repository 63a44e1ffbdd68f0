"""Products of float32 matrices on bfloat16 matrix units.

A float32 number is the sum of three bfloat16 numbers with eight significant bits each. Of the nine products of two
numbers' parts, the six largest together are as precise as float32; concatenated along the inner dimension they are one
product of bfloat16 matrices that is summed in float32. On an H200 it takes half the time of a float32 product, which
cannot use matrix units. The smallest terms come first, so that they are not lost in a large sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gfgn.ops.heads import shared_matmul


def split(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three bfloat16 tensors, largest first, whose sum is `x` in float32."""
    high = x.to(torch.bfloat16)
    rest = x - high
    middle = rest.to(torch.bfloat16)
    return high, middle, (rest - middle).to(torch.bfloat16)


def left_parts(x: Tensor) -> Tensor:
    """`[N, 6F]` in bfloat16: the left argument of `product` for `x`, `[N, F]`."""
    high, middle, low = split(x)
    return torch.cat([low, middle, high, middle, high, high], dim=1)


def product(left: Tensor, weight: Tensor) -> Tensor:
    """`x W` from `left_parts(x)` and `weight`, `[F, D]`, float32."""
    high, middle, low = split(weight)
    right = torch.cat([high, middle, low, high, middle, high])
    return shared_matmul(left, right, torch.float32)


def is_faster(x: Tensor) -> bool:
    """Whether `x` is on a GPU with matrix units for bfloat16, where the split product is faster."""
    return x.dtype == torch.float32 and x.is_cuda and torch.cuda.get_device_capability(x.device) >= (8, 0)
