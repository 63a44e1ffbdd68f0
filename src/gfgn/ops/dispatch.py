"""Which implementation of an operator runs: by device, by `GFGN_BACKEND`, or by name.

A backend that is requested by name and cannot run is an error; the automatic choice falls back to the reference and
warns once.
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from gfgn.ops.csr import CSR
from gfgn.ops.torch_internals import constant_under_compile

DESCRIPTIONS = {"reference": "plain PyTorch, any device", "numba": "fused CPU kernels", "triton": "fused CUDA kernels"}
KERNELS = {"reference": "reference", "numba": "cpu.kernels", "triton": "cuda.kernels"}
ELEMENTWISE = {"numba": "cpu.dense", "triton": "cuda.dense"}
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Backend:
    """One implementation of the operators, and whether it can run here."""

    name: str
    available: bool
    detail: str
    """What it is, or why it is not available."""


def backends() -> dict[str, Backend]:
    """Every backend by name: whether it can run on this machine and, if not, why not."""
    problems = {name: _missing(name) for name in DESCRIPTIONS}
    return {name: Backend(name, problem is None, problem or DESCRIPTIONS[name]) for name, problem in problems.items()}


class Kernels(Protocol):
    """The functions of a backend that walk a `CSR`: plain functions on tensors, without gradients."""

    # The reference has these three.
    def spmm(self, x: Tensor, rows: CSR, values: Tensor | None) -> Tensor: ...

    def attend(self, alpha: Tensor, z: Tensor, rows: CSR, entry: Tensor) -> Tensor: ...

    def edge_dot(self, q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor: ...

    # The CPU and CUDA have these.
    def spmm_pair(self, x: Tensor, rows: CSR, values: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]: ...

    def spmm_pair_backward(
        self, g_weighted: Tensor, g_mean: Tensor, rows_t: CSR, values_t: Tensor, inverse: Tensor
    ) -> Tensor: ...

    def pair_forward(
        self, a: Tensor, b: Tensor, z: Tensor, lam: Tensor, norm: Tensor, row_norm: Tensor, rows: CSR, save: bool
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def pair_backward(
        self,
        grad: Tensor,
        a: Tensor,
        b: Tensor,
        z: Tensor,
        p: Tensor,
        q: Tensor,
        lam: Tensor,
        norm_t: Tensor,
        row_norm_t: Tensor,
        rows_t: CSR,
        reuse: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]: ...

    def sparse_linear(
        self,
        weight: Tensor,
        rows: CSR,
        values: Tensor,
        keys: Tensor,
        rate: Tensor,
        entry: Tensor | None,
        out_columns: int,
    ) -> Tensor: ...

    # CUDA alone has these. On a CPU the sum over neighbors takes most of the time, and fusing gains little.
    def gated_propagate(self, z: Tensor, s: Tensor, rows: CSR, norm: Tensor, save: bool) -> tuple[Tensor, Tensor]: ...

    def gated_propagate_backward(
        self, grad: Tensor, s: Tensor, diff: Tensor, rows_t: CSR, norm_t: Tensor
    ) -> tuple[Tensor, Tensor]: ...

    def softmax(self, scores: Tensor, rows: CSR) -> Tensor: ...

    def softmax_backward(self, grad: Tensor, alpha: Tensor, rows: CSR) -> Tensor: ...


class NeighborGate(Protocol):
    """The gate of the neighbor level."""

    def gated_neighbor(self, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor: ...

    def gated_neighbor_backward(
        self, grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...


class Elementwise(NeighborGate, Protocol):
    """The functions of a backend on dense tensors of replicas: plain functions, without gradients."""

    def dropout(self, x: Tensor, keys: Tensor, rate: Tensor, shared: bool) -> Tensor: ...

    def adam(
        self,
        p: Tensor,
        grad: Tensor,
        m: Tensor,
        v: Tensor,
        scale: Tensor,
        decay: Tensor,
        rate: Tensor,
        correction: Tensor,
        beta1: float,
        beta2: float,
        eps: float,
    ) -> None: ...

    def copy_where(self, source: Tensor, target: Tensor, chosen: Tensor) -> None: ...


class SmallProducts(Protocol):
    """Products with one small matrix per head, on the CPU. See `gfgn.ops.heads`."""

    def head_matmul(self, x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None: ...

    def head_weight_gradient(self, x: Tensor, grad: Tensor, heads: int) -> Tensor: ...


class SmallGates(NeighborGate, Protocol):
    """Gates of small heads, on the CPU. See `gfgn.ops.heads`."""

    def halves(self, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]: ...

    def halves_backward(
        self, grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor
    ) -> tuple[Tensor, Tensor]: ...


@functools.cache
def kernels(name: str) -> Kernels:
    """The functions of a backend that walk a `CSR`."""
    return cast(Kernels, importlib.import_module(f"gfgn.ops.{KERNELS[name]}"))


@functools.cache
def elementwise(name: str) -> Elementwise:
    """The functions of a backend on dense tensors."""
    return cast(Elementwise, importlib.import_module(f"gfgn.ops.{ELEMENTWISE[name]}"))


@functools.cache
def small_gates() -> SmallGates | None:
    """The CPU kernels for the gates of small heads, or `None` without Numba."""
    return None if _missing("numba") else cast(SmallGates, importlib.import_module("gfgn.ops.cpu.small_gates"))


@functools.cache
def small_products() -> SmallProducts | None:
    """The CPU kernels for the products of small heads, or `None` without Numba."""
    return None if _missing("numba") else cast(SmallProducts, importlib.import_module("gfgn.ops.cpu.heads"))


@constant_under_compile
def choose(device: str, dtype: torch.dtype, requested: str | None, differentiable: str | None = None) -> str:
    """The backend that runs on tensors of this device and dtype.

    Args:
        device: Type of the device.
        dtype: Dtype of the features.
        requested: The caller's choice, or `None` for the environment's (`GFGN_BACKEND`) or the automatic one.
        differentiable: Name of an argument that only the reference can differentiate, or `None`.
    """
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
    if name == "reference":
        return None
    problem = _missing(name)
    if problem is not None:
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
