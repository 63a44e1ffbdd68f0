"""Tampered and damaged stores: a report, or one line that names the store; nothing else."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from stress.cases import assert_refused, cases, damaged, gfgn

from gfgn.data import dimensions
from gfgn.runs import Store, compare, explain
from gfgn.runs.store import StoreError

ODD = (None, -1, 0, 1e300, 2**62, "x", "", "[]", "{}", "null", b"\x00\xff", '{"a": [1]}', "nan", float("inf"), True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a small comparison with its explanation."""
    path = tmp_path_factory.mktemp("store") / "runs.sqlite"
    data = dimensions(60, degree=6, splits=2)
    with Store(path) as opened:
        comparison = compare(data, ["majority", "mlp", "gfgn-graph"], 2, max_epochs=3, store=opened)
        explain(opened, data, comparison)
    return path


def report(capsys: pytest.CaptureFixture[str], path: Path, seed: object) -> bool:
    """Whether the report of a store could be written; if not, it was refused in one line that names the file."""
    result = gfgn(capsys, "report", path)
    if result.code == 0:
        return True
    assert_refused(result)
    assert str(path) in result.err or "in the store is damaged" in result.err, (seed, result.err)
    return False


def test_damaged_files(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, path, written = store.read_bytes(), tmp_path / "runs.sqlite", []
    for seed in cases(40):
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(damaged(content, seed))
        written.append(report(capsys, path, seed))
    assert not all(written)  # some damage was found


def test_cells_of_other_types(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = [part[1] for part in sqlite3.connect(store).execute("PRAGMA table_info(runs)")]
    refused = 0
    for seed in cases(60):
        draw, path = random.Random(seed), tmp_path / "runs.sqlite"
        shutil.copy(store, path)
        column, value = draw.choice(columns), draw.choice(ODD)
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            try:
                database.execute(f"UPDATE runs SET {column} = ? WHERE rowid = ?", (value, draw.randint(1, 6)))
            except sqlite3.IntegrityError:  # NULL where there must be a value
                continue
        database.close()
        refused += not report(capsys, path, (seed, column, value))
    assert refused


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 9", "PRAGMA application_id = 0"])
def test_another_schema(store: Path, tmp_path: Path, statement: str) -> None:
    path = tmp_path / "runs.sqlite"
    shutil.copy(store, path)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()
    with pytest.raises(StoreError, match=r"runs\.sqlite"):
        Store(path, read_only=True)


def test_scores_that_are_not_numbers(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.sqlite"
    shutil.copy(store, path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE runs SET run = json_set(run, '$.val', NULL, '$.test', NULL) WHERE model = 'mlp'")
    database.close()
    assert gfgn(capsys, "report", path).code == 0
    page = (tmp_path / "report.html").read_text()
    assert "mlp: 2 of 2 runs diverged" in page
