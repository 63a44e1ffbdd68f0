"""Claims judged by files of studies that were made up: the form of the gate, and several draws of random edges."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs.stores import row

from gfgn.paper.claims import CLAIMS, FAILS, HOLDS, OPEN, UNDECIDED, Verdict, as_json, judge, sources
from gfgn.paper.evidence import LEVELS, read_evidence
from gfgn.paper.mechanism import COLUMNS
from gfgn.paper.outputs import write_csv
from gfgn.paper.rules.finding import NINE
from gfgn.paper.studies import load_study
from gfgn.runs import Row, read_runs, write_runs
from gfgn.runs.record import DatasetRecord
from gfgn.runs.study import Cell, Study

Score = Callable[[str, int, int], float]  # of the data's name, the split and the draw


def make_rows(study: Study, cell: Cell, score: Score) -> Iterator[Row]:
    """The runs of a cell: the first configuration is chosen, others have lower validation and higher test scores."""
    plan, names = study.plan(cell), study.data_names(cell)
    for draw, data in enumerate(names):
        record = DatasetRecord(data, f"of {data}", ("s",) * 10, False, "accuracy", "", 1, 1, 1, 2)
        settings: dict[str, Any] = {"record": record, "config": plan.config}
        best = plan.final(plan.configurations[0])
        others = [replica for replica in plan.tuning() if replica not in best] if draw == 0 else []
        for replica in best:
            value = score(data, replica.split, draw)
            yield row(model=cell.model, replica=replica, val=0.9, test=value, **settings)
        for replica in others:
            yield row(model=cell.model, replica=replica, val=0.1, test=0.99, **settings)


def judged(folder: Path, *names: str) -> dict[str, Verdict]:
    claims = [claim for claim in CLAIMS if claim.name in names]
    return {verdict.claim.name: verdict for verdict in judge(read_evidence(folder, {}), claims)}


def wobble(split: int, seed: int = 0) -> float:
    return 0.002 * ((7 * split + 3 * seed) % 5 - 2)


# --- the form of the gate ---------------------------------------------------------------------------------------------


def write_thesis(folder: Path, gains: dict[str, float], spread: float = 0.1) -> Path:
    """Runs of GFGN-graph: `gains` of a gate per dimension over one for all, which is two points ahead of a constant."""

    def scorer(form: str) -> Score:
        def score(data: str, split: int, draw: int) -> float:
            base = 0.8 + wobble(split) - 0.02 * (form == "constant")
            return base + (form == "dimension") * (gains[data] / 100 + spread * wobble(3 * split))

        return score

    study, forms = load_study("thesis"), ("dimension", "scalar", "constant")
    cells = [(Cell(name, "gfgn-graph", form), scorer(form)) for name in gains for form in forms]
    rows = [each for cell, score in cells for each in make_rows(study, cell, score)]
    return write_runs(folder / "thesis" / "runs.csv.gz", rows)


@pytest.mark.parametrize(
    ("gain", "spread", "expected"),
    [(2.0, 0.1, HOLDS), (0.0, 0.1, FAILS), (0.5, 0.1, UNDECIDED), (2.0, 20.0, UNDECIDED)],
)
def test_the_thesis_from_runs(gain: float, spread: float, expected: str, tmp_path: Path) -> None:
    write_thesis(tmp_path, dict.fromkeys(NINE, gain), spread)
    verdicts = judged(tmp_path, "thesis-graph", "learned-graph", "thesis-pair")
    assert {name: verdict.verdict for name, verdict in verdicts.items()} == {
        "thesis-graph": expected,
        "learned-graph": HOLDS,
        "thesis-pair": OPEN,
    }
    assert verdicts["thesis-graph"].values["cora"] == pytest.approx(gain)
    assert verdicts["thesis-graph"].measured.startswith("blogcatalog ")


def test_a_forged_run_of_the_thesis(tmp_path: Path) -> None:
    """Of the chosen configuration it changes the figures, of another one the name of the file's content."""
    path = write_thesis(tmp_path, dict.fromkeys(NINE, 1.0))
    claims = [claim for claim in CLAIMS if claim.name == "thesis-graph"]

    def content() -> dict[str, Any]:
        made: dict[str, Any] = json.loads(as_json(judge(read_evidence(tmp_path, {}), claims), sources(tmp_path)))
        return made

    honest, rows = content(), read_runs(path)
    for chosen, changed in ((True, {"files", "claims"}), (False, {"files"})):
        index = next(i for i, each in enumerate(rows) if (each.val == 0.9) == chosen and each.dataset == "texas")
        forged = [*rows]
        forged[index] = dataclasses.replace(rows[index], test=rows[index].test - 0.08)
        write_runs(path, forged)
        now = content()
        assert {part for part in now if now[part] != honest[part]} == changed
    write_runs(path, rows)
    assert content() == honest


def write_mechanism(folder: Path, correlation: float) -> Path:
    """A table with the correlations of GFGN-graph on ten splits, which permuted gates have from −0.2 to 0.2."""
    rows = [
        (
            name,
            "gfgn-graph",
            split,
            correlation + wobble(split),
            -0.2,
            0.2,
            0.01,
            0.0,
            0.0,
            0.0,
            64,
            0.05,
            5e-4,
            0.5,
            1.0,
        )
        for name in NINE
        for split in range(10)
    ]
    return write_csv(folder / "thesis" / "mechanism.csv", COLUMNS, rows, digits=5)


@pytest.mark.parametrize(("correlation", "expected"), [(0.4, HOLDS), (0.1, FAILS), (0.2, UNDECIDED)])
def test_the_mechanism_from_its_table(correlation: float, expected: str, tmp_path: Path) -> None:
    assert judged(tmp_path, "mechanism-graph")["mechanism-graph"].verdict == OPEN
    (tmp_path / "thesis").mkdir()
    path = write_mechanism(tmp_path, correlation)
    honest, files = judged(tmp_path, "mechanism-graph")["mechanism-graph"], sources(tmp_path)
    assert honest.verdict == expected
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].replace(lines[1].split(",")[3], "0.99", 1)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert judged(tmp_path, "mechanism-graph")["mechanism-graph"].values != honest.values
    assert sources(tmp_path) != files


# --- random edges -----------------------------------------------------------------------------------------------------

NOISE = ("noise-cora", "noise-all")


def write_noise(folder: Path, study: str, gain: float, by_draw: float = 0.0) -> None:
    """Runs on Cora with as many random edges as real ones: the gain of levels over GCN, which may differ by draw."""

    def scorer(model: str) -> Score:
        def score(data: str, split: int, draw: int) -> float:
            return 0.8 + wobble(split) + model.startswith("gfgn") * (gain + by_draw * (draw - 2)) / 100

        return score

    loaded, models = load_study(study), ("gcn", *LEVELS)
    rows = [each for model in models for each in make_rows(loaded, Cell("cora", model, 1.0), scorer(model))]
    write_runs(folder / study / "runs.csv.gz", rows)


def test_more_draws_decide_in_place_of_one(tmp_path: Path) -> None:
    write_noise(tmp_path, "noise", 3.5)
    verdict = judged(tmp_path, *NOISE)["noise-cora"]
    assert (verdict.verdict, verdict.claim.study) == (HOLDS, "noise")
    assert set(sources(tmp_path)) == {"noise/runs.csv.gz"}
    write_noise(tmp_path, "noise-draws", 0.0)
    verdicts = judged(tmp_path, *NOISE)
    assert (verdicts["noise-cora"].verdict, verdicts["noise-cora"].claim.study) == (FAILS, "noise-draws")
    assert verdicts["noise-all"].measured.startswith("missing: noise-draws: ")
    assert set(sources(tmp_path)) == {"noise-draws/runs.csv.gz"}


def test_draws_that_differ_leave_a_claim_undecided(tmp_path: Path) -> None:
    write_noise(tmp_path, "noise-draws", 3.5)
    assert judged(tmp_path, *NOISE)["noise-cora"].verdict == HOLDS
    write_noise(tmp_path, "noise-draws", 3.5, by_draw=2.0)
    verdict = judged(tmp_path, *NOISE)["noise-cora"]
    assert verdict.verdict == UNDECIDED
    assert verdict.values["mean"] == pytest.approx(3.5)
