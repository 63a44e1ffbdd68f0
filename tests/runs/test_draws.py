"""Studies with several draws of random edges."""

from pathlib import Path

import pytest
import torch
from runs.small_studies import run, write_study

from gfgn.data import load
from gfgn.data.generators.noise import add_random_edges
from gfgn.runs import read_runs
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, View, data_name, load_view
from gfgn.runs.study_file import read_study
from gfgn.train.draws import summarize_draws

STUDY = """
title: Noise
datasets: [karate]
vary: {noise: [0.0, 0.5]}
draws: 3
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5, 0.8]}
models: {gcn: {}, mlp: {}}
splits: 2
seeds: 2
training: {max_epochs: 3, patience: 3}
"""
CLEAN, NOISY = 2 * 2 + 2, 2 * 2 + 2 + 2 * 2 * 2  # two configurations, one more seed, and two more draws of both seeds


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("draws")
    outcome = run(write_study(folder, STUDY, "noisy"), folder / "noisy")
    assert (outcome.made, outcome.missing) == (2 * (CLEAN + NOISY), [])
    return folder


def test_views_of_draws() -> None:
    clean = load("karate")
    views = [load_view("karate", View(noise=0.5, draw=draw)) for draw in range(3)]
    assert [view.name for view in views] == ["karate+50%", "karate+50% draw 1", "karate+50% draw 2"]
    assert len({view.fingerprint for view in (clean, *views)}) == 4
    assert {view.split_fingerprint(1) for view in views} == {clean.split_fingerprint(1)}
    for draw, view in enumerate(views):
        assert torch.equal(view.graph.edge_index, add_random_edges(clean.graph, 0.5, draw).edge_index)
    assert data_name("ppi-relabelled", View(noise=0.5, draw=2)) == "ppi-relabelled (stand-in)+50% draw 2"


def test_the_choice_is_made_on_the_first_draw_and_trained_on_all(done: Path) -> None:
    study, rows = read_study(done / "noisy.yaml"), read_runs(done / "noisy" / "runs.csv.gz")
    results = Results(study, rows)
    for model in ("gcn", "mlp"):
        clean, noisy = (results[Cell("karate", model, at)] for at in (0.0, 0.5))
        assert (clean.have, clean.need, len(clean.draws)) == (CLEAN, CLEAN, 1)
        assert (noisy.have, noisy.need, len(noisy.draws)) == (NOISY, NOISY, 3)
        for draw, own in enumerate(noisy.draws):
            assert {row.dataset for row in own} == {"karate+50%" + (f" draw {draw}" if draw else "")}
            assert {(row.replica.split, row.replica.seed) for row in own} == {(s, r) for s in (0, 1) for r in (0, 1)}
            assert {row.replica.dropout for row in own} == {noisy.configuration["dropout"]}
        assert noisy.summary == summarize_draws(noisy.draws, noisy.test_share)
        tuned = [row for row in rows if row.dataset == "karate+50%" and row.model == model and not row.replica.seed]
        assert len(tuned) == 4


def test_a_study_with_draws_resumes(done: Path, tmp_path: Path) -> None:
    rows = read_runs(done / "noisy" / "runs.csv.gz")
    out = tmp_path / "noisy"
    out.mkdir()
    (out / "runs.csv.gz").write_bytes((done / "noisy" / "runs.csv.gz").read_bytes())
    assert run(done / "noisy.yaml", out).made == 0
    study = read_study(done / "noisy.yaml")
    kept = Results(study, [row for row in rows if not row.dataset.endswith("draw 2")])
    assert kept.missing() == [Cell("karate", "gcn", 0.5), Cell("karate", "mlp", 0.5)]
    assert kept[Cell("karate", "gcn", 0.5)].have == NOISY - 4
    assert kept[Cell("karate", "gcn", 0.5)].configuration is not None
