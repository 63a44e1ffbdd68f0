"""What holds for the whole suite: without a GPU, Triton's kernels run through its interpreter; no test is timed; every
test draws the same random numbers every time."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported

# Hypothesis would else fail a test for being slow on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """PyTorch begins with another seed in every process; what fails here is to fail again."""
    torch.manual_seed(0)
