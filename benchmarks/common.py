"""Alternating timing, peak memory and environment, shared by all benchmarks.

Contenders run in one process, one after another in every round, so that noise affects all of them equally; results are
medians over rounds. On a CPU, only ratios between contenders are meaningful.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

RESULTS = Path(__file__).parent / "results"
BACK_TO_BACK = 6
"""Steps between two synchronizations on a GPU; the first is not counted."""
Step = Callable[[], Tensor]
"""A forward pass; the backward pass starts from its result."""


@dataclass
class Row:
    """One contender on one problem; only its name if it ran out of memory."""

    contender: str
    forward_ms: float | None
    backward_ms: float | None
    total_ms: float | None
    peak_mib: float | None
    rounds: int


def device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {torch.get_num_threads()} threads"
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def environment(device: str) -> dict[str, str]:
    versions = {"device": device_name(device), "python": platform.python_version()}
    for package in ("torch", "torch-geometric", "triton", "numba", "numpy"):
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


def read(name: str, device: str) -> dict[str, dict[str, object]]:
    """The results of the last `write` of that name, by dataset; empty if there is none."""
    path = Path(os.environ.get("GFGN_BENCH_OUT", RESULTS)) / f"{name}-{device}.json"
    if not path.exists():
        return {}
    return {problem["dataset"]: problem for problem in json.loads(path.read_text())["problems"]}


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


def _time(step: Step, grad: Tensor, leaves: list[Tensor], device: str) -> tuple[float, float]:
    """Milliseconds of a forward and a backward pass."""
    if device == "cuda":
        # Back to back, as in a training loop: the next launch is prepared while the last one runs.
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(BACK_TO_BACK)]
        torch.cuda.synchronize()
        for start, middle, end in events:
            _clear(leaves)
            start.record()
            out = step()
            middle.record()
            out.backward(grad)
            end.record()
        torch.cuda.synchronize()
        forward = sum(start.elapsed_time(middle) for start, middle, _ in events[1:])
        backward = sum(middle.elapsed_time(end) for _, middle, end in events[1:])
        return forward / (BACK_TO_BACK - 1), backward / (BACK_TO_BACK - 1)
    _clear(leaves)
    start_time = time.perf_counter()
    out = step()
    middle_time = time.perf_counter()
    out.backward(grad)
    return 1e3 * (middle_time - start_time), 1e3 * (time.perf_counter() - middle_time)


def _clear(leaves: list[Tensor]) -> None:
    for leaf in leaves:
        leaf.grad = None


def measure(contenders: dict[str, Step], leaves: list[Tensor], device: str, rounds: int) -> list[Row]:
    """Times forward and backward passes of all contenders in alternation; reports those that run out of memory."""

    grads: dict[str, Tensor] = {}
    memory: dict[str, float] = {}
    times: dict[str, list[tuple[float, float]]] = {}
    for name, step in contenders.items():
        try:
            for _ in range(3):  # warm-up: compilation and caches are not measured
                _clear(leaves)
                out = step()
                if name not in grads:
                    grads[name] = torch.randn_like(out)
                out.backward(grads[name])
            del out
            _clear(leaves)
            with PeakMemory(device) as peak:
                step().backward(grads[name])
            memory[name], times[name] = peak.mib, []
        except torch.OutOfMemoryError:
            grads.pop(name, None)
        _clear(leaves)
        if device == "cuda":
            torch.cuda.empty_cache()
    for _ in range(rounds):
        for name, collected in times.items():
            collected.append(_time(contenders[name], grads[name], leaves, device))
    rows = []
    for name in contenders:
        collected = times.get(name)
        if collected is None:
            rows.append(Row(name, None, None, None, None, 0))
            continue
        forward, backward = (statistics.median(t[k] for t in collected) for k in (0, 1))
        total = statistics.median(sum(t) for t in collected)
        rows.append(Row(name, forward, backward, total, memory[name], rounds))
    return rows


def problem(
    title: str, contenders: dict[str, Step], leaves: list[Tensor], device: str, rounds: int, **facts: object
) -> dict[str, object]:
    """Measures one problem, prints its table and returns its JSON record."""
    print(f"{title}: " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    rows = measure(contenders, leaves, device, rounds)
    for row in rows:
        if row.total_ms is None:
            print(f"  {row.contender:<22} out of memory", flush=True)
            continue
        ratio = row.total_ms / (rows[0].total_ms or row.total_ms)
        print(
            f"  {row.contender:<22} forward {row.forward_ms:9.3f} ms  backward {row.backward_ms:9.3f} ms  "
            f"total {row.total_ms:9.3f} ms  {ratio:7.2f}x  peak {row.peak_mib:9.1f} MiB",
            flush=True,
        )
    return {"title": title, **facts, "rows": [asdict(row) for row in rows]}


def copy_bandwidth(device: str) -> float:
    """Bytes per second of a large copy on this device, counting reads and writes."""
    size = 2**30 if device == "cuda" else 2**26
    source = torch.rand(size, device=device)
    target = torch.empty_like(source)
    best = []
    for _ in range(7):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            target.copy_(source)
            end.record()
            torch.cuda.synchronize()
            best.append(start.elapsed_time(end) / 1e3)
        else:
            start_time = time.perf_counter()
            target.copy_(source)
            best.append(time.perf_counter() - start_time)
    return 2 * 4 * size / statistics.median(best)
