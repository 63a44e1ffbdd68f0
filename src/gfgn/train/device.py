"""The device to train on."""

from __future__ import annotations

import torch


def choose_device(name: str = "auto") -> str:
    """Returns the device to train on; `"auto"` is CUDA if available, else the CPU.

    Args:
        name: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"`, … or `"mps"`.
    """
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = "cuda" if available["cuda"] else "cpu"
    if not available.get(name.partition(":")[0], False):
        known = ", ".join(device for device, present in available.items() if present)
        raise ValueError(f"device must be auto or one that this machine has ({known}), got {name!r}")
    return "cuda:0" if name == "cuda" else name  # the form that `tensor.device` has
