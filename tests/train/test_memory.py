"""`keep_freed_memory`: thresholds that glibc accepts, nested blocks, and memory that is given back."""

import ctypes
import platform
from pathlib import Path

import pytest
import torch

from gfgn.train import keep_freed_memory

if platform.libc_ver()[0] != "glibc":
    pytest.skip("needs glibc", allow_module_level=True)


def resident() -> int:
    """Resident memory in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) >> 8


def allocate_and_free() -> None:
    blocks = [torch.ones(1 << 22) for _ in range(12)]  # 16 MiB each
    del blocks


def test_memory_is_kept_until_the_last_block_ends() -> None:
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests have freed would be used again
    before = resident()

    def interrupted() -> None:
        with keep_freed_memory():
            with keep_freed_memory():
                allocate_and_free()
            assert resident() > before + 150
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert resident() < before + 50
