"""`Cluster`: an engine that trains runs as Ray tasks on several machines; the caller keeps them in its store."""

from __future__ import annotations

import logging
import math
import socket
import sys
import time
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gfgn.nn.custom import is_import_name
from gfgn.runs.text import count
from gfgn.train.code import code_version
from gfgn.train.replica import Status
from gfgn.train.settings import keep_freed_memory, num_threads

if TYPE_CHECKING:
    import torch

    from gfgn.data.dataset import NodeDataset
    from gfgn.runs.engine import History, Job, OnRun, OnStatus
    from gfgn.runs.record import RunRecord

TASKS_PER_WORKER = 4  # of a job with many runs: a few even out faster and slower workers
RETRIES = 4  # times that Ray starts the task of a lost worker again
CONNECT = 10.0  # seconds to wait for the cluster's head
WAIT = 60.0  # seconds between two looks at the workers
_logger = logging.getLogger("gfgn")


class Cluster:
    """An engine (see `gfgn.runs.engine.Engine`) that trains runs on a Ray cluster.

    The runs of a job are divided into tasks: one CPU each, or one GPU if the cluster has any. The runs of a task reach
    the caller when it ends; Ray starts the task of a lost worker again elsewhere. A search by successive halving is one
    task, as its runs meet at every rung. Results are those of a single process on the same kind of machine, bit for
    bit. Ray is imported and starts with the first job that has something to train.

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
        if find_spec("ray") is None:
            raise ImportError("a cluster needs Ray, which is not installed: pip install 'gfgn[ray]'")
        self.address, self.device = address, device
        self._started = False
        self._data: tuple[NodeDataset, Any] | None = None  # the dataset that workers fetch, and a reference to it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._started:
            import ray

            ray.shutdown()

    def __call__(
        self, job: Job, dataset: NodeDataset, device: torch.device | str, on_run: OnRun, on_status: OnStatus
    ) -> None:
        """Trains a job. `device`, that of this process, is not used."""
        import ray

        kind = self.connect()
        if self._data is None or self._data[0] is not dataset:
            self._data = (dataset, ray.put(dataset.to("cpu")))
        remote = ray.remote(num_cpus=1, num_gpus=int(kind == "cuda"), max_retries=RETRIES)(_train)
        # A reference in a list is not resolved by Ray: a worker fetches the data once for all its tasks.
        shared = ([self._data[1]], kind, code_version(), str(Path.cwd()))
        tasks = [remote.remote(part, *shared) for part in divide(job, self.workers(kind))]
        runs, finished, best, start = len(job.replicas), 0, math.nan, time.monotonic()
        try:
            while tasks:
                ready, tasks = ray.wait(tasks, timeout=WAIT)
                if not ready and not self.workers(kind):
                    _logger.warning(f"no worker of the cluster can train {job.model}: waiting for one to join")
                for row, history in (run for task in ready for run in _result(task)):
                    on_run(row, history)
                    finished, best = finished + 1, row.val if math.isnan(best) else max(best, row.val)
                seconds = time.monotonic() - start
                left = seconds * (runs - finished) / finished if finished else None
                on_status(Status(runs, finished, runs - finished, 0, best, seconds, left))
        finally:
            for task in tasks:
                ray.cancel(task, force=True)

    def connect(self) -> str:
        """Connects to the cluster, or starts one on this machine; what workers train on, "cpu" or "cuda"."""
        import ray

        _check_address(self.address or "")
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, logging_level=logging.WARNING)
            self._started = True
            _logger.info(f"Ray: {count(self.workers('cpu'), 'CPU')}, {count(self.workers('cuda'), 'GPU')}")
        if self.device == "cuda" and not self.workers("cuda"):
            raise ValueError("device must be cpu for a cluster without GPUs, got 'cuda'")
        return "cuda" if self.device != "cpu" and self.workers("cuda") else "cpu"

    def workers(self, kind: str) -> int:
        """Number of tasks that can run at the same time on devices of a kind."""
        import ray

        return int(ray.cluster_resources().get("GPU" if kind == "cuda" else "CPU", 0))


def _check_address(address: str) -> None:
    """Raises an error at once if nothing listens there: Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    try:
        if colon:
            socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"address must be HOST:PORT of a cluster's head, got {address!r}: {error}") from error


def divide(job: Job, workers: int) -> list[Job]:
    """The jobs of single tasks."""
    runs = len(job.replicas)
    size = runs if job.search else max(1, math.ceil(runs / (TASKS_PER_WORKER * max(1, workers))))
    return [replace(job, replicas=job.replicas[first : first + size]) for first in range(0, runs, size)]


def _result(task: Any) -> list[tuple[RunRecord, History]]:
    """The runs of a finished task; an error of training is raised as it was."""
    import ray

    try:
        runs: list[tuple[RunRecord, History]] = ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise getattr(error, "cause", None) or error from None
    return runs


def _train(job: Job, data: list[Any], device: str, code: str, folder: str) -> list[tuple[RunRecord, History]]:
    """Trains a job in a worker process."""
    if code_version() != code:
        raise ValueError(f"workers must have the caller's version of gfgn, with code {code}, got {code_version()}")
    if is_import_name(job.model) and folder not in sys.path:
        sys.path.append(folder)  # where the caller finds custom models
    runs: list[tuple[RunRecord, History]] = []
    with keep_freed_memory(), num_threads(1):
        job.run(_fetch(data[0], device), device, lambda row, history: runs.append((row, history)), lambda status: None)
    return runs


@lru_cache(maxsize=1)
def _fetch(reference: Any, device: str) -> NodeDataset:
    """The dataset on a worker's device: once for all its tasks, so that what models cache about its graph is kept."""
    import ray

    dataset: NodeDataset = ray.get(reference).to(device)
    return dataset
