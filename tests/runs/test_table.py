"""Tables of runs: reading returns exactly the rows that were written, and files are deterministic and small."""

import csv
import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from runs.stores import RECORD, row

from gfgn.runs import Store, read_runs, write_runs
from gfgn.runs.table import RunsError
from gfgn.train import TrainConfig

ROWS = [
    row(split=1, seed=3, lr=0.005, weight_decay=5e-5, dropout=0.8, lam=2.0, val=0.1 + 0.2, test=1 / 3, seconds=1 / 7),
    row(model="gcn", options=(("hidden", 16), ("layers", 3)), gates={"mean": 1 / 3}),
    row(model="geom-gcn", options=(("hidden", 16), ("merge", "cat"), ("text", "1"), ("none", ""))),
    row(model="graphsage", options=(("normalize", False), ("hidden", 32))),
    row(model="appnp", options=(("alpha", 0.5),), config=TrainConfig(7, 3, clip=2.0, schedule="cosine")),
    row(record=replace(RECORD, name="toy (stand-in)", standin=True)),
]


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_round_trip(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "deep" / "runs.csv.gz", ROWS)
    assert read_runs(path) == ROWS
    content = path.read_bytes()
    assert content[4:8] == bytes(4)  # no time stamp
    assert write_runs(path, read_runs(path)).read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == ["runs.csv.gz"]
    stopped = [row(search="abc", val=0.5), row(model="mlp", val=math.nan, test=math.nan)]
    again = read_runs(write_runs(path, stopped))
    assert [each.key for each in again] == [each.key for each in stopped]
    assert [each.dropped for each in again] == [True, False]
    assert all(math.isnan(each.test) for each in again)
    assert read_runs(write_runs(path, [])) == []


def test_constants_and_fingerprints_are_written_once(tmp_path: Path) -> None:
    comment, header, *table = lines(write_runs(tmp_path / "runs.csv.gz", ROWS))
    facts = json.loads(comment.removeprefix("# "))
    assert {"metric": "accuracy", "torch_version": ROWS[0].versions["torch"], "search": ""}.items() <= facts[
        "constants"
    ].items()
    assert facts["fingerprints"]["toy"] == ["f00d", {"0": "s0", "1": "s1"}]
    columns = next(csv.reader([header]))
    assert columns[:8] == ["dataset", "model", "split", "seed", "lr", "weight_decay", "dropout", "lam"]
    assert {"option_hidden", "val", "test", "seconds", "gate_mean", "protocol_clip", "max_epochs"} <= set(columns)
    assert not set(columns) & set(facts["constants"])
    assert len(table) == len(ROWS)


def test_the_code_of_runs(tmp_path: Path) -> None:
    """A table of runs whose code is unknown is what earlier releases wrote; among others, their cell is empty."""
    unknown = replace(ROWS[0], code_version="unknown")
    comment, header, *_ = lines(write_runs(tmp_path / "runs.csv.gz", [unknown]))
    assert "code_version" not in comment + header
    assert read_runs(tmp_path / "runs.csv.gz") == [unknown]
    both = [unknown, ROWS[1]]
    assert "code_version" in lines(write_runs(tmp_path / "runs.csv.gz", both))[1].split(",")
    assert read_runs(tmp_path / "runs.csv.gz") == both


def test_a_store_accepts_them(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv.gz", ROWS)
    with Store(":memory:") as store:
        assert store.add(read_runs(path)) == len(ROWS)
        assert store.add(ROWS) == 0
        assert store.find(RECORD, "gfgn-graph", [ROWS[0].replica], ROWS[0].config)[0] == ROWS[0]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv.gz"
    for content in (b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"# {}\na,b\n1,2\n")):
        path.write_bytes(content)
        with pytest.raises(RunsError, match=r"runs.csv.gz must be a table of runs, got a file that cannot be read"):
            read_runs(path)
    table = lines(write_runs(path, ROWS))
    table[3] = table[3].replace(",17,", ",many,", 1) if ",17," in table[3] else table[3].replace("0,0,", "0,zero,", 1)
    path.write_bytes(gzip.compress("\n".join(table).encode()))
    with pytest.raises(RunsError, match=r"runs.csv.gz, line 4: invalid literal for int"):
        read_runs(path)
    with pytest.raises(FileNotFoundError):
        read_runs(tmp_path / "none.csv.gz")
    with pytest.raises(RunsError, match="rows must be of one graph and one split per name, got two of 'toy'"):
        write_runs(path, [row(0), row(1, record=replace(RECORD, fingerprint="beef"))])
