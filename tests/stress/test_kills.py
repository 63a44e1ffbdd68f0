"""Processes killed at system calls, and two that write at once: nothing is lost that was reported, nothing is half."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from runs.stores import row
from stress.cases import cases

from gfgn.data.files import atomic_write
from gfgn.runs import Store, read_runs, write_runs

CALLS = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "openat", "unlink", "rename", "fcntl", "close")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def fork(job: Callable[[], None]) -> int:
    """Runs a job in a child process, which is a copy of this one, and returns its id."""
    child = os.fork()
    if child == 0:
        try:
            job()
        finally:
            os._exit(0)
    return child


def kill_at(job: Callable[[], None], call: str, number: int) -> bool:
    """Runs a job in a child process that is killed when it enters a system call for the `number`-th time; whether it
    came to that."""
    ready, go = os.pipe()

    def wait_and_work() -> None:
        os.read(ready, 1)
        job()

    child = fork(wait_and_work)
    inject = [f"--inject={call}:signal=KILL:when={number}", f"--trace={call}"]
    tracer = subprocess.Popen(
        ["strace", "--attach", str(child), *inject, "--output", os.devnull], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None
    attached = tracer.stderr.readline()
    os.write(go, b"x")
    if "attached" not in attached:
        os.waitpid(child, 0)
        pytest.skip(f"strace cannot trace here: {attached.strip()}")
    _, status = os.waitpid(child, 0)
    tracer.wait()
    tracer.stderr.close()
    os.close(ready)
    os.close(go)
    return os.WIFSIGNALED(status)


def kill_later(job: Callable[[], None], seconds: float) -> bool:
    """Runs a job in a child process that is killed after some time."""
    child = fork(job)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def kill(job: Callable[[], None], seed: int) -> bool:
    """Kills a job at a system call if strace is there, else after some milliseconds."""
    draw = random.Random(seed)
    if shutil.which("strace"):
        return kill_at(job, CALLS[seed % len(CALLS)], draw.randint(1, 30))
    return kill_later(job, draw.uniform(0.0, 0.2))


def test_a_store_keeps_every_run_that_was_reported(tmp_path: Path) -> None:
    killed = 0
    for seed in cases(10):
        path, reported = tmp_path / f"{seed}.sqlite", tmp_path / f"{seed}.txt"

        def work(path: Path = path, reported: Path = reported) -> None:
            with Store(path) as store, reported.open("wb", buffering=0) as log:
                for number in range(40):
                    store.add([row(seed=number)])
                    log.write(f"{number}\n".encode())

        killed += kill(work, seed)
        done = [int(line) for line in reported.read_text().split()] if reported.exists() else []
        with Store(path) as store:
            seeds = [each.replica.seed for each in store.rows()]
            assert store._database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert seeds == list(range(len(seeds))), seed
            assert len(seeds) - len(done) in (0, 1), seed  # the last one may be in the file and not yet reported
            assert store.add([row(seed=number) for number in range(40)]) == 40 - len(seeds)
    assert killed


def test_a_replaced_file_is_whole_and_leftovers_are_removed(tmp_path: Path) -> None:
    killed = 0
    for seed in cases(10):
        path = tmp_path / str(seed) / "out.txt"

        def work(path: Path = path) -> None:
            for number in range(30):
                with atomic_write(path) as unfinished:
                    unfinished.write_text(f"{number:04}" * 5000)

        killed += kill(work, seed)
        if path.exists():
            text = path.read_text()
            assert text == text[:4] * 5000, seed
        work(path)
        assert [each.name for each in path.parent.iterdir()] == ["out.txt"], seed
    assert killed


def test_two_processes_write_the_same_files(tmp_path: Path) -> None:
    store, table = tmp_path / "runs.sqlite", tmp_path / "runs.csv.gz"
    rows = [row(seed=number) for number in range(60)]

    def work(first: int) -> None:
        with Store(store) as opened:
            for number in range(first, 60 + first, 2):
                opened.add([rows[number % 60], rows[(number + 1) % 60]])
                opened.to_csv(tmp_path / "runs.csv")
                write_runs(table, rows[: 1 + number % 60])

    children = [fork(lambda first=first: work(first)) for first in (0, 1, 30)]  # type: ignore[misc]
    while children:
        seen = table.exists() and read_runs(table)  # never half a file
        assert seen is False or len(seen) > 0
        children = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
    with Store(store) as opened:
        assert [each.replica.seed for each in opened.rows()] == list(range(60))
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    assert len(lines) == 61
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.csv", "runs.csv.gz", "runs.sqlite"]


def test_a_temporary_file_in_use_is_not_a_leftover(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with atomic_write(path) as first:
        with atomic_write(path) as second:
            second.write_text("second")
        first.write_text("first")
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]


def test_a_loss_of_power_costs_the_last_runs_at_most(tmp_path: Path) -> None:
    """What a disk can lose without `fsync`: the end of the write-ahead log, or blocks of it that were written later."""
    original, kept = tmp_path / "runs.sqlite", tmp_path / "kept"

    def work() -> None:
        store = Store(original)
        for number in range(12):
            store.add([row(seed=number)])
        shutil.copytree(tmp_path, kept)  # with the log, which closing the store would write back

    os.waitpid(fork(work), 0)
    log = (kept / "runs.sqlite-wal").read_bytes()
    lost = 0
    for seed in cases(20):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        shutil.copy(kept / "runs.sqlite", folder)
        start = draw.randrange(len(log))
        torn = log[:start] if seed % 2 else log[:start] + bytes(min(4096, len(log) - start)) + log[start + 4096 :]
        (folder / "runs.sqlite-wal").write_bytes(torn)
        with Store(folder / "runs.sqlite") as store:
            seeds = [each.replica.seed for each in store.rows()]
            assert seeds == list(range(len(seeds))), seed  # the first ones, without gaps
            assert store._database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert store.add([row(seed=number) for number in range(12)]) == 12 - len(seeds)
        lost += len(seeds) < 12
    assert lost


def test_a_store_is_synchronized_as_the_documentation_says(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.sqlite") as store:
        assert store._database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert store._database.execute("PRAGMA synchronous").fetchone()[0] == 1  # NORMAL
