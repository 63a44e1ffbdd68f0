"""Variants: data used in other ways, and studies whose cells differ in data, options or config."""

import csv
import math
from pathlib import Path
from statistics import fmean

import pytest
import torch
from paper.small_studies import quiet, run, write_study

from gfgn.data import load, random_splits
from gfgn.data.datasets.registry import DATASETS
from gfgn.data.diagnosis import connected_components
from gfgn.paper.check import check
from gfgn.paper.figures.studies import draw_study, study_gaps
from gfgn.paper.page import MISSING, make_page
from gfgn.runs import Store
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, load_study
from gfgn.runs.table import read_runs
from gfgn.runs.views import View, data_name, load_view
from gfgn.train import paired_test

STUDY = """
title: Small
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models:
  gfgn-pair: {lam: [1.0, 2.0]}
  gfgn-graph: {}
splits: 3
seeds: 2
training: {max_epochs: 6, patience: 3}
vary:
  variant:
    standard: {}
    ELU: {grid: {activation: [elu]}, about: Smooth.}
    shut: {grid: {gate_bias: [-2.0]}}
    loss: {training: {best: loss}}
    last: {training: {best: last}}
    60/20/20: {data: {shares: [0.6, 0.2]}}
published:
  source: nobody
  scores: {gfgn-pair: {karate: 60.0}}
"""
VARIANTS = ["standard", "ELU", "shut", "loss", "last", "60/20/20"]
ALL_RUNS = len(VARIANTS) * (2 * 3 + 3 + 3 * 2)
"""Two configurations on three splits and another seed of the chosen one; one configuration with two seeds."""


def write(folder: Path, text: str = STUDY, name: str = "small") -> Path:
    return write_study(folder, text, name)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole study."""
    folder = tmp_path_factory.mktemp("studies")
    assert run(write(folder), folder / "small").made == ALL_RUNS
    return folder / "small"


def results(out: Path) -> Results:
    return Results(load_study(out.parent / "small.yaml"), read_runs(out / "runs.csv"))


# --- data -------------------------------------------------------------------------------------------------------------


def test_the_usual_view_is_what_is_loaded() -> None:
    usual, loaded = load_view("karate", View()), load("karate")
    assert (usual.name, usual.fingerprint) == (loaded.name, loaded.fingerprint)
    assert [usual.split_fingerprint(k) for k in range(10)] == [loaded.split_fingerprint(k) for k in range(10)]


def test_other_splits() -> None:
    data, loaded = load_view("digits", View(shares=(0.6, 0.2))), load("digits")
    assert data.name == "digits 60/20/20"
    assert data.fingerprint == loaded.fingerprint
    expected = random_splits(loaded.num_nodes, 10, 0, 0.6, 0.2, stratify=loaded.y)
    for one, other in zip(data.splits, expected, strict=True):
        assert all(map(torch.equal, one, other))
    assert data.split_fingerprint(0) != loaded.split_fingerprint(0)


@pytest.mark.parametrize("shares", [None, (0.6, 0.2)])
def test_splits_of_the_largest_part(shares: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load("dimensions")
    part = torch.from_numpy(connected_components(loaded.graph)).clone()
    part[:100] = 99  # as if a hundred nodes were a part of their own
    monkeypatch.setattr("gfgn.runs.views.parts", lambda graph: part.numpy())
    data = load_view("dimensions", View(nodes="largest part", shares=shares))
    for split, whole in zip(data.splits, loaded.splits, strict=True):
        assert not any(mask[:100].any() for mask in split)
        assert all(mask.any() for mask in split)
        if shares is None:
            assert all(torch.equal(mask[100:], own[100:]) for mask, own in zip(split, whole, strict=True))
        else:
            assert int(sum(mask.sum() for mask in split)) == loaded.num_nodes - 100


def test_edges_and_features_of_the_web_graphs(tmp_path: Path) -> None:
    try:
        given, back, raw = (
            load_view("texas", view) for view in (View(edges="directed"), View(edges="reversed"), View(features="raw"))
        )
    except FileNotFoundError:
        pytest.skip("the raw files of texas are not there")
    assert [data.name for data in (given, back, raw)] == ["texas directed", "texas reversed", "texas raw"]
    assert torch.equal(given.graph.edge_index.flip(0)[:, given.graph.transpose], back.graph.edge_index)
    assert len({data.fingerprint for data in (given, back, raw, load("texas"))}) == 4
    assert len({data.split_fingerprint(3) for data in (given, back, raw, load("texas"))}) == 1
    assert DATASETS["texas"].paper is not None
    assert given.graph.num_edges == DATASETS["texas"].paper.edges


def test_views_that_make_no_sense() -> None:
    for options, message in (
        ({"edges": "both"}, "edges must be one of 'undirected', 'directed', 'reversed', got 'both'"),
        ({"nodes": "some"}, "nodes must be one of 'all', 'largest part', got 'some'"),
        ({"noise": 0.5, "edges": "directed"}, "noise must be 0 where edges are directed, got 0.5"),
        ({"shares": (0.5, 0.5)}, "train and val must be positive shares"),
    ):
        with pytest.raises(ValueError, match=message):
            View(**options)
    assert data_name("karate", View(noise=0.5)) == "karate+50%"


# --- runs -------------------------------------------------------------------------------------------------------------


def test_variants_are_told_apart(done: Path) -> None:
    found = results(done)
    assert not found.missing()
    rows = {at: found[Cell("karate", "gfgn-pair", at)].rows for at in VARIANTS}
    assert len({row.key for some in rows.values() for row in some}) == 6 * len(VARIANTS)
    assert {dict(row.replica.options).get("activation") for row in rows["ELU"]} == {"elu"}
    assert {dict(row.replica.options).get("gate_bias") for row in rows["shut"]} == {-2.0}
    assert all(row.gates is not None and row.gates["mean"] < 0.3 * row.replica.lam for row in rows["shut"])
    assert {row.config.best for row in rows["loss"]} == {"loss"}
    assert {(row.epoch, row.epochs) for row in rows["last"]} == {(5, 6)}
    assert {row.dataset for row in rows["60/20/20"]} == {"karate 60/20/20"}
    assert {row.dataset_fingerprint for some in rows.values() for row in some} == {load("karate").fingerprint}
    assert not {row.split_fingerprint for row in rows["60/20/20"]} & {row.split_fingerprint for row in rows["ELU"]}
    with (done / "chosen.csv").open(newline="") as file:
        assert {line["variant"] for line in csv.DictReader(file)} == set(VARIANTS)


def test_a_study_goes_on_from_its_table_alone(done: Path, tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "small"
    out.mkdir()
    lines = (done / "runs.csv").read_text().splitlines(keepends=True)
    (out / "runs.csv").write_text("".join(lines[:1] + lines[5:]))
    assert run(path, out).made == 4
    assert sorted((out / "runs.csv").read_text().splitlines())[0] == sorted(lines)[0].rstrip("\n")
    keys = [{row.key: (row.val, row.test) for row in read_runs(folder / "runs.csv")} for folder in (out, done)]
    assert keys[0] == keys[1]
    assert run(path, out).made == 0
    with Store(out / "runs.sqlite") as store:
        assert len(store) == ALL_RUNS


def test_the_standard_is_taken_from_a_neighbour_and_nothing_else(done: Path, tmp_path: Path) -> None:
    plain = STUDY[: STUDY.index("vary:")]
    assert run(write(tmp_path, plain, "plain"), tmp_path / "plain").made == 2 * 3 + 3 + 3 * 2
    assert run(write(tmp_path), tmp_path / "small").made == ALL_RUNS - (2 * 3 + 3 + 3 * 2)
    assert run(write(tmp_path, plain, "again"), tmp_path / "again").made == 0
    assert {row.config.best for row in read_runs(tmp_path / "again" / "runs.csv")} == {"score"}


def test_check_trains_variants_again(done: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    assert check(done.parent / "small.yaml", done, datasets=["karate"], say=lines.append) == []
    assert sum("validation" in line for line in lines) == 2 * 2 * len(VARIANTS)
    assert any(line.startswith("karate 60/20/20 gfgn-pair (60/20/20) split") for line in lines)
    rows = (done / "runs.csv").read_text()
    other = load_view("karate", View(shares=(0.6, 0.2))).split_fingerprint(0)
    (tmp_path / "runs.csv").write_text(rows.replace(other, "f00d"))
    wrong = check(done.parent / "small.yaml", tmp_path, datasets=["karate"], say=quiet)
    assert any("karate 60/20/20: split 0 is not the one" in line for line in wrong)


# --- what they come to ------------------------------------------------------------------------------------------------


def test_changes_are_paired_over_splits(done: Path) -> None:
    found = results(done)
    one, base = (found[Cell("karate", "gfgn-pair", at)] for at in ("shut", "standard"))
    change, expected = found.change(one.cell), paired_test(one.rows, base.rows)
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    assert change.mean == pytest.approx(100 * expected.mean)
    assert change.low <= change.mean <= change.high
    assert change.p == pytest.approx(expected.t_p)
    other = found.change(Cell("karate", "gfgn-pair", "60/20/20"))
    assert other is not None
    assert other[1:] == (None, None, None)
    mean, before = found[Cell("karate", "gfgn-pair", "60/20/20")].mean, base.mean
    assert mean is not None
    assert before is not None
    assert other.mean == pytest.approx(mean - before)


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−").replace("+0.00", "0.00").replace("−0.00", "0.00")


def test_the_page_of_variants(done: Path) -> None:
    found, page = results(done), (done / "README.md").read_text()
    assert "| ELU | activation {elu} | Smooth. |" in page
    assert "| shut | gate_bias {-2} |  |" in page
    assert "| loss | best loss |  |" in page
    assert "| 60/20/20 | shares 0.6/0.2 |  |" in page
    assert "of 8 comparisons" in page
    assert "### gfgn-pair on karate, published 60.00" in page
    result, change = (read(Cell("karate", "gfgn-pair", "ELU")) for read in (found.__getitem__, found.change))
    line = next(line for line in page.splitlines() if line.startswith("| ELU |") and "activation elu" in line)
    assert f"| {result.mean:.2f} ±" in line  # type: ignore[union-attr]
    assert signed(change.mean) in line  # type: ignore[union-attr]
    changes = [change.mean for model in found.study.models if (change := found.change(Cell("karate", model, "ELU")))]
    assert len(changes) == 2
    summary = next(line for line in page.splitlines() if line.startswith("| ELU |") and " of 2 |" in line)
    assert [signed(value) for value in (fmean(changes), min(changes), max(changes))] == summary.split(" | ")[1:4]
    assert f"| {sum(change > 0 for change in changes)} of 2 |" in summary
    assert "edges undirected, unless a variant says otherwise." in page
    rows = [row for row in found.rows if dict(row.replica.options).get("activation") != "elu"]
    some = make_page(Results(found.study, rows))
    assert f"| ELU | {MISSING} | – | – | – | – | – | 0 |" in some
    assert "of 6 comparisons" in some
    rows = [row for row in found.rows if row.config.best != "score"]
    assert "comparisons" not in make_page(Results(found.study, rows))


def test_the_figure_of_variants(done: Path, tmp_path: Path) -> None:
    found = results(done)
    gaps = study_gaps(found)
    assert [gap.variant for gap in gaps][:1] == ["published"]
    assert [gap.variant for gap in gaps if gap.model == "gfgn-graph"] == VARIANTS[1:]
    base = found[Cell("karate", "gfgn-pair", "standard")].mean
    assert base is not None
    assert math.isclose(gaps[0].mean, 60 - base)
    assert [path.name for path in draw_study(found, tmp_path)] == ["small.svg"]
    without = Results(found.study, [row for row in found.rows if row.config.best == "loss"])
    assert draw_study(without, tmp_path) == []
