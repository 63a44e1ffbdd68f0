"""Launches kernels as Triton does and as `gfgn.ops.cuda.launch.Kernel` does, on a machine without a GPU, and compares
what the launcher of the compiled code receives.

Run it as a script, in a process without `TRITON_INTERPRET`: Triton reads it when it is imported.
"""

from typing import Any

import torch
import triton.language as tl
from compile_triton import NoDevice
from torch import Tensor
from triton.compiler import CompiledKernel
from triton.runtime import driver

from gfgn.ops.cuda import launch
from gfgn.ops.cuda.launch import kernel

received: list[tuple[Any, ...]] = []


class Devices(NoDevice):
    """Several devices, of which `current` is one."""

    current = 0

    def get_current_device(self) -> int:
        return self.current

    def get_current_stream(self, device: int) -> int:
        return 100 + device


@kernel(do_not_specialize=("count",))
def _scale(x, y, factor, count, width, SIZE: tl.constexpr, ADD: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at * width, mask=at < count, other=0.0) * factor
    if y is not None:
        value += tl.load(y + at, mask=at < count, other=0.0)
    tl.store(x + at, value + (1.0 if ADD else 0.0), mask=at < count)


def launched(*args: Any, by_triton: bool, size: int = 16, warps: int = 1) -> tuple[Any, ...]:
    """The code and the arguments of a launch, tensors as addresses."""
    target = _scale.function if by_triton else _scale
    target[(3,)](*args, SIZE=size, ADD=True, num_warps=warps)
    (code, *values) = received.pop()
    return code, *(x.data_ptr() if isinstance(x, Tensor) else x for x in values)


def compare(*args: Any, **options: int) -> None:
    first = launched(*args, by_triton=False, **options)
    known = len(_scale.compiled)
    again = launched(*args, by_triton=False, **options)
    assert len(_scale.compiled) == known
    expected = launched(*args, by_triton=True, **options)
    assert first == again == expected, (first, again, expected)


if __name__ == "__main__":
    driver.set_active(Devices())
    launch.on_gpu = lambda tensor: True
    CompiledKernel._init_handles = lambda self: None
    CompiledKernel.run = property(
        lambda self: (
            lambda x, y, z, stream, function, packed, metadata, enter, leave, *args: received.append(
                (self, x, y, z, stream, packed, *args)
            )
        )
    )
    x = torch.zeros(64)
    for device in (0, 1):
        Devices.current = device
        for count in (5, 16, 2**40):
            for width in (1, 3, 16, 32):
                compare(x, None, 0.5, count, width)
        compare(x, x, 0.5, 5, 1)
        compare(x, x[4:], 0.5, 5, 1)
        compare(x[1:], x, 0.5, 5, 1)  # not at a multiple of 16 bytes
        compare(x.half(), x, 0.5, 5, 1)
        compare(x, x.half(), 0.5, 5, 1)
        compare(x, x, 0.5, 5, 1, size=32)
        compare(x, x, 0.5, 5, 1, warps=2)
    launch.on_gpu = lambda tensor: tensor is not x
    known = len(_scale.compiled)
    compare(x, x, 0.5, 5, 1, warps=4)  # Triton says that a tensor is not on the GPU
    assert len(_scale.compiled) == known
    print("same")
