"""Sections of the page of a study with a search: what every model was given, runs at the cap, differences, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gfgn.paper.markdown import Lines, number, section
from gfgn.paper.outputs import read_csv
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Results
from gfgn.runs.search import Choice, LogUniform, Space, Uniform
from gfgn.runs.study import Cell
from gfgn.runs.text import NONE, count, p_value
from gfgn.train.statistics import average_ranks, difference, holm, paired_test, rank_intervals

PUBLISHED = Path(__file__).with_name("published.csv")  # scores that papers report, with their sources
PUBLISHED_BESIDE = "table1-open"  # the study whose page shows them
MARKS = {
    "test": "selected on test scores",
    "splits": "other splits",
    "masks": "three of ten masks",
    "": "none known",
}


class Gap(NamedTuple):
    """The test score of a model minus that of the best baseline of its dataset, in points.

    Attributes:
        low, high: 95% interval over splits, corrected for their overlap.
        p: Of the two-sided paired test, corrected by Holm for all gaps of the study.
    """

    baseline: str
    mean: float
    low: float
    high: float
    p: float


def gaps_to_best_baseline(results: Results, datasets: Sequence[str]) -> dict[Cell, Gap]:
    """The gap of every model with a score to the best baseline, the model other than GFGN with the best mean score.

    It is chosen by test scores, which favors the baseline.
    """
    gaps: dict[Cell, Gap] = {}
    for name in datasets:
        means = {model: results[Cell(name, model)].mean for model in results.study.models}
        scores = {model: mean for model, mean in means.items() if mean is not None}
        best = max((model for model in scores if not is_gfgn(model)), key=lambda model: scores[model], default=None)
        for model in scores if best is not None else ():
            cell = Cell(name, model)
            if best is None or model == best:
                continue
            runs, others, share = results[cell].rows, results[cell._replace(model=best)].rows, results.test_share(cell)
            gap, test = difference(runs, others, share), paired_test(runs, others, share)
            gaps[cell] = Gap(best, 100 * gap.mean, 100 * gap.low, 100 * gap.high, test.t_p)
    tested = [cell for cell, gap in gaps.items() if not math.isnan(gap.p)]
    corrected = holm([gaps[cell].p for cell in tested])
    return gaps | {cell: gaps[cell]._replace(p=p) for cell, p in zip(tested, corrected, strict=True)}


def share_at_cap(results: Results, cell: Cell) -> float | None:
    """The share of the runs of the chosen configuration that trained until the last epoch; `None` without runs."""
    rows = results[cell].rows
    return fmean(row.epochs >= row.config.max_epochs for row in rows) if rows else None


def search_sections(results: Results, datasets: Sequence[str]) -> list[Lines]:
    """The sections of the page after the overview."""
    gaps = gaps_to_best_baseline(results, datasets)
    return [
        _budget(results),
        _differences(results, datasets, gaps),
        _ranks(results, datasets),
        _caps(results, datasets),
        *([_published(results, datasets)] if results.study.name == PUBLISHED_BESIDE else []),
    ]


def gap_cells(gap: Gap | None) -> list[str]:
    """The cells of a table for a gap: mean, interval and p-value."""
    if gap is None:
        return [NONE] * 3
    interval = NONE if math.isnan(gap.low) else f"[{number(gap.low, '+')}, {number(gap.high, '+')}]"
    return [number(gap.mean, "+"), interval, p_value(gap.p) or NONE]


def _budget(results: Results) -> Lines:
    """What every model was given, and what it used."""
    study, search = results.study, results.study.search
    assert search is not None
    rows = []
    for model in study.models:
        own = [row for row in results.rows if row.model == model]
        cells = [cell for name in study.datasets for cell in study.cells(name, model)]
        final = {row.key for cell in cells for row in results[cell].rows}
        epochs = {kind: sum(row.epochs for row in own if (row.key in final) == kind) for kind in (False, True)}
        rows.append(
            [
                *(model, f"{search.configurations}", _space(search.own[model]) or NONE, f"{len(cells)}"),
                *(f"{len(own) - len(final):,}", f"{sum(row.dropped for row in own):,}", f"{epochs[False]:,}"),
                *(f"{len(final):,}", f"{epochs[True]:,}"),
            ]
        )
    words = (
        f"Every model has {count(search.configurations, 'configuration')} per graph, drawn with seed {search.seed}. "
        f"All share {_space(search.space)}, with the same values for every model. They train on "
        f"{count(study.splits, 'split')} with seed 0{_halving(search.rungs, search.configurations)}. The choice is "
        f"trained on {count(study.splits, 'split')} with {count(study.seeds, 'seed')}."
    )
    heads = ["model", "configurations", "own axes", "graphs", "tuning runs", "stopped early", "their epochs"]
    return section("## Budget", words, [*heads, "chosen runs", "their epochs"], rows)


def _differences(results: Results, datasets: Sequence[str], gaps: Mapping[Cell, Gap]) -> Lines:
    rows = []
    for model in results.study.models:
        cells = [Cell(name, model) for name in datasets]
        rows.append([model, *(_difference(results, cell, gaps.get(cell)) for cell in cells)])
    words = (
        "Mean test score minus that of the best baseline, points, with the 95% interval over splits, paired and "
        "corrected for the overlap of splits (Nadeau and Bengio). The best baseline of a graph, marked 0, is the model "
        "other than GFGN with the best mean test score; choosing it by test scores favors it. A star marks p < 0.05 "
        f"after Holm's correction for all {len(gaps):,} differences."
    )
    return section("## Differences to the best baseline", words, ["", *datasets], rows)


def _difference(results: Results, cell: Cell, gap: Gap | None) -> str:
    if gap is None:
        return NONE if results[cell].mean is None else "0"
    mean, interval, _ = gap_cells(gap)
    return f"{mean}{'*' if gap.p < 0.05 else ''} {interval}".removesuffix(f" {NONE}")


def _ranks(results: Results, datasets: Sequence[str]) -> Lines:
    """Average ranks with bootstrap intervals: over the graphs of each model, and over those that all models have."""
    ranked = [name for name in datasets if f"{name}-corrected" not in datasets]
    means = {model: {name: results[Cell(name, model)].mean for name in ranked} for model in results.study.models}
    scores = {model: _rounded(own) for model, own in means.items() if any(mean is not None for mean in own.values())}
    if not scores:
        return []
    shared = [name for name in ranked if all(name in own for own in scores.values())]
    tables = [scores, {model: {name: own[name] for name in shared} for model, own in scores.items()}]
    columns = [_ranks_of(table) if shared or table is scores else {} for table in tables]
    order = sorted(scores, key=lambda model: columns[0][model][0])
    rows = [[model, *(_rank(column.get(model)) for column in columns), f"{len(scores[model])}"] for model in order]
    left_out = [name for name in datasets if name not in ranked]
    words = (
        "The rank of a model by its mean score, 1 being the best, averaged over graphs, with the 95% interval of a "
        "bootstrap over graphs: how far it depends on which graphs are in the table. The first column is over all "
        f"graphs of a model, the second over the {len(shared)} that every model has."
    )
    words += f" {', '.join(left_out)} is left out, because its corrected version is ranked." if left_out else ""
    heads = ["model", "average rank", "on the graphs of all models", "graphs"]
    return section("## Average ranks", words, heads, rows)


def _rounded(means: Mapping[str, float | None]) -> dict[str, float]:
    """The known scores as the page shows them, so that models which look tied are."""
    return {name: round(mean, 2) for name, mean in means.items() if mean is not None}


def _ranks_of(scores: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, float, float]]:
    """By model, its average rank and the ends of its interval."""
    ranks, intervals = average_ranks(scores), rank_intervals(scores)
    return {model: (rank, *intervals[model]) for model, rank in ranks.items()}


def _rank(rank: tuple[float, float, float] | None) -> str:
    return NONE if rank is None else f"{rank[0]:.1f} [{rank[1]:.1f}, {rank[2]:.1f}]"


def _caps(results: Results, datasets: Sequence[str]) -> Lines:
    study, rows, cap = results.study, [], results.study.config.max_epochs
    for model in study.models:
        shares = [share_at_cap(results, Cell(name, model)) for name in datasets]
        known = [share for share in shares if share is not None]
        cells = [NONE if share is None else f"{100 * share:g}%" for share in shares]
        rows.append([model, *cells, f"{100 * fmean(known):.1f}%" if known else NONE])
    words = f"The share of the runs of the chosen configuration that trained until the last of {cap:,} epochs."
    return section("## Runs at the cap", words, ["", *datasets, "all"], rows)


def _published(results: Results, datasets: Sequence[str]) -> Lines:
    """What papers report on these graphs, beside the best model here and GFGN+."""
    rows = []
    for entry in read_csv(PUBLISHED):
        if entry["dataset"] not in datasets:
            continue
        means = {model: results[Cell(entry["dataset"], model)].mean for model in results.study.models}
        known = {model: mean for model, mean in means.items() if mean is not None}
        best = max(known, key=lambda model: known[model], default=None)
        score = entry["score"] + (f" ± {entry['std']}" if entry["std"] else "")
        ours = NONE if best is None else f"{number(known[best])} ({best})"
        plus = number(known["gfgn-plus"]) if "gfgn-plus" in known else NONE
        source = f"[{entry['paper']}]({entry['source']})"
        rows.append([entry["dataset"], entry["model"], score, plus, ours, MARKS[entry["mark"]], source])
    words = (
        "Scores that papers report, copied and not measured here. The mark says what is known to differ from the "
        "protocol of this page: the configuration was selected on test scores, or the splits are others or fewer."
    )
    heads = ["graph", "model", "published", "gfgn-plus here", "best here", "mark", "source"]
    return section("## Published scores", words, heads, rows)


def _halving(rungs: Sequence[int], configurations: int) -> str:
    if not rungs:
        return ""
    kept = []
    for _ in rungs:
        configurations = math.ceil(configurations / 2)
        kept.append(configurations)
    epochs, left = (", ".join(map(str, numbers)) for numbers in (rungs, kept))
    return f"; after {epochs} epochs, {left} of them continue (successive halving, dropped runs are recorded as such)"


def _space(space: Space) -> str:
    """A space in words."""
    return ", ".join(f"{name} {_axis(axis)}" for name, axis in space.items())


def _axis(axis: Uniform | Choice) -> str:
    if isinstance(axis, Choice):
        return f"{{{', '.join(map(str, axis.values))}}}"
    scale = " (logarithmic)" if isinstance(axis, LogUniform) else ""
    return f"{axis.low:g} to {axis.high:g}{scale}"
