"""`choose_sampling`: the whole graph in every step while it fits into memory, else samples; memory is measured."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.data.mapped import is_mapped
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.features import take_rows
from gfgn.ops.torch_internals import TorchDispatchMode, call_on_cpu, tree_map_only
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Replica
from gfgn.train.trainer import MAX_MEMORY_SHARE

MEASURED_NODES = 8192  # of the smaller one of the two parts of a graph that are measured


@dataclass(frozen=True)
class SamplingChoice:
    """How a network is trained.

    Attributes:
        sampled: Whether on samples, not on the whole graph.
        reason: Why, as a sentence.
    """

    sampled: bool
    reason: str


def choose_sampling(model: str, data: NodeDataset, replica: Replica, device: str, together: int = 1) -> SamplingChoice:
    """The whole graph while `together` runs on it fit into the free memory of the device.

    Their memory is measured: an epoch is trained on two parts of the graph, and grows with the number of nodes from
    there on. A graph that is no larger than these parts is not measured. One in files would have to be read, too.
    """
    if data.graph.batch is not None:
        return SamplingChoice(False, f"{data.name}: every step takes whole graphs")
    if data.num_nodes <= 2 * MEASURED_NODES:
        return SamplingChoice(False, f"{data.name}: every step takes the whole graph, which is small")
    needed, free = together * epoch_memory(model, data, replica, device), free_memory(device)
    if is_mapped(data.graph):
        needed += data.x.nbytes + data.graph.by_target.idx.nbytes
    facts = f"an epoch needs {_gib(needed)}, measured on parts of it, and {_gib(free)} are free on {device}"
    if needed <= MAX_MEMORY_SHARE * free:
        return SamplingChoice(False, f"{data.name}: every step takes the whole graph, as {facts}")
    return SamplingChoice(True, f"{data.name}: steps take samples, as the whole graph does not fit: {facts}")


def epoch_memory(model: str, data: NodeDataset, replica: Replica, device: str) -> int:
    """Bytes that an epoch of a run on the whole graph needs besides the data, extrapolated from two parts of it."""
    small, large = (
        _measure(model, _part(data, nodes), replica, device) for nodes in (MEASURED_NODES, 2 * MEASURED_NODES)
    )
    return large + max(large - small, 0) * (data.num_nodes - 2 * MEASURED_NODES) // MEASURED_NODES


def free_memory(device: str) -> int:
    """Bytes of the device that can still be allocated: of a GPU, or of main memory under the limits of this process."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    return min(_main_memory())


def _main_memory() -> Iterator[int]:
    """The free memory of the machine, and what its limits leave to this process."""
    machine = _table(Path("/proc/meminfo"))
    if "MemAvailable" not in machine:  # another system than Linux; Windows does not say
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if hasattr(os, "sysconf") else 4 << 30
        return
    import resource

    yield machine["MemAvailable"]
    used = _table(Path("/proc/self/status"))
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield max(most - used[name], 0)
    with contextlib.suppress(OSError, ValueError):  # of a container; "max" is no number
        most, now = (int(Path("/sys/fs/cgroup", f"memory.{name}").read_text()) for name in ("max", "current"))
        yield max(most - now, 0)


def _table(path: Path) -> dict[str, int]:
    """The sizes in a file of the kernel, in bytes."""
    if not path.exists():
        return {}
    lines = (line.split() for line in path.read_text().splitlines())
    return {parts[0].rstrip(":"): 1024 * int(parts[1]) for parts in lines if parts[-1:] == ["kB"]}


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:.0f} MiB"


# --- measuring --------------------------------------------------------------------------------------------------------


def _part(data: NodeDataset, nodes: int) -> NodeDataset:
    """The first nodes with as many edges each as they have in the graph, from sources among them: memory depends on
    the numbers of nodes and edges only."""
    rows = data.graph.by_target
    edges = int(rows.ptr[nodes])
    target = torch.repeat_interleave(torch.arange(nodes), rows.ptr[: nodes + 1].diff().cpu())
    graph = Graph.from_edge_index(torch.stack([rows.idx[:edges].cpu() % nodes, target]), nodes)
    first = torch.arange(nodes) < nodes // 2
    split = Split(first, ~first, torch.zeros_like(first))
    x = take_rows(data.x, torch.arange(nodes, device=data.x.device))
    return replace(data, graph=graph, x=x.cpu(), y=data.y[:nodes].cpu().clamp(min=0), splits=[split], node_ids=None)


def _measure(model: str, data: NodeDataset, replica: Replica, device: str) -> int:
    """The peak of an epoch, in bytes."""
    data = data.to(device)
    train = partial(train_replicas, model, data, [replace(replica, split=0)], 1, 1, device, gates=False)
    if not device.startswith("cuda"):
        allocated = _Allocated()
        with allocated:
            train()
        return allocated.peak
    before: int = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    train()
    peak: int = torch.cuda.max_memory_allocated(device)
    return peak - before


@dataclass(eq=False)
class _Allocated(TorchDispatchMode):
    """Counts the bytes of the tensors that operators inside the block return, as long as they live."""

    live: int = 0
    peak: int = 0
    known: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "gfgn":
            with self:  # what its kernel allocates counts, too
                out = call_on_cpu(func, *args, **(kwargs or {}))
        else:
            out = func(*args, **(kwargs or {}))
        return tree_map_only(Tensor, self._add, out)

    def _add(self, value: Tensor) -> Tensor:
        if value.layout == torch.strided and id(value.untyped_storage()) not in self.known:
            storage = value.untyped_storage()
            key, size = id(storage), storage.nbytes()
            self.known[key] = weakref.finalize(storage, self._remove, key, size)
            self.live += size
            self.peak = max(self.peak, self.live)
        return value

    def _remove(self, key: int, size: int) -> None:
        del self.known[key]
        self.live -= size
