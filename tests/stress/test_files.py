"""Files whose writer is killed, and files that are damaged: whole, or refused in one line; nothing is lost."""

import multiprocessing
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from stress.cases import assert_refused, cases, damaged, damaged_text, gfgn
from stress.formats import GIVEN, WRITTEN

from gfgn.data import read
from gfgn.nn import GFGNConv

FORMATS = WRITTEN | GIVEN
pytestmark = pytest.mark.stress
PROCESSES = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
if hasattr(os, "fork"):
    PROCESSES.set_forkserver_preload(["gfgn.runs", "gfgn.data", "gfgn.estimator"])


def read_or_refuse(read: Callable[[Path], Any], folder: Path) -> Any:
    """`None` if the files are refused, in one line."""
    try:
        return read(folder)
    except (ValueError, OSError) as error:
        message = str(error)
    assert len(message.splitlines()) == 1, message
    assert len(message) < 2000
    return None


def write_on_and_on(name: str, folder: Path) -> None:
    for number in range(10_000):
        (folder / str(number)).mkdir()
        WRITTEN[name].write(folder / str(number))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_killed_writer(name: str, tmp_path: Path) -> None:
    """What it has written is whole or refused, and writing again makes it whole."""
    write, read, _ = WRITTEN[name]
    (tmp_path / "whole").mkdir()
    start = time.perf_counter()
    write(tmp_path / "whole")
    duration, whole = time.perf_counter() - start, read(tmp_path / "whole")
    for seed in cases(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        writer = PROCESSES.Process(target=write_on_and_on, args=(name, folder))
        writer.start()
        while not (folder / "1").exists():
            assert writer.is_alive()
            time.sleep(0.001)
        time.sleep(random.Random(seed).uniform(0, min(2 * duration, 0.5)))
        writer.kill()
        writer.join()
        last = max(folder.iterdir(), key=lambda path: int(path.name))
        found = read_or_refuse(read, last)
        assert found in (None, whole[: len(found or ())] if name == "run store" else whole)
        write(last)
        assert read(last) == whole


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    """The valid file is read; of the damaged ones, some are refused in one line, and nothing else happens."""
    write, read, exact = FORMATS[name]
    original, folder = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    write(original)
    paths = sorted(path.relative_to(original) for path in original.rglob("*") if path.is_file())
    whole, refused = read(original), 0
    for seed in cases(12):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        victim = folder / random.Random(seed).choice(paths)
        content = victim.read_bytes()
        if victim.suffix in (".csv", ".json", ".yaml") and seed % 4:
            victim.write_text(damaged_text(content.decode(), seed), encoding="utf-8", errors="surrogatepass")
        else:
            victim.write_bytes(damaged(content, seed))
        with warnings.catch_warnings(action="ignore"):
            found = read_or_refuse(read, folder)
        assert found is None or found == whole or not exact, seed
        refused += found is None
    assert refused


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_a_full_disk_and_files_of_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("compare", "karate", "--models", "mlp", "--splits", "1", "--epochs", "2", "--quiet", "--out")
    assert_refused(gfgn(capsys, "datasets", "describe", "karate", "--png", "/dev/full"), "/dev/full", "free some space")
    assert_refused(gfgn(capsys, *command, "/dev/full"), "/dev/full")
    (tmp_path / "report.html").write_text("<!doctype html><title>My thesis</title>")
    assert_refused(gfgn(capsys, *command, tmp_path), tmp_path / "report.html")
    assert "thesis" in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "runs.sqlite").exists()


def test_threads_read_and_propagate(tmp_path: Path) -> None:
    """The same bits as one after the other."""
    GIVEN["csv"].write(tmp_path)
    convs = [GFGNConv(6, 4, level, heads=2) for level in ("graph", "neighbor", "pair")]

    def work(number: int) -> list[torch.Tensor]:
        data = read(tmp_path)
        out = convs[number % 3](data.x.to_dense(), data.graph)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), list(convs[number % 3].parameters()))]

    alone = [work(number) for number in range(3)]
    with ThreadPoolExecutor(4) as pool:
        for number, tensors in enumerate(pool.map(work, range(12))):
            assert all(map(torch.equal, tensors, alone[number % 3]))
