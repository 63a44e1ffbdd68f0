"""`Progress`: the finished runs of one training call, and the caller's callbacks."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from gfgn.train.replica import Run, Status

ENOUGH = 0.2  # fraction of the work that must be done before the remaining time is estimated


class Progress:
    """Collects the finished runs of `replicas` and reports them and the status of training to the caller."""

    def __init__(
        self,
        replicas: int,
        on_run: Callable[[Run], None] | None = None,
        on_status: Callable[[Status], None] | None = None,
    ) -> None:
        self.replicas = replicas
        self.on_run, self.on_status = on_run, on_status
        self.runs: dict[int, Run] = {}  # finished runs by the index of their replica
        self.lock = threading.RLock()  # held by the thread that changes what other threads read
        self.stopped = False  # set when a callback or a job raised: jobs in progress return early, and no others start
        self._start = time.perf_counter()
        self._trained = 0  # epochs, summed over replicas
        self._events: queue.SimpleQueue[Any] | None = None  # while jobs run in threads: callbacks and finished jobs

    def add_epochs(self, count: int) -> None:
        """Counts trained epochs, for the estimate of the remaining time."""
        with self.lock:
            self._trained += count

    def finish(self, index: int, run: Run) -> None:
        """Records a finished run."""
        with self.lock:
            self.runs[index] = run
            self._call(self.on_run, run)

    def report(self, epoch: int, best_scores: Callable[[], Sequence[float]]) -> None:
        """Reports the status of a batch: its epoch and the best validation scores of its replicas so far."""
        if self.on_status is None:
            return
        seconds, scores = time.perf_counter() - self._start, best_scores()
        values = [*(run.val for run in self.runs.values()), *scores]
        left = None
        if self.runs and self._trained and len(self.runs) >= ENOUGH * self.replicas:
            expected = sum(run.epochs for run in self.runs.values()) / len(self.runs)
            left = max(0.0, self.replicas * max(expected, epoch) - self._trained) * seconds / self._trained
        status = Status(
            replicas=self.replicas,
            finished=len(self.runs),
            alive=len(scores),
            epoch=epoch,
            best_val=max((score for score in values if not math.isnan(score)), default=math.nan),
            seconds=seconds,
            seconds_left=left,
        )
        self._call(self.on_status, status)

    def run_in_threads(self, jobs: Sequence[Callable[[], None]], threads: int) -> None:
        """Runs jobs in threads; the callbacks they trigger are called in this thread."""
        events = self._events = queue.SimpleQueue()
        try:
            with ThreadPoolExecutor(min(threads, len(jobs)), "gfgn-batch") as pool:
                for job in jobs:
                    pool.submit(self._unless_stopped, job).add_done_callback(events.put)
                try:
                    self._handle(events, len(jobs))
                except BaseException:
                    self.stopped = True
                    raise
        finally:
            self._events = None

    def _unless_stopped(self, job: Callable[[], None]) -> None:
        if not self.stopped:
            job()

    @staticmethod
    def _handle(events: queue.SimpleQueue[Any], jobs: int) -> None:
        """Handles events until all jobs have finished."""
        while jobs:
            event = events.get()
            if isinstance(event, Future):
                event.result()
                jobs -= 1
            else:
                callback, value = event
                callback(value)

    def _call(self, callback: Callable[[Any], None] | None, value: Any) -> None:
        if callback is None:
            return
        if self._events is None:
            callback(value)
        else:
            self._events.put((callback, value))
