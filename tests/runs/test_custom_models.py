"""Models and graphs of one's own in comparisons, searches and studies."""

from pathlib import Path
from typing import Any

import nets
import pytest
from runs.small_studies import read_csv, run, write_study

from gfgn.data import NodeDataset, dimensions
from gfgn.nn import find_model
from gfgn.runs import SPACE, Store, grid, random_search, read_comparisons
from gfgn.runs.comparison import compare
from gfgn.runs.engine import ProgressCallback
from gfgn.runs.grid import make_replicas
from gfgn.runs.study_file import read_study
from gfgn.runs.text import in_words, short_names
from gfgn.train import TrainConfig


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=2, seed=1)


class Stop(Exception):
    """Interrupts a comparison."""


class StopAfter(ProgressCallback):
    """Raises `Stop` after some runs."""

    def __init__(self, runs: int) -> None:
        self.left = runs

    def on_run_end(self, row: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stop


def test_models_that_can_and_cannot_be_batched_share_a_store_and_resume(data: NodeDataset) -> None:
    models = ("gcn", "nets:Net", "nets:Branching")
    settings: dict[str, Any] = {
        "splits": 2,
        "seeds": 2,
        "max_epochs": 4,
        "options": {"nets:Net": {"hidden_channels": 4}},
    }
    with Store(":memory:") as store:
        with pytest.raises(Stop):
            compare(data, models, store=store, callback=StopAfter(10), **settings)
        kept = len(store)
        assert 8 <= kept < 12
        comparison = compare(data, models, store=store, **settings)
        assert len(store) == 12
        assert comparison.models == models
        (read,) = read_comparisons(store)
        assert read.summary() == comparison.summary()
        rows = comparison.rows["nets:Net"]
        assert dict(rows[0].replica.options) == {"code": find_model(nets.Net).code, "hidden_channels": 4}
        assert compare(data, models, store=store, **settings).rows == comparison.rows


def test_another_version_of_the_code_has_other_runs(data: NodeDataset, tmp_path: Path, monkeypatch: Any) -> None:
    import importlib
    import sys

    path = tmp_path / "edited_net.py"
    monkeypatch.syspath_prepend(tmp_path)
    with Store(":memory:") as store:
        for text in ("", "\n# edited\n"):
            path.write_text(f"from nets import Net as Base\nclass Net(Base):\n    pass\n{text}")
            importlib.invalidate_caches()
            sys.modules.pop("edited_net", None)
            compare(data, ["edited_net:Net"], splits=1, max_epochs=2, store=store)
        assert len(store) == 2
        path.unlink()
        sys.modules.pop("edited_net")
        importlib.invalidate_caches()
        (read,) = read_comparisons(store)  # without the module
        assert read.models == ("edited_net:Net",)


def test_a_dropout_rate_that_a_model_does_not_take_is_not_varied(data: NodeDataset) -> None:
    configurations = grid(lr=[0.01, 0.02], dropout=[0.2, 0.5, 0.8])
    assert len(make_replicas("nets:Normalized", configurations, [0])) == 2
    assert len(make_replicas("nets:Net", configurations, [0])) == 6
    with Store(":memory:") as store:
        space = {"dropout": SPACE["dropout"]}
        selection = random_search(store, data, "nets:Normalized", space, 5, [0], config=TrainConfig(2, 2))
        assert len(selection.candidates) == 1
        comparison = compare(data, ["nets:Normalized"], splits=1, grid=configurations, max_epochs=2, store=store)
        assert len(comparison.selections["nets:Normalized"].candidates) == 2
    assert in_words({"lr": 0.1, "dropout": 0.0, "lam": 1.0}, "nets:Normalized") == "learning rate 0.1"


def test_names_in_tables_are_short_where_they_can_be() -> None:
    long, other = "some.package.module.of.mine:Net", "another.package.module.of.mine:Net"
    assert short_names(["gcn", "nets:Net", long]) == {"gcn": "gcn", "nets:Net": "nets:Net", long: "Net"}
    assert short_names([long, other]) == {long: long, other: other}


STUDY = """
title: Mine
datasets: [karate, graphs/mine]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5, 0.8]}
models:
  nets:Net: {hidden_channels: [4, 8]}
  nets:Branching: {}
  gcn: {dropout: [0.5]}
splits: 2
seeds: 1
training: {max_epochs: 2, patience: 2}
published:
  source: nobody
  scores: {"nets:Net": {mine: 50.0}}
"""


def write_graph(folder: Path) -> None:
    folder.mkdir(parents=True)
    nodes = [f"{k},{'ab'[k % 2]},{k % 3},{k % 5}" for k in range(30)]
    (folder / "nodes.csv").write_text("id,label,u,v\n" + "\n".join(nodes))
    edges = [f"{k},{(k + 2) % 30}" for k in range(30)] + [f"{k},{(k + 7) % 30}" for k in range(30)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges))


def test_a_study_with_models_and_graphs_of_ones_own(tmp_path: Path) -> None:
    write_graph(tmp_path / "graphs" / "mine")
    path = write_study(tmp_path, STUDY)
    study = read_study(path, trust_code=True)
    assert study.datasets == ("karate", "mine")
    assert len(study.models["nets:Net"]) == 4
    outcome = run(path, tmp_path / "out")
    assert not outcome.missing
    assert outcome.made == 2 * (4 * 2 + 2 * 2 + 2)
    assert {row["dataset"] for row in read_csv(tmp_path / "out" / "chosen.csv")} == {"karate", "mine"}
    assert run(path, tmp_path / "out").made == 0
