"""Every private name of PyTorch that the library uses.

PyTorch may rename them in any release: `pyproject.toml` bounds its version, and `tests/ops/test_torch_internals.py`
says which function of this module broke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._functorch import pyfunctorch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_map_only as tree_map_only
from torch.utils.weak import WeakIdKeyDictionary as WeakIdKeyDictionary

F = TypeVar("F", bound=Callable[..., Any])
_functorch = torch._C._functorch
_derivatives = (_functorch.TransformType.Grad, _functorch.TransformType.Jvp)
as_plain_tensors = torch._C.DisableTorchFunctionSubclass  # subclasses of tensors are treated as tensors inside it
without_function_modes = (
    torch._C.DisableTorchFunction
)  # calls inside it go to PyTorch at once, past modes and subclasses
_on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
outside_of_transforms = pyfunctorch.temporarily_pop_interpreter_stack  # suspends the innermost functorch transform


def constant_under_compile(function: F) -> F:
    """Does what `torch.compiler.assume_constant_result` does, without importing the compiler: a second, 139 MiB."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_batched(x: Any) -> bool:
    """Whether `x` is a tensor that has one value per replica of a running `vmap`, and only kernels need to know it:
    inside `has_derivatives`, PyTorch does the batching."""
    return isinstance(x, Tensor) and _functorch.is_batchedtensor(x) and not has_derivatives()


def is_wrapped(x: Tensor) -> bool:
    """Whether `x` is inside a functorch transform, where its values cannot be read; not known to `torch.compile`."""
    return not torch.compiler.is_compiling() and _functorch.is_functorch_wrapped_tensor(x)


def unwrapped(x: Tensor) -> Tensor:
    """The tensor that a batched tensor holds."""
    return _functorch.get_unwrapped(x)


def batch_dim(x: Tensor) -> int:
    """The dimension of a batched tensor's `unwrapped` tensor that holds the replicas."""
    return _functorch.maybe_get_bdim(x)


def add_batch_dim(x: Tensor, dim: int, level: int) -> Tensor:
    """The batched tensor of a `vmap` at `level` whose replicas are in dimension `dim` of `x`."""
    return _functorch._add_batch_dim(x, dim, level)


def has_transforms() -> bool:
    """Whether any functorch transform is running."""
    return _functorch.peek_interpreter_stack() is not None


@constant_under_compile
def has_derivatives() -> bool:
    """Whether a functorch transform that differentiates is running (`torch.func.grad`, `jvp` and what they are part
    of), or forward-mode differentiation: what happens must be visible to PyTorch, operation by operation."""
    if forward_ad._current_level >= 0:
        return True
    stack = _functorch.get_interpreter_stack()
    return stack is not None and any(transform.key() in _derivatives for transform in stack)


@contextmanager
def outside_of_all_transforms() -> Iterator[None]:
    """Suspends all functorch transforms."""
    with ExitStack() as suspended:
        while has_transforms():
            suspended.enter_context(outside_of_transforms())
        yield


def only_vmap_level() -> int | None:
    """The level of the running functorch transform if it is a single `vmap` without dispatch modes, else `None`."""
    if has_dispatch_modes():
        return None
    stack = _functorch.get_interpreter_stack()
    if stack is None or len(stack) != 1 or stack[0].key() != _functorch.TransformType.Vmap:
        return None
    level: int = stack[0].level()
    return level


def has_dispatch_modes() -> bool:
    """Whether a `TorchDispatchMode` is active."""
    return torch._C._len_torch_dispatch_stack() != 0


def overload(operator: Any) -> Any:
    """The dispatcher's own entry of a `torch.library.custom_op`: calling it skips a Python layer."""
    return operator._opoverload


def schema_arguments(operator: Any) -> dict[str, str]:
    """Names and types of the arguments of an overload of an operator, in order."""
    return {argument.name: str(argument.type) for argument in operator._schema.arguments}


def default_generator(device: torch.device) -> torch.Generator:
    """The global generator of a device."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index]
    return torch.mps._get_default_mps_generator() if device.type == "mps" else torch.default_generator


def graph_is_retained() -> bool:
    """Whether the running backward pass may be repeated (`retain_graph=True`); true outside of one."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def in_place_version(x: Tensor) -> int:
    """How often `x` has been modified in place."""
    return x._version


def base_of(x: Tensor) -> Tensor:
    """The tensor that `x` is a view of, or `x`."""
    return x if x._base is None else x._base


def parse_to(*args: Any, **kwargs: Any) -> tuple[torch.device | None, torch.dtype | None, bool]:
    """Device, dtype and `non_blocking` from the arguments of `torch.Tensor.to`."""
    device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
    return device, dtype, non_blocking


def coo_entries(x: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of a sparse COO tensor as they are stored: repeated entries are not merged, unless a gradient
    is to reach the values, which only merged ones pass on."""
    if x.requires_grad:
        x = x.coalesce()
        return x.indices(), x.values()
    return x._indices(), x._values()


def call_on_cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the CPU kernel of an operator from inside a `TorchDispatchMode`, which the kernel's own calls reach."""
    return op.redispatch(_on_cpu, *args, **kwargs)


def hooks_of(x: Tensor) -> bool:
    """Whether a leaf has hooks for its gradient."""
    return bool(x._backward_hooks or x._post_accumulate_grad_hooks)


def backward(loss: Tensor) -> None:
    """`loss.backward()` that function modes stay on in; they are off in that of PyTorch, which they could replace."""
    torch.autograd.graph._engine_run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )
