"""Which implementation of an operator runs: by device, by `GFGN_BACKEND`, or by name.

A backend that is requested by name and cannot run is an error; the automatic choice falls back to the reference and
warns once.

A backend is modules of plain functions on tensors, without gradients:

- `kernels` walk a `CSR`. All have `spmm`, `attend` and `edge_dot`. LLVM and Triton have `spmm_pair`, `pair_forward`,
  their gradients and `sparse_linear`. Triton alone has `gated_propagate`, `graph_gate`, `softmax`, `additive_forward`
  and their gradients: on a CPU the sum over neighbors takes most of the time, and fusing gains little.
- `elementwise`, of LLVM and Triton, have `gated_neighbor`, `two_hops`, their gradients, `dropout`, `adam` and
  `copy_where`.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from gfgn.ops.torch_internals import constant_under_compile, has_derivatives

DESCRIPTIONS = {"reference": "plain PyTorch, any device", "numba": "fused CPU kernels", "triton": "fused CUDA kernels"}
KERNELS = {"reference": "reference", "numba": "cpu.kernels", "triton": "cuda.kernels"}
ELEMENTWISE = {"numba": "cpu.dense", "triton": "cuda.dense"}
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Backend:
    """One implementation of the operators, whether it can run here, and what it is, or why it cannot."""

    name: str
    available: bool
    detail: str


def backends() -> dict[str, Backend]:
    """Every backend by name: whether it can run on this machine and, if not, why not."""
    problems = {name: _missing(name) for name in DESCRIPTIONS}
    return {name: Backend(name, problem is None, problem or DESCRIPTIONS[name]) for name, problem in problems.items()}


@functools.cache
def kernels(name: str) -> Any:
    """The functions of a backend that walk a `CSR`."""
    return importlib.import_module(f"gfgn.ops.{KERNELS[name]}")


@functools.cache
def elementwise(name: str) -> Any:
    """The functions of a backend on dense tensors."""
    return importlib.import_module(f"gfgn.ops.{ELEMENTWISE[name]}")


def cpu_kernels(module: str) -> Any:
    """The CPU kernels that no other backend has: products (`"heads"`), the gates of small heads (`"small_gates"`), the
    sorting of edges (`"index"`) and their normalization (`"normalize"`); `None` without llvmlite and with
    `GFGN_BACKEND=reference`."""
    return None if os.environ.get("GFGN_BACKEND") == "reference" else _cpu_kernels(module)


@functools.cache
def _cpu_kernels(module: str) -> Any:
    return None if _missing("numba") else importlib.import_module(f"gfgn.ops.cpu.{module}")


def cuda_kernels(module: str, device: torch.device) -> Any:
    """The same for CUDA, of `"products"`, `"index"` and `"normalize"`; `None` for other devices and without Triton,
    which launches kernels on the current device only."""
    if device.type != "cuda" or device.index != torch.cuda.current_device():
        return None
    if os.environ.get("GFGN_BACKEND") == "reference":
        return None
    return _cuda_module(module)


@functools.cache
def _cuda_module(module: str) -> Any:
    return None if _missing("triton") else importlib.import_module(f"gfgn.ops.cuda.{module}")


@constant_under_compile
def choose(device: str, dtype: torch.dtype, requested: str | None, differentiable: str | None = None) -> str:
    """The backend for tensors of this device and dtype; `differentiable` names what only the reference can
    differentiate. Derivatives by `torch.func` and in forward mode are such a thing."""
    if differentiable is None and has_derivatives():
        differentiable = "the arguments of transforms of torch.func, or in forward mode"
    return _choose(device, dtype, requested, os.environ.get("GFGN_BACKEND") or None, differentiable)


@functools.cache
def _choose(
    device: str, dtype: torch.dtype, requested: str | None, environment: str | None, differentiable: str | None
) -> str:
    source, name = ("backend", requested) if requested is not None else ("GFGN_BACKEND", environment)
    if name is not None:
        if name not in KERNELS:
            raise ValueError(f"{source} must be one of {', '.join(map(repr, KERNELS))}, got {name!r}")
        problem = _cannot_run(name, device, dtype, differentiable)
        if problem is not None:
            raise RuntimeError(f"{source}={name!r} cannot run: {problem}")
        return name
    if differentiable is not None:
        return "reference"
    best = {"cpu": "numba", "cuda": "triton"}.get(device, "reference")
    problem = _cannot_run(best, device, dtype, None)
    if problem is None:
        return best
    _warn_once(f"gfgn uses its plain PyTorch reference, which is slower and needs more memory: {problem}")
    return "reference"


def _cannot_run(name: str, device: str, dtype: torch.dtype, differentiable: str | None) -> str | None:
    problem = _missing(name)
    if name == "reference" or problem is not None:
        return problem
    home = {"numba": "cpu", "triton": "cpu" if interpreted() else "cuda"}[name]
    if device != home:
        return f"it works on {home} tensors, got {device}"
    if dtype not in FLOATS or (name == "triton" and dtype == torch.float64):
        return f"it has no kernel for {dtype}"
    if differentiable is not None:
        return f"only the reference can differentiate with respect to {differentiable}"
    return None


def interpreted() -> bool:
    """Whether the Triton kernels run in Triton's interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def _import_problem(name: str) -> str | None:
    try:
        kernels(name)
    except ImportError as error:
        return f"{name} cannot be imported ({error})"
    return None


def _missing(name: str) -> str | None:
    if name == "reference":
        return None
    if name == "triton" and not interpreted() and not torch.cuda.is_available():
        return "triton needs a CUDA device (TRITON_INTERPRET=1 runs it, slowly, on the CPU)"
    return _import_problem(name)


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=5)
