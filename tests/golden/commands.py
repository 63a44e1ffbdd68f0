"""What each command answers on four small graphs, as numbers: `expected.json` keeps them.

`python tests/golden/commands.py` computes them again and writes the file; with names of graphs, or `study`, it prints
their answers and where gfgn was imported from.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("expected.json")
SHORT = ("--splits", "2", "--epochs", "30", "--quiet", "--json", "--device", "cpu")
TRAIN = ("--level", "neighbor", "--replicas", "2", "--epochs", "30", "--quiet", "--json", "--device", "cpu")
GRAPHS = ("karate", "dimensions", "mixed", "texas")
STUDY = """
title: A small study
datasets: [karate]
models: {mlp: {}, gfgn-neighbor: {}}
splits: 2
seeds: 2
grid: {lr: [0.02, 0.1], weight_decay: [5.0e-4], dropout: [0.5], lam: [1]}
training: {max_epochs: 30, patience: 20}
"""


def mixed_table(folder: Path) -> Path:
    """A graph with columns of every kind: a label that follows a number, a category, a date and its neighbors."""
    random, number = np.random.default_rng(7), 150
    label = random.integers(3, size=number)
    amount = np.where(label == 0, 2.0, -1.0) + random.normal(size=number)
    color = np.where(random.random(number) < 0.7, np.array(["red", "green", "blue"])[label], "gray")
    day = np.datetime64("2020-01-01") + (random.integers(300, size=number) + 100 * label).astype("timedelta64[D]")
    nodes = [("id", "amount", "color", "day", "member", "label")]
    for i in range(number):
        shown = "" if i % 17 == 3 else f"{amount[i]:.3f}"
        nodes.append((f"n{i:03d}", shown, color[i], str(day[i]), str(i % 2), "" if i % 10 == 9 else "abc"[label[i]]))
    pairs = {(i, int(j)) for i in range(number) for j in random.choice(np.flatnonzero(label == label[i]), 2)}
    edges = [("source", "target"), *((f"n{i:03d}", f"n{j:03d}") for i, j in sorted(pairs) if i != j)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {"nodes.csv": nodes, "edges.csv": edges}.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(table)
    return folder


def is_available(graph: str) -> bool:
    """Whether the files of a graph are there; only texas has to be downloaded."""
    return graph != "texas" or Path(os.environ.get("GFGN_DATA", "none"), "texas").is_dir()


def answers(graph: str, folder: Path) -> dict[str, Any]:
    """The numbers of `compare`, `report`, `advise`, `train` and `predict` on a graph."""
    source = str(mixed_table(folder / "mixed")) if graph == "mixed" else graph
    compared = json.loads(_run("compare", source, "--out", str(folder / "compared"), *SHORT))
    models = {
        each["model"]: [each[name] for name in ("mean", "low", "high", "val")]
        for each in compared["comparisons"][0]["models"]
    }
    runs = _runs((folder / "compared" / "runs.csv").read_text(encoding="utf-8"))
    _run("report", str(folder / "compared"), "--runs", str(folder / "again.csv"))
    again = _runs((folder / "again.csv").read_text(encoding="utf-8"))
    advice = json.loads(_run("advise", source, "--out", str(folder / "advised"), *SHORT))
    _run("train", source, "--out", str(folder / "model"), *TRAIN)
    _run("predict", str(folder / "model"), source, "--out", str(folder / "predictions.csv"), "--quiet")
    with (folder / "predictions.csv").open(encoding="utf-8") as file:
        predictions = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    return {
        "compare": {"models": models, "runs": runs},
        "report": {"runs": again},
        "advise": {name: advice[name] for name in ("verdict", "gaps", "statistics")},
        "predict": {"count": len(predictions), "first": predictions[:12]},
    }


def study_answers(folder: Path) -> dict[str, Any]:
    """The runs and choices of `gfgn reproduce` for a small study of one's own."""
    (folder / "small.yaml").write_text(STUDY, encoding="utf-8")
    _run("reproduce", str(folder / "small.yaml"), "--out", str(folder / "study"), "--device", "cpu")
    table = gzip.decompress((folder / "study" / "runs.csv.gz").read_bytes()).decode().partition("\n")[2]
    with (folder / "study" / "chosen.csv").open(encoding="utf-8") as file:
        chosen = [
            {name: _value(row[name]) for name in ("model", "lr", "val", "chosen")} for row in csv.DictReader(file)
        ]
    return {"runs": _runs(table), "chosen": chosen}


def _run(*arguments: str) -> str:
    """Runs `gfgn` in this process and returns what it writes to stdout."""
    from gfgn.cli import app

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        app(list(arguments), standalone_mode=False)
    return output.getvalue()


def _runs(table: str) -> dict[str, list[float]]:
    """Epoch, validation and test score by model, learning rate, split and seed."""
    keys, scores = ("model", "lr", "split", "seed"), ("epoch", "val", "test")
    rows = csv.DictReader(io.StringIO(table))
    return dict(sorted((" ".join(row[key] for key in keys), [float(row[name]) for name in scores]) for row in rows))


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


if __name__ == "__main__":
    names = sys.argv[1:] or [*filter(is_available, GRAPHS), "study"]
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: study_answers(Path(folder)) if name == "study" else answers(name, Path(folder, name))
            for name in names
        }
    if sys.argv[1:]:
        import gfgn

        json.dump({"package": gfgn.__file__, "answers": found}, sys.stdout)
    else:
        EXPECTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
