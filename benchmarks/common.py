"""Environment, JSON files, peak memory and bandwidths, shared by all benchmarks."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import functools
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

RESULTS = Path(__file__).parent / "results"


def parser(doc: str, rounds: int, parts: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Arguments of a benchmark: which of its parts to run (all if none is named), device and number of rounds."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)

    def part(name: str) -> str:  # `choices` would refuse that none is named
        if name not in parts:
            raise argparse.ArgumentTypeError(f"part must be one of {', '.join(parts)}, got {name!r}")
        return name

    if parts:
        found.add_argument("parts", nargs="*", type=part, metavar="part", help=", ".join(parts))
    found.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    found.add_argument("--rounds", type=int, default=rounds)
    return found


def device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {torch.get_num_threads()} threads"
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def environment(device: str) -> dict[str, str]:
    versions = {"device": device_name(device), "python": platform.python_version()}
    for package in ("torch", "torch-geometric", "triton", "llvmlite", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["date"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return versions


def write(name: str, device: str, problems: list[dict[str, object]], **extra: object) -> Path:
    """Writes `results/<name>-<device>.json`, or under the folder in `GFGN_BENCH_OUT`."""
    folder = Path(os.environ.get("GFGN_BENCH_OUT", RESULTS))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{device}.json"
    content = {"benchmark": name, "environment": environment(device), **extra, "problems": problems}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {path}")
    return path


def read(name: str, device: str) -> list[dict[str, Any]]:
    """The results of the last `write` of that name; empty if there is none."""
    path = Path(os.environ.get("GFGN_BENCH_OUT", RESULTS)) / f"{name}-{device}.json"
    return json.loads(path.read_text())["problems"] if path.exists() else []


class PeakMemory:
    """Peak memory of a block above the memory in use before it: allocator statistics on a GPU, sampled RSS on a CPU."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.mib = 0.0

    def __enter__(self) -> PeakMemory:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
            return self
        _return_free_memory()
        self.before = self.peak = _resident()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._sample)
        self.thread.start()
        return self

    def _sample(self) -> None:
        while not self.stop.is_set():
            self.peak = max(self.peak, _resident())
            time.sleep(0.0005)

    def __exit__(self, *_: object) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            self.mib = (torch.cuda.max_memory_allocated() - self.before) / 2**20
            return
        self.stop.set()
        self.thread.join()
        self.mib = (self.peak - self.before) / 2**20


def _return_free_memory() -> None:
    """Returns freed memory to the system, so that reusing it is visible."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


@contextmanager
def threads(number: int) -> Iterator[None]:
    """PyTorch and gfgn use that many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def elapsed(call: Callable[[], object], device: str) -> float:
    """Seconds of a call, until the device has done it."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


def seconds(call: Callable[[], object], device: str, rounds: int = 7) -> float:
    """Median time of a call, after one that does not count."""
    return statistics.median([elapsed(call, device) for _ in range(rounds + 1)][1:])


def copy_bandwidth(device: str) -> float:
    """Bytes per second of a large copy on this device with the present number of threads, reads and writes counted."""
    return _copy_bandwidth(device, torch.get_num_threads())


@functools.cache
def _copy_bandwidth(device: str, _threads: int) -> float:
    source = torch.rand(2**30 if device == "cuda" else 2**26, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds(lambda: target.copy_(source), device)


def gather_bandwidth(index: Tensor, table: Tensor, device: str) -> float:
    """Bytes per second of gathering the rows `index` of `table`.

    On a CPU they go to a buffer that stays in the cache, so that reads alone are counted and measured. On a GPU the
    buffer holds all rows, and writes count as well.
    """
    table = table.detach()
    parts = index.split(index.numel() if device == "cuda" else 8192)
    buffer = torch.empty(parts[0].numel(), table.size(1), dtype=table.dtype, device=device)

    def gather() -> None:
        for part in parts:
            torch.index_select(table, 0, part, out=buffer[: part.numel()])

    moved = index.numel() * table.size(1) * table.element_size() * (2 if device == "cuda" else 1)
    return moved / seconds(gather, device)
