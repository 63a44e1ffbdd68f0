"""The threads of a kernel call, and how they share its tasks.

All threads of a call take tasks from one atomic counter. The order of each sum is fixed by its task, so the bits do not
depend on which thread ran it, and a thread that comes late finds no task left. So kernels may be called from any
thread, at the same time, and after a fork.

The threads are those of PyTorch's OpenMP where it has one. For some time after an operator of PyTorch, its threads keep
their cores busy while they wait for the next one: other threads would have to share the cores with them.
"""

import atexit
import ctypes
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gfgn.ops.cpu.compiler import External, inlined
from gfgn.ops.cpu.machine import ENTRY
from gfgn.ops.cpu.vectors import atomic_add


def _do_nothing() -> None:
    """Where the system has no `sched_yield`, waiting is spinning."""


# On a busy machine, the thread that is waited for may need this core.
yield_processor: Any = External("sched_yield") if hasattr(os, "sched_yield") else inlined(_do_nothing)


class Tasks(NamedTuple):
    """The tasks of one kernel call that has a single phase."""

    counters: Any
    """A counter of threads, then for each phase one of the tasks taken and one of the tasks finished."""
    number: int


@inlined
def next_task(work: Any, phase: int) -> Any:
    """Takes the next task of a phase; the number may exceed the last one."""
    return atomic_add(work.counters, 1 + 2 * phase, 1)


@inlined
def finish_task(work: Any, phase: int) -> Any:
    """Reports a task of a phase as finished and takes the next one."""
    atomic_add(work.counters, 2 + 2 * phase, 1)
    return next_task(work, phase)


@inlined
def wait_for_tasks(work: Any, phase: int, tasks: int) -> None:
    """Waits until all tasks of a phase are finished."""
    while atomic_add(work.counters, 2 + 2 * phase, 0) < tasks:
        yield_processor()


@inlined
def for_each_task(run_task: Any, op: Any, work: Any) -> None:
    """Calls `run_task(op, task)` for the tasks that this thread gets, and waits for the other threads."""
    task = next_task(work, 0)
    while task < work.number:
        run_task(op, task)
        task = finish_task(work, 0)
    wait_for_tasks(work, 0, work.number)


def find_openmp() -> Any:
    """The function of PyTorch's OpenMP that calls `function(arguments)` on several threads, or `None`."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        parallel = library.GOMP_parallel  # of the library, or of one that it was linked with
    except (OSError, AttributeError):
        return None
    parallel.argtypes, parallel.restype = [ENTRY, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel


class ThreadPool:
    """Daemon threads that run kernels next to their callers, where there is no OpenMP; started when first needed.

    A caller waits only for tasks that were started.
    """

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def submit(self, count: int, job: Callable[[], None]) -> None:
        """Has `count` threads run a job, the call of a kernel."""
        if len(self.threads) < count:
            with self.lock:
                while len(self.threads) < count:
                    self.threads.append(threading.Thread(target=self.work, name="gfgn-kernel", daemon=True))
                    self.threads[-1].start()
        for _ in range(count):
            self.jobs.put(job)

    def work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()
            del job  # hold no tensor while waiting

    def close(self) -> None:
        """Ends the threads. One that returned from a kernel while Python shuts down would abort the process."""
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join()


openmp = find_openmp()
pool = ThreadPool()


def _after_fork() -> None:
    """A child process has none of its parent's threads, and OpenMP would wait for them."""
    global openmp, pool
    openmp, pool = None, ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: pool.close())


def run(function: Any, op: Any, work: Any, threads: int) -> None:
    """Calls the kernel `function(op, work)` on several threads at once, this one included; compiles it if necessary."""
    call = function.bind(op, work)
    if threads > 1 and openmp is not None:
        openmp(call.function, call.arguments, threads, 0)
    else:
        pool.submit(threads - 1, call)
        call()


def run_tasks(function: Any, op: Any, tasks: int) -> None:
    """Calls a kernel of `tasks` independent tasks on PyTorch's number of threads; see `run`."""
    work = Tasks(np.zeros(3, dtype=np.int64), tasks)
    threads = torch.get_num_threads()  # also for fewer tasks: if their number varies, OpenMP starts threads again
    run(function, op, work, threads if tasks > 1 else 1)
