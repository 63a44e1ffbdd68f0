"""What the page of a study shows, from its runs alone; `templates/study.md.j2` lays it out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev

from gfgn.data.named.catalog import DATASETS
from gfgn.nn.registry import find_model
from gfgn.paper.pages import number, render, signed, span
from gfgn.runs.grid import Choice, Configuration, LogUniform, Space
from gfgn.runs.record import is_gfgn, is_standin
from gfgn.runs.results import Gap, Results, best_baseline
from gfgn.runs.study import AXES, MEASURES, At, Cell
from gfgn.runs.study_files import Time
from gfgn.runs.text import NONE, count, in_words, interval, mean_and_std, p_value
from gfgn.train.catalog import CLASSICAL
from gfgn.train.statistics import average_ranks, holm, rank_intervals

SIGNIFICANT = 0.05  # the p-value below which a change is counted


def gaps_to_best_baseline(results: Results, datasets: Sequence[str]) -> dict[Cell, Gap]:
    """The gap of every model to the best baseline, in points, with p-values after Holm's correction for all gaps of the
    study. The baseline is chosen by test scores, which favors it."""
    gaps: dict[Cell, Gap] = {}
    for name in datasets:
        scores = known_means(results, name)
        best = best_baseline(scores)
        for model in (model for model in scores if model != best):
            if best and (gap := results.gap(Cell(name, model), Cell(name, best))):
                gaps[Cell(name, model)] = gap.points
    tested = [cell for cell, gap in gaps.items() if not math.isnan(gap.p)]
    corrected = holm([gaps[cell].p for cell in tested])
    return gaps | {cell: gaps[cell]._replace(p=p) for cell, p in zip(tested, corrected, strict=True)}


def known_means(results: Results, dataset: str) -> dict[str, float]:
    """The mean scores on a dataset of the models that have one."""
    means = {model: results[Cell(dataset, model)].mean for model in results.study.models}
    return {model: mean for model, mean in means.items() if mean is not None}


def make_page(results: Results, times: Sequence[Time], figures: Sequence[Path]) -> str:
    """The page in Markdown, with wall-clock times and the figures in its folder."""
    page, names = StudyPage(results), [path.stem for path in figures]
    return render("study", page=page, study=page.study, times=times, figures=names, measures=MEASURES)


class StudyPage:
    """What the template asks for: facts about the study, the text of single cells, and tables that need more."""

    def __init__(self, results: Results) -> None:
        self.results, self.study, self.rows = results, results.study, results.runs
        self.published, search, vary = self.study.published, self.study.search, self.study.vary
        self.axis, self.values = (vary.name, vary.values) if vary else ("", ())
        self.axis_title = AXES.get(self.axis, "")
        self.real = [name for name in self.study.datasets if not is_standin(name)]
        self.standins = {name: DATASETS[name].description for name in self.study.datasets if is_standin(name)}
        self.shows_published = search is None or bool(self.published.scores)
        varied = [cell for cell in self.study.all_cells() if self.axis == "variant" and cell.at != self.values[0]]
        self.changes = {cell: change.points for cell in varied if (change := results.change(cell)) is not None}
        self.ranked = [name for name in self.real if f"{name}-corrected" not in self.real]
        self.gaps = gaps_to_best_baseline(results, self.real) if search is not None else {}
        self.levels = [model for model in self.study.models if is_gfgn(model)]

    def versions(self) -> list[str]:
        """The versions that made the runs."""
        known = (", ".join(f"{k} {v}" for k, v in row.versions.items() if k != "code") for row in self.rows)
        return sorted(set(known))

    def used(self, model: str) -> tuple[int, int, int]:
        """The number of a model's graphs, and the runs and epochs of its chosen configurations."""
        cells = [cell for cell in self.study.all_cells() if cell.model == model]
        final = {row.key: row.epochs for cell in cells for row in self.results[cell].rows}
        return len(cells), len(final), sum(final.values())

    def grid(self, model: str) -> str:
        """The values of a model's grid."""
        configurations = self.study.models[model]
        gated = model not in CLASSICAL and find_model(model).gated
        hidden = "" if gated and self.axis != "lam" else "lam"
        words = [_set(name, values) for name, values in _choices(configurations).items() if name != hidden]
        return f"{', '.join(words)} ({count(len(configurations), 'configuration')})".strip()

    def space(self, space: Space) -> str:
        """A space of a search in words."""
        words = []
        for name, axis in space.items():
            if isinstance(axis, Choice):
                words.append(f"{name} {{{', '.join(map(str, axis.values))}}}")
            else:
                words.append(f"{name} {axis.low:g} to {axis.high:g}" + " (logarithmic)" * isinstance(axis, LogUniform))
        return ", ".join(words)

    def changed(self, at: At) -> str:
        """The settings in which a variant differs from the first."""
        variant, base = self.study.variants[at], self.study.variants[self.values[0]]
        pairs = [(asdict(variant.view), asdict(base.view)), (asdict(variant.config), asdict(base.config))]
        words = [f"{name} {_plain(value)}" for new, old in pairs for name, value in new.items() if value != old[name]]
        for model, configurations in variant.models.items():
            before = _choices(base.models[model])
            words += [_set(name, own) for name, own in _choices(configurations).items() if own != before.get(name)]
        return ", ".join(dict.fromkeys(words)) or NONE

    # --- cells --------------------------------------------------------------------------------------------------------

    def cell(self, dataset: str, model: str, at: At | None = None) -> Cell:
        """A cell of the study; that without a value if the model does not depend on what is varied."""
        cell = Cell(dataset, model, at)
        return cell if cell in self.study.cells(dataset, model) else Cell(dataset, model)

    def mean(self, cell: Cell) -> str:
        """The mean score; why there is none if runs are missing or diverged."""
        result = self.results[cell]
        if result.mean is not None:
            return f"{result.mean:.2f}"
        if cell not in self.study.cells(cell.dataset, cell.model):
            return NONE
        if result.rows:
            return f"{result.diverged:,} of {count(len(result.rows), 'run')} diverged"
        return f"missing ({result.have:,} of {result.need:,} runs)" if result.have else "missing"

    def is_best(self, cell: Cell) -> bool:
        """Whether no model has a better mean score."""
        return self.results[cell].mean == max(known_means(self.results, cell.dataset).values(), default=0.0)

    def score(self, cell: Cell) -> str:
        """The mean score with the standard deviation over runs, or why there is none."""
        known = self.results[cell].summary
        return self.mean(cell) if known is None else mean_and_std(known.mean, known.std, known.runs, "accuracy", 2)

    def interval(self, cell: Cell) -> str:
        """The interval of the mean over splits."""
        summary = self.results[cell].summary
        return NONE if summary is None or self.study.splits == 1 else interval(summary, "accuracy", 2)

    def runs(self, cell: Cell) -> str:
        """The number of runs and the chosen configuration, two cells of a table."""
        configuration = self.results[cell].configuration
        return f"{len(self.results[cell].rows):,} | {in_words(configuration, cell.model) if configuration else ''}"

    def to_published(self, cell: Cell) -> float | None:
        """The measured minus the published score."""
        published, mean = self.published.score(cell.dataset, cell.model), self.results[cell].mean
        return None if published is None or mean is None else mean - published

    def gap(self, cell: Cell) -> str:
        """The gap to the best baseline, with a star if it is significant."""
        gap = self.gaps.get(cell)
        if gap is None:
            return NONE if self.results[cell].mean is None else "0"
        ends = "" if math.isnan(gap.low) else f" {span(gap.low, gap.high, sign='+')}"
        return f"{signed(gap.mean)}{'*' * (gap.p < SIGNIFICANT)}{ends}"

    def between_draws(self, cell: Cell) -> str:
        """The standard deviation of the mean over draws of random edges."""
        means = [100 * fmean(row.test for row in draw) for draw in self.results[cell].draws]
        return number(stdev(means)) if len(means) > 1 else "missing"

    def effect(self, cell: Cell) -> str:
        """The change due to a variant, its interval and its p-value, three cells of a table."""
        change = self.changes.get(cell)
        if change is None:
            return " | ".join([NONE] * 3)
        ends = NONE if math.isnan(change.low) else span(change.low, change.high)
        return f"{signed(change.mean)} | {ends} | {p_value(change.p) or NONE}"

    def at(self, at: At | None) -> str:
        """A value of what is varied."""
        if at is None or isinstance(at, str):
            return at or NONE
        return f"{100 * at:g}%" if self.axis == "noise" else f"{at:g}"

    # --- rows of tables -----------------------------------------------------------------------------------------------

    def paper_ranks(self) -> dict[str, Mapping[str, float]]:
        """Average ranks by model: published, of measured levels among published baselines, and measured."""
        scores, measured = self.published.scores, self.measured(self.real)
        published = {model: scores[model] for model in self.study.models if model in scores}
        mixed = {
            model: measured[model] if is_gfgn(model) else {name: own[name] for name in self.real if name in own}
            for model, own in published.items()
        }
        return {
            "published": self.published.ranks,
            "from published scores": _average_ranks(scores),
            "measured GFGN, published baselines": _average_ranks(mixed),
            "measured, models of the published table": _average_ranks({model: measured[model] for model in published}),
            "measured, all models": _average_ranks(measured),
        }

    def search_ranks(self, datasets: Sequence[str]) -> dict[str, str]:
        """Average ranks by model, best first, with bootstrap intervals over the graphs; none without a score."""
        known = {model: own for model, own in self.measured(datasets).items() if own}
        if not known:
            return {}
        ranks, ends = average_ranks(known), rank_intervals(known)
        return {model: f"{ranks[model]:.1f} {span(*ends[model], 1)}" for model in sorted(known, key=ranks.__getitem__)}

    def shared(self, datasets: Sequence[str]) -> list[str]:
        """The graphs on which every model with a score has one."""
        known = [own for own in self.measured(datasets).values() if own]
        return [name for name in datasets if all(name in own for own in known)]

    def measured(self, datasets: Iterable[str]) -> dict[str, dict[str, float]]:
        """The known scores by model and dataset, as the page shows them, so that models which look tied are."""
        means = {name: known_means(self.results, name) for name in datasets}
        return {
            model: {name: round(own[model], 2) for name, own in means.items() if model in own}
            for model in self.study.models
        }

    def elsewhere(self) -> list[list[str]]:
        """What other papers report on these graphs, beside GFGN+ and the best model here: cells, mark and source."""
        rows = []
        for name in self.real:
            known = known_means(self.results, name)
            best = max(known, key=lambda model: known[model], default=None)
            here = [number(known.get("gfgn-plus")), NONE if best is None else f"{number(known[best])} ({best})"]
            given = [(paper, *own) for paper in self.published.elsewhere for own in paper.scores.get(name, {}).items()]
            for paper, model, score in sorted(given, key=lambda each: -float(each[2].split()[0])):
                rows.append([name, model, score, *here, paper.mark, f"[{paper.paper}]({paper.source})"])
        return rows


def _average_ranks(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average ranks as the paper computes them, of the models that have any score."""
    known = {model: {name: round(score, 2) for name, score in own.items()} for model, own in scores.items() if own}
    return average_ranks(known, ties="min") if known else {}


def _choices(configurations: Sequence[Configuration]) -> dict[str, list[object]]:
    """The values of each hyperparameter among several configurations."""
    names = dict.fromkeys(name for each in configurations for name in each)  # listed ones may differ in them
    return {name: list(dict.fromkeys(each[name] for each in configurations if name in each)) for name in names}


def _set(name: str, values: Iterable[object]) -> str:
    return f"{name} {{{', '.join(map(_plain, values))}}}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
