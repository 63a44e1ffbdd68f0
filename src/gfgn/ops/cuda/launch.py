"""`Kernel`: a Triton kernel that is launched with little Python.

Triton derives the code to run from all arguments, in every launch: on a small graph that takes longer than most kernels
do. A `Kernel` looks it up by what the code depends on, and hands over addresses.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import triton
from triton.runtime import JITFunction, driver

INT32 = 2**31
on_gpu = attrgetter("is_cuda")


def cdiv(x: int, y: int) -> int:
    """`x / y` rounded up; Triton's own, which also works in kernels, takes a microsecond."""
    return -(-x // y)


def next_power_of_2(x: int) -> int:
    """The least power of two that is `x` or larger."""
    return 1 << max(0, x - 1).bit_length()


class Kernel:
    """A kernel whose parameters are tensors and numbers, passed by position, and then constants, by name and in order.

    The code depends on the dtypes of the tensors and on which of them are `None`, on the constants, and on the numbers
    that are not in `do_not_specialize`. Tensors are expected on the GPU, at a multiple of 16 bytes, where PyTorch puts
    them. With any others, and in its interpreter, Triton launches the kernel itself, or raises its error.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.compiled: dict[Any, Any] = {}  # by device, dtypes, numbers and constants
        self.is_compiled = isinstance(function, JITFunction)
        self.specialized = [not p.do_not_specialize for p in function.params] if self.is_compiled else []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **constants: self.launch(grid, args, constants)

    def launch(self, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any]) -> None:
        if not self.is_compiled:
            self.function[grid](*args, **constants)
            return
        active = driver.active
        device, options = active.get_current_device(), list(constants.values())
        key, values, addresses, ready = [device, *options], list(args), 0, True
        for index, arg in enumerate(args):
            kind = type(arg)
            if kind is int:
                key.append(arg if self.specialized[index] else -INT32 <= arg < INT32)
            elif arg is None or kind is float:
                key.append(kind)
            else:
                key.append(arg.dtype)
                ready = ready and on_gpu(arg)
                values[index] = address = arg.data_ptr()
                addresses |= address
        known, ready = tuple(key), ready and not addresses & 15
        compiled = self.compiled.get(known) if ready else None
        if compiled is None:
            compiled = self.function[grid](*args, **constants)
            if ready:
                self.compiled[known] = compiled
            return
        # The options of the launch, such as `num_warps`, come last and are no parameters.
        values += options[: len(self.specialized) - len(values)]
        compiled[(*grid, 1, 1)[:3]](*values, stream=active.get_current_stream(device))


def kernel(do_not_specialize: tuple[str, ...] = ()) -> Callable[[Any], Kernel]:
    """Makes a `Kernel` of the decorated function; arguments as for `triton.jit`."""
    return lambda function: Kernel(triton.jit(do_not_specialize=do_not_specialize)(function))
