"""Settings of all tests: few threads, Triton's interpreter without a GPU, no time limits, reproducible numbers."""

import os

# Test processes share the cores. Waiting threads of OpenMP must sleep; by default they spin, which makes operators on
# small tensors many times slower. Read when PyTorch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # those of NumPy and SciPy always spin

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is first imported

# Hypothesis would otherwise fail a test for being slow on a busy machine. The same cases run every time, so that a new
# clone passes if this one does; `HYPOTHESIS_PROFILE=random pytest …` draws other and more ones.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, max_examples=60, **UNTIMED)
settings.register_profile("random", max_examples=1000, **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """PyTorch starts with a different seed in every process; a failure must be reproducible."""
    torch.manual_seed(0)
