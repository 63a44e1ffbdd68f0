"""The backends that can run here, and the device of each."""

import pytest
import torch

from gfgn import ops

CUDA = torch.cuda.is_available()
BACKENDS = [name for name, backend in ops.backends().items() if backend.available]
FUSED = [name for name in BACKENDS if name != "reference"]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
fused_backend = pytest.mark.parametrize("backend", FUSED)


def device(backend: str) -> str:
    """Triton runs on a GPU if there is one, else in its interpreter."""
    return "cuda" if backend == "triton" and CUDA else "cpu"


def is_interpreted(backend: str) -> bool:
    """Whether every program of a kernel takes milliseconds."""
    return backend == "triton" and not CUDA
