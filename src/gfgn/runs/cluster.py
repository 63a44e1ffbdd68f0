"""`Cluster`: an engine that trains runs as Ray tasks on several machines; the caller keeps them in its store."""

from __future__ import annotations

import logging
import math
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.nn.own import is_import_name
from gfgn.nn.registry import HIDDEN
from gfgn.runs.record import Row
from gfgn.runs.text import count
from gfgn.runs.training import History, Job, OnRun, OnStatus
from gfgn.train.code import code_version
from gfgn.train.replica import Replica, Status
from gfgn.train.settings import keep_freed_memory, num_threads
from gfgn.train.trainer import CACHE_BYTES

ROUNDS = 4  # tasks per CPU, at most, of a job with many runs: a few even out faster and slower workers
MOST_LOSSES = 4  # workers lost one after the other with the same runs, none of which finished
STATUS_EVERY = 1.0  # seconds between two states of training that a task reports
WAIT = 5.0  # seconds to wait for an event
CONNECT = 10.0  # seconds to wait for the cluster's head
WARN_AFTER = 60.0  # seconds without a worker
WORKER_BYTES = 1 << 30  # memory of a worker process without data: Python, PyTorch and compiled kernels
NODE_VALUES = 32  # values per node, hidden unit and replica that layers keep, see `Trainer`
EDGE_BYTES = 64  # of an edge in both orders
VALUE_BYTES = 12  # of a feature, with its column if the matrix is sparse

_logger = logging.getLogger("gfgn")


class Cluster:
    """An engine (see `gfgn.runs.training.Engine`) that trains runs on a Ray cluster.

    The runs of a job are divided among the workers: one task per CPU, or per GPU if the cluster has any. A task reports
    every run as it finishes. When a worker is lost, the runs that it had not reported train again elsewhere. A search
    by successive halving is one task, as its runs meet at every rung. Results are those of a single process on the
    same kind of machine, bit for bit.

    Args:
        address: `HOST:PORT` of the cluster's head; by default `RAY_ADDRESS`, the cluster that this machine belongs to,
            or a new one on this machine alone.
        device: What workers train on: `"cpu"`, `"cuda"`, or `"auto"`, GPUs if the cluster has any.
    """

    def __init__(self, address: str | None = None, device: str = "auto") -> None:
        if address is not None and address.startswith("ray://"):
            advice = "start the command on a machine of the cluster, or with `ray job submit`"
            raise ValueError(f"address must be HOST:PORT, got {address!r}; {advice}")
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be auto, cpu or cuda on a cluster, got {device!r}")
        self.ray = _import_ray()
        _check_address(address)
        self._connected = not self.ray.is_initialized()
        if self._connected:
            self.ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        gpus, cpus = (int(sum(node.get(kind, 0) for node in self._nodes())) for kind in ("GPU", "CPU"))
        if device == "cuda" and not gpus:
            self.close()
            raise ValueError("device must be cpu for a cluster without GPUs, got 'cuda'")
        self.device = "cuda" if gpus and device != "cpu" else "cpu"
        self._data: tuple[NodeDataset, Any] | None = None  # the dataset that workers fetch, and a reference to it
        machines = count(len(self._nodes()), "machine")
        _logger.info(f"Ray: {machines}, {count(cpus, 'CPU')}, {count(gpus, 'GPU')}; runs train on {self.device}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnects from the cluster; one that this process started ends."""
        if self._connected:
            self.ray.shutdown()

    def __call__(
        self, job: Job, dataset: NodeDataset, device: torch.device | str, on_run: OnRun, on_status: OnStatus
    ) -> None:
        """Trains a job. `device`, that of this process, is not used."""
        if self._data is None or self._data[0] is not dataset:
            self._data = (dataset, self.ray.put(dataset.to("cpu")))
        _Call(self, job, dataset, on_run, on_status).train()

    def start(self, job: Job, memory: int) -> Any:
        """Starts a task that trains a job on one worker; a stream of its events."""
        assert self._data is not None
        # Lost tasks are started again by `_Call`, which knows the runs that have finished.
        gpus = 1 if self.device == "cuda" else 0
        remote = self.ray.remote(num_cpus=1, num_gpus=gpus, memory=memory, max_retries=0, num_returns="streaming")
        # A reference in a list is not resolved by Ray: a worker fetches the data once for all its tasks.
        return remote(_train).remote(job, [self._data[1]], self.device, code_version(), str(Path.cwd()))

    def divide(self, job: Job, dataset: NodeDataset) -> tuple[list[Job], int]:
        """The jobs of single tasks, and the memory that each needs. The GPU's is measured by the worker itself."""
        cached = max(1, CACHE_BYTES // (4 * HIDDEN * (dataset.num_nodes + 1)))  # as many as a CPU trains at a time
        stored = dataset.x.values() if dataset.x.layout == torch.sparse_csr else dataset.x
        graph = 3 * (VALUE_BYTES * stored.numel() + EDGE_BYTES * dataset.graph.num_edges)
        values = NODE_VALUES * HIDDEN * dataset.num_nodes * min(len(job.replicas), job.batch_size or cached)
        memory = WORKER_BYTES + graph + (4 * values if self.device == "cpu" else 0)
        memory = min(memory, max((int(node.get("memory", 0)) for node in self._nodes()), default=0))
        if job.search:
            return [job], memory
        workers, runs = max(1, self.workers(memory)), len(job.replicas)
        size = math.ceil(runs / workers)
        if self.device == "cpu":
            size = min(size, max(cached, math.ceil(runs / (ROUNDS * workers))))
        return [replace(job, replicas=job.replicas[first : first + size]) for first in range(0, runs, size)], memory

    def workers(self, memory: int) -> int:
        """Number of tasks that can run at the same time."""
        kinds = ("CPU", "GPU") if self.device == "cuda" else ("CPU",)
        fitting = (
            min([*(int(node.get(kind, 0)) for kind in kinds), int(node.get("memory", 0) // max(memory, 1))])
            for node in self._nodes()
        )
        return sum(fitting)

    def _nodes(self) -> list[dict[str, float]]:
        """The resources of every machine of the cluster."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]


def _check_address(address: str | None) -> None:
    """Raises an error at once if nothing listens there: Ray itself tries for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"address must be HOST:PORT of a cluster's head, got {address!r}: {error}") from error


@dataclass
class _Task:
    """Runs that one worker trains."""

    job: Job
    losses: int = 0  # workers lost since a run finished
    alive: int = 0  # runs in training
    done: set[Replica] = field(default_factory=set)


class _Call:
    """One call of a cluster: its tasks and the runs that they have finished."""

    def __init__(self, cluster: Cluster, job: Job, dataset: NodeDataset, on_run: OnRun, on_status: OnStatus) -> None:
        self.cluster, self.job, self.on_run, self.on_status = cluster, job, on_run, on_status
        jobs, self.memory = cluster.divide(job, dataset)
        self.finished: set[str] = set()
        self.best = math.nan
        self.begun = self.heard = time.monotonic()
        self.running: dict[Any, _Task] = {}
        for each in jobs:
            self._start(_Task(each))

    def train(self) -> None:
        """Handles the events of all tasks until all have ended; an error or an interruption cancels them."""
        ray = self.cluster.ray
        try:
            while self.running:
                streams = list(self.running)
                ray.wait(streams, timeout=WAIT, fetch_local=False)
                ready, _ = ray.wait(streams, num_returns=len(streams), timeout=0, fetch_local=False)
                for stream in ready:
                    self._receive(stream)
                self._warn(bool(ready))
        finally:
            for stream in self.running:
                ray.cancel(stream, force=True)

    def _start(self, task: _Task) -> None:
        self.running[self.cluster.start(task.job, self.memory)] = task

    def _receive(self, stream: Any) -> None:
        """Handles the next event of a task: a run, a status, its end or its loss."""
        ray, task = self.cluster.ray, self.running[stream]
        try:
            event = ray.get(next(stream))
        except StopIteration:
            del self.running[stream]
        except ray.exceptions.RayTaskError as error:  # raised by the training itself
            raise getattr(error, "cause", None) or error from None
        except ray.exceptions.RayError as error:
            del self.running[stream]
            self._restart(task, error)
        else:
            if isinstance(event, Status):
                self._report(task, event)
            else:
                self._finish(task, *event)

    def _finish(self, task: _Task, row: Row, history: History) -> None:
        task.losses = 0
        task.done.add(row.replica)
        if row.key not in self.finished:  # a search that lost its worker reports some runs again
            self.finished.add(row.key)
            self.on_run(row, history)

    def _report(self, task: _Task, status: Status) -> None:
        task.alive = status.alive
        self.best = status.best_val if math.isnan(self.best) else max(self.best, status.best_val)
        seconds, runs, finished = time.monotonic() - self.begun, len(self.job.replicas), len(self.finished)
        left = seconds * (runs - finished) / finished if finished else None
        alive = sum(each.alive for each in self.running.values())
        self.on_status(Status(runs, finished, alive, status.epoch, self.best, seconds, left))

    def _restart(self, task: _Task, error: Exception) -> None:
        """Starts a task again without its finished runs; in halves if the worker had too little memory."""
        job, losses = task.job, task.losses + 1
        left = job.replicas if job.search else tuple(each for each in job.replicas if each not in task.done)
        if not left:
            return
        runs = f"{count(len(left), 'run')} of {job.model} on {job.record.name}"
        if losses >= MOST_LOSSES:
            raise ChildProcessError(f"{losses} workers were lost one after the other with {runs}: {error}") from error
        _logger.warning(f"a worker was lost ({type(error).__name__}); {runs} train again")
        scarce = isinstance(error, self.cluster.ray.exceptions.OutOfMemoryError) and not job.search
        half = math.ceil(len(left) / 2) if scarce else len(left)
        for replicas in filter(None, (left[:half], left[half:])):
            self._start(_Task(replace(job, replicas=replicas), losses))

    def _warn(self, heard: bool) -> None:
        """Says that tasks wait if no worker has been there for a while; another one may join the cluster."""
        now = time.monotonic()
        if heard or self.cluster.workers(self.memory):
            self.heard = now
        elif now - self.heard > WARN_AFTER:
            self.heard = now
            _logger.warning(f"no worker of the cluster can train {self.job.model}: waiting for one to join")


# --- on a worker ------------------------------------------------------------------------------------------------------


def _train(job: Job, data: list[Any], device: str, code: str, folder: str) -> Iterator[tuple[Row, History] | Status]:
    """Trains a job in a worker process and yields its events as they come."""
    if code_version() != code:
        raise ValueError(f"workers must have the caller's version of gfgn, with code {code}, got {code_version()}")
    if is_import_name(job.model) and folder not in sys.path:
        sys.path.append(folder)  # where the caller finds models of its own
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    thread = threading.Thread(target=_run, args=(job, _fetch(data[0], device), device, events), daemon=True)
    thread.start()
    while (event := events.get()) is not None:
        if isinstance(event, BaseException):
            raise event
        yield event


def _run(job: Job, dataset: NodeDataset, device: str, events: queue.SimpleQueue[Any]) -> None:
    """Trains a job and puts its events into a queue; `None` or an exception is the last."""
    last = -math.inf

    def on_status(status: Status) -> None:
        nonlocal last
        if time.monotonic() - last >= STATUS_EVERY:
            last = time.monotonic()
            events.put(status)

    try:
        with keep_freed_memory(), num_threads(1):
            job.run(dataset, device, lambda row, history: events.put((row, history)), on_status)
        events.put(None)
    except BaseException as error:
        events.put(error)


@lru_cache(maxsize=1)
def _fetch(reference: Any, device: str) -> NodeDataset:
    """The dataset on a worker's device: once for all its tasks, so that what models cache about its graph is kept."""
    dataset: NodeDataset = _import_ray().get(reference).to(device)
    return dataset


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("a cluster needs Ray, which is not installed: pip install 'gfgn[ray]'") from error
    return ray
