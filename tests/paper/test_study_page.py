"""The page and the figure of a study: published and measured values, variants, draws, a search, what is missing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from runs.small_studies import ALL_RUNS, STUDY, run, write_study
from runs.test_draws import NOISY
from runs.test_draws import STUDY as DRAWS

from gfgn.paper.figures import draw_study
from gfgn.paper.pages import number, signed, title_of
from gfgn.paper.studies import load_study
from gfgn.paper.study_page import gaps_to_best_baseline, make_page
from gfgn.runs import read_runs
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_file import make_study, read_study
from gfgn.runs.study_files import Time
from gfgn.train.statistics import difference, holm, paired_test

SMALL = "grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}\nsplits: 3\nseeds: 2\n"
VARIANTS = f"""
title: Variants
datasets: [karate]
{SMALL}
models: {{gfgn-pair: {{lam: [1.0]}}, gfgn-graph: {{}}}}
training: {{max_epochs: 4, patience: 3}}
vary:
  variant:
    standard: {{}}
    ELU: {{grid: {{activation: [elu]}}, about: Smooth.}}
    60/20/20: {{data: {{fractions: [0.6, 0.2]}}}}
    loss: {{training: {{best: loss}}}}
published: {{source: nobody, scores: {{gfgn-pair: {{karate: 60.0}}}}}}
"""
SEARCH = yaml.safe_dump(
    {
        "title": "Two graphs",
        "datasets": ["karate", "dimensions"],
        "search": {"configurations": 4, "rungs": [3], "space": {"lr": {"log_uniform": [0.01, 0.1]}}},
        "models": {"gfgn-graph": {"lam": {"uniform": [0.5, 2.0]}}, "gcn": {"layers": [1, 2]}, "mlp": {}},
        "only": {"mlp": ["karate"]},
        "splits": 3,
        "seeds": 2,
        "training": {"max_epochs": 6, "patience": 4},
    },
    sort_keys=False,
)
Make = Callable[[str], Results]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The results of a study, which is trained once."""
    known: dict[str, Results] = {}

    def results(text: str) -> Results:
        if text not in known:
            folder = tmp_path_factory.mktemp("study")
            path = write_study(folder, text)
            run(path, folder / "out")
            known[text] = Results(read_study(path), read_runs(folder / "out" / "runs.csv.gz"))
        return known[text]

    return results


def page_of(results: Results, times: Sequence[Time] = ()) -> str:
    return make_page(results, times, [])


def cells(page: str, start: str, section: str = "# ") -> list[str]:
    """The cells of the first line of a table that starts with some text, in a section."""
    lines = page[page.index(section) :].splitlines()
    return next(line for line in lines if line.startswith(start)).strip("| ").split(" | ")


def test_published_and_measured_scores(make: Make) -> None:
    results = make(STUDY)
    page = page_of(results)
    assert f"**Measured**: {ALL_RUNS} runs" in page
    gcn, gfgn = (results[Cell("karate", model)] for model in ("gcn", "gfgn-graph"))
    assert gcn.mean is not None
    assert gfgn.mean is not None
    assert gcn.summary is not None
    assert gcn.mean == pytest.approx(fmean(100 * row.test for row in results.runs if row.model == "gcn"))
    row = cells(page, "| gcn |", "### karate")
    assert row[:3] == ["gcn", "51.00 ± 1.50", f"{gcn.mean:.2f} ± {100 * gcn.summary.std:.2f}"]
    assert row[4:6] == [signed(gcn.mean - 51), "6"]
    gain = signed(gfgn.mean - gcn.mean).lstrip("+")
    assert cells(page, "| the best GFGN level over gcn, points |")[2:4] == ["10", gain]
    largest = fmean(row.gates["max"] for row in gfgn.rows if row.gates)
    assert cells(page, "| largest")[2:4] == ["0.9", f"{largest:.2f}"]
    assert cells(page, "| gcn |", "## Average ranks")[1:3] == ["1.5", "1.5"]  # another one leads on each of two
    assert "- Clubs are small." in page
    assert "lam {1, 2} (4 configurations)" in page
    assert "## Stand-ins" not in page


def test_what_is_missing_is_said(make: Make) -> None:
    study, rows = make(STUDY).study, make(STUDY).runs
    last = max(k for k, row in enumerate(rows) if row.model == "gcn")
    page = page_of(Results(study, rows[:last] + rows[last + 1 :]))
    assert cells(page, "| gcn |", "### karate")[2:] == ["missing (5 of 6 runs)", "–", "–", "0", ""] or "5 of 6" in page
    assert "1 of 2 cells have all their runs" in page
    assert "0 of 2 cells have all their runs" in page_of(Results(study, []))
    diverged = [replace(row, val=math.nan, test=math.nan) if k == last else row for k, row in enumerate(rows)]
    page = page_of(Results(study, diverged))
    assert "1 of 6 runs diverged" in page
    assert "- 1 of them diverged" in page
    assert "nan" not in page


def test_a_model_that_runs_on_some_datasets(tmp_path: Path) -> None:
    content = yaml.safe_load(SMALL) | {"title": "S", "datasets": ["karate", "dimensions"], "models": {"gcn": {}}}
    content |= {"training": {"max_epochs": 5, "patience": 5}, "only": {"gcn": ["karate"]}}
    for vary in ({}, {"vary": {"noise": [0.0, 0.5]}}, {"vary": {"lam": [0.5, 2.0]}}):
        page = page_of(Results(make_study(content | vary, "small"), []))
        assert "missing" in cells(page, "| gcn |", "# karate")[1:]
        assert "missing" not in cells(page, "| gcn |", "# dimensions")
    assert "gcn does not depend on λ." in page


def test_listed_configurations() -> None:
    content = {"title": "S", "datasets": ["karate"], "splits": 2, "seeds": 1, "training": {}}
    content |= {"models": {"gcn": [{"lr": 0.1}, {"lr": 0.2, "hidden": 32}], "majority": []}}
    page = page_of(Results(make_study(content, "small"), []))
    assert "- gcn: lr {0.1, 0.2}, hidden {32} (2 configurations)" in page
    assert "- majority: (1 configuration)" in page
    page = page_of(Results(make_study(content | {"search": {"configurations": 2}}, "small"), []))  # of --write-config
    assert cells(page, "| gcn | 2 |")[2] == "–"


def test_variants(make: Make, tmp_path: Path) -> None:
    results = make(VARIANTS)
    page = page_of(results)
    assert cells(page, "| ELU | activation")[1:] == ["activation {elu}", "Smooth."]
    assert cells(page, "| 60/20/20 | fractions")[1] == "fractions 0.6/0.2"
    change = results.change(Cell("karate", "gfgn-pair", "ELU"))
    assert change is not None
    change = change.points
    row = cells(page, "| ELU |", "### gfgn-pair on karate, published 60.00")
    assert row[3:5] == [signed(change.mean), f"[{number(change.low)}, {number(change.high)}]"]
    assert cells(page, "| 60/20/20 |", "### gfgn-pair on karate")[4:6] == ["–", "–"]  # other splits: not paired
    changes = [c.points.mean for m in results.study.models if (c := results.change(Cell("karate", m, "ELU")))]
    assert cells(page, "| ELU |", "## Effects")[1:4] == [signed(f(changes)) for f in (fmean, min, max)]
    assert "of 4 comparisons" in page
    assert [path.name for path in draw_study(results, tmp_path)] == ["small.svg"]
    standard = Results(results.study, [row for row in results.runs if row.config.best == "loss"])
    assert draw_study(standard, tmp_path) == []
    assert "comparisons" not in page_of(standard)


def test_draws_of_random_edges(make: Make, tmp_path: Path) -> None:
    results = make(DRAWS)
    page = page_of(results)
    assert "95% interval of the mean over splits and draws" in page
    assert "There are 3 draws of random edges." in page
    noisy = next(cell for cell in results.study.all_cells() if cell.at)
    means = [100 * fmean(row.test for row in draw) for draw in results[noisy].draws]
    spread = math.sqrt(sum((mean - fmean(means)) ** 2 for mean in means) / 2)
    assert cells(page, f"| {noisy.model} |", "### karate, draws")[1] == f"{spread:.2f}"
    part = page_of(Results(results.study, [row for row in results.runs if "draw" not in row.dataset]))
    assert f"missing ({NOISY - 8} of {NOISY} runs)" in part
    assert draw_study(results, tmp_path)


def test_a_search(make: Make, tmp_path: Path) -> None:
    results = make(SEARCH)
    page = page_of(results)
    assert "Every model has 4 configurations per graph, drawn with seed 0. All share lr 0.01 to 0.1" in page
    assert "after 3 epochs, 2 of them continue" in page
    # Two of four configurations stopped on three splits of two graphs; the choice has three runs of seed 0.
    assert cells(page, "| gfgn-graph |", "## Budget")[1:6] == ["4", "lam 0.5 to 2", "2", "18", "12"]
    rows = results[Cell("karate", "gcn")].rows
    share = 100 * sum(row.epochs == 6 for row in rows) / len(rows)
    assert cells(page, "| gcn |", "## Runs at the cap")[1] == f"{share:g}%"
    assert "published" not in page.lower().replace("**published**: nothing", "")
    assert draw_study(results, tmp_path)


def test_gaps_are_paired_and_corrected(make: Make) -> None:
    results = make(SEARCH)
    gaps, plain = gaps_to_best_baseline(results, results.study.datasets), {}
    for cell, gap in gaps.items():
        means = {m: results[cell._replace(model=m)].mean or 0.0 for m in results.study.models}
        best = max((model for model in means if not model.startswith("gfgn")), key=means.__getitem__)
        runs, others, share = results[cell].rows, results[cell._replace(model=best)].rows, results.test_share(cell)
        expected = difference(runs, others, share)
        assert (gap.mean, gap.low, gap.high) == (100 * expected.mean, 100 * expected.low, 100 * expected.high)
        if not math.isnan(p := paired_test(runs, others, share).t_p):
            plain[cell] = p
    assert {cell: gaps[cell].p for cell in plain} == dict(zip(plain, holm(list(plain.values())), strict=True))


def test_scores_of_other_papers_stand_on_the_page_of_the_open_protocol() -> None:
    study = load_study("table1-open")
    assert len(study.published.elsewhere) > 10
    for paper in study.published.elsewhere:
        assert set(paper.scores) <= set(study.datasets)
        assert paper.source.startswith("https://")
    page = page_of(Results(study, []))
    assert "| cornell | ACMII-GCN++ | 86.49 ± 6.73 | – | – | selected on test scores |" in page


def test_text() -> None:
    assert [number(None), number(-0.001), number(-1.234), signed(0.5, 1)] == ["–", "0.00", "−1.23", "+0.5"]
    assert title_of("gfgn-pair") == "GFGN-pair"
    assert title_of("ppi (stand-in)") == "PPI (stand-in)"
