"""The page of a study, `README.md`: published and measured results, made from the runs alone.

Published and measured values are marked as such, incomplete cells say so, and stand-ins have a separate section without
published values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev

from gfgn.data.named.catalog import DATASETS
from gfgn.nn.registry import find_model
from gfgn.paper.markdown import Lines
from gfgn.paper.markdown import number as _number
from gfgn.paper.markdown import section as _section
from gfgn.paper.open_page import search_sections
from gfgn.runs.comparison import in_words
from gfgn.runs.grid import Configuration
from gfgn.runs.record import count_codes, is_gfgn, is_standin
from gfgn.runs.results import Change, Results
from gfgn.runs.study import AXES, MEASURES, At, Cell, Variant
from gfgn.runs.study_files import RUNS, Time
from gfgn.runs.text import NONE, count, interval, made_by, mean_and_std, p_value
from gfgn.train.statistics import average_ranks

MISSING = "missing"  # what a cell shows if runs are missing
SIGNIFICANT = 0.05  # the p-value below which a change is counted


def make_page(results: Results, times: Sequence[Time] = (), figures: Sequence[Path] = ()) -> str:
    """The page in Markdown, with wall-clock times and the figures in its folder."""
    page = _Page(results)
    real = [name for name in results.study.datasets if not is_standin(name)]
    standins = [name for name in results.study.datasets if is_standin(name)]
    parts = [page.head(), [f"![{path.stem}]({path.name})" for path in figures]]
    if page.axis is None:
        searched = search_sections(results, real) if results.study.search is not None else []
        parts += [page.overview(real), *searched, *map(page.dataset, real), page.ranks(real)]
    elif page.axis == "variant":
        parts += [page.variants(), page.effects(), *map(page.compared, real)]
    else:
        parts += map(page.along_axis, real)
    parts += [page.facts(), page.notes(), page.standins(standins), page.times(times), page.method()]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


class _Page:
    """The parts of a page as lists of lines; an empty one is left out."""

    def __init__(self, results: Results) -> None:
        self.results, self.study, self.published = results, results.study, results.study.published
        self.compared_with_published = self.study.search is None or bool(self.published.scores)
        self.axis = self.study.vary.name if self.study.vary else None
        self.values: tuple[At, ...] = self.study.vary.values if self.study.vary else ()

    def head(self) -> Lines:
        study, rows, cells = self.study, self.results.rows, self.study.all_cells()
        diverged = sum(row.diverged for row in rows)
        devices = ", ".join(sorted({row.device for row in rows}))
        versions = sorted(
            {", ".join(f"{name} {value}" for name, value in row.versions.items() if name != "code") for row in rows}
        )
        return [
            *(f"# {study.title}", "", *([study.about, ""] if study.about else [])),
            f"- **Published**: {self.published.source or 'nothing'}.",
            f"- **Measured**: {len(rows):,} runs in [{RUNS}]({RUNS})" + (f", on {devices}." if rows else "."),
            *(
                [f"- {diverged:,} of them diverged: no epoch had a finite loss, and they have no score."]
                if diverged
                else []
            ),
            *([f"- Versions: {'; '.join(versions)}.", f"- Code: {made_by(count_codes(rows))}."] if rows else []),
            f"- {len(cells) - len(self.results.missing()):,} of {len(cells):,} cells have all their runs.",
            f"- `gfgn reproduce {study.name}` writes this page, and `--check` verifies it.",
        ]

    def overview(self, datasets: Sequence[str]) -> Lines:
        """Mean scores of every model on every dataset."""
        table = {model: [self._with_published(Cell(name, model)) for name in datasets] for model in self.study.models}
        given = ", with the published score in parentheses" if self.compared_with_published else ""
        words = f"Mean test score in %{given}. The best measured score is bold."
        rows = [[model, *cells] for model, cells in table.items()]
        return _section("## Overview", words, ["", *datasets], rows) if datasets else []

    def dataset(self, name: str) -> Lines:
        """One dataset: scores with intervals, differences to published scores, and chosen configurations."""
        rows = []
        for model in self.study.models:
            cell, spread = Cell(name, model), self.published.spreads.get(model, {}).get(name)
            published = _number(self.published.score(name, model)) + ("" if spread is None else f" ± {spread:.2f}")
            compared = [published, *self._measured(cell), self._gap(cell)]
            rows.append([model, *(compared if self.compared_with_published else compared[1:-1]), *self._runs(cell)])
        heads = ["published", "measured", "95% interval", "difference"]
        heads = ["model", *(heads if self.compared_with_published else heads[1:-1]), "runs", "configuration"]
        return _section(f"### {name}", "", heads, rows)

    def along_axis(self, name: str) -> Lines:
        """One dataset: one column per value of what is varied."""
        rows, constant, axis = [], [], AXES[self.axis or ""]
        for model in self.study.models:
            cells = {cell.at: cell for cell in self.study.cells(name, model)}
            constant += [model] if list(cells) == [None] else []
            rows.append([model, *(self._score(cells.get(value, cells.get(None))) for value in self.values)])
        over = "splits" if self.study.draws == 1 else "splits and draws"
        words = f"Measured mean test score in %, with the 95% interval of the mean over {over}."
        words += f" {', '.join(constant)} does not depend on {axis}." if constant else ""
        return [*_section(f"## {name}", words, [axis, *map(self._at, self.values)], rows), *self._spreads(name)]

    def _spreads(self, name: str) -> Lines:
        """How much the draws of random edges differ; empty for a study with a single draw."""
        values, rows = [value for value in self.values if value], []
        for model in self.study.models if self.study.draws > 1 else ():
            draws = [self.results[Cell(name, model, value)].draws for value in values]
            means = [[100 * fmean(row.test for row in own) for own in each] for each in draws]
            cells = [_number(stdev(each)) if len(each) > 1 else MISSING for each in means]
            rows.append([model, *cells])
        words = "Standard deviation over draws of the mean over splits and seeds, in points."
        heads = ["between draws", *map(self._at, values)]
        return ["", *_section(f"### {name}, draws", words, heads, rows)] if rows else []

    def variants(self) -> Lines:
        """What each variant changes."""
        base, variants = self.study.variants[self.values[0]], self.study.variants.items()
        rows = [[str(at), _difference(variant, base), variant.about] for at, variant in variants]
        words = f"Each variant is “{self.values[0]}” with one change."
        return _section("## Variants", words, ["variant", "change", "reason"], rows)

    def effects(self) -> Lines:
        """The effect of each variant over all cells, and how many effects are significant."""
        cells, rows = self.study.all_cells(), []
        effects = {cell: change for cell in cells if (change := self._change(cell)) is not None}
        tested = _tested(effects.values())
        words = (
            "Effects are differences to the first variant in points, paired over splits after averaging the seeds of a "
            "split. p is from the two-sided t-test over splits, corrected for their overlap, not for multiple tests: "
            f"{sum(p < SIGNIFICANT for p in tested)} of {len(tested)} comparisons have "
            f"p < {SIGNIFICANT}, and about {SIGNIFICANT * len(tested):.1f} are expected by chance. "
            "Variants with other splits cannot be paired and have no p. Over all datasets and models:"
        )
        for at in self.values:
            changes = [change for cell, change in effects.items() if cell.at == at]
            gaps = [gap for cell in cells if cell.at == at and (gap := self._to_published(cell)) is not None]
            rows.append([str(at), *_over_cells(changes), _number(fmean(gaps) if gaps else None, "+")])
        heads = ["variant", "mean effect", "smallest", "largest", "positive", f"p < {SIGNIFICANT}"]
        return _section("## Effects", words, [*heads, "mean minus published"], rows) if tested else []

    def compared(self, name: str) -> Lines:
        """One dataset: every variant of every model, compared with the first variant and with the published score."""
        lines = [f"## {name}"]
        heads = ["variant", "measured", "95% interval", "effect", "95% interval", "p", "minus published", "runs"]
        for model in self.study.models:
            rows = []
            for cell in self.study.cells(name, model):
                change, effect = self._change(cell), [NONE] * 3
                if change is not None:
                    interval = NONE if change.low is None else f"[{_number(change.low)}, {_number(change.high)}]"
                    effect = [_number(change.mean, "+"), interval, p_value(change.p) or NONE]
                rows.append([str(cell.at), *self._measured(cell), *effect, self._gap(cell), *self._runs(cell)])
            title = f"### {model} on {name}, published {_number(self.published.score(name, model))}"
            lines += ["", *_section(title, "", [*heads, "configuration"], rows)]
        return lines

    def ranks(self, datasets: Sequence[str]) -> Lines:
        """Average ranks: of the published scores, of measured levels among published baselines, and all measured."""
        published = {
            model: self.published.scores[model] for model in self.study.models if model in self.published.scores
        }
        measured = {
            model: {name: mean for name in datasets if (mean := self.results[Cell(name, model)].mean) is not None}
            for model in self.study.models
        }
        mixed = {
            model: measured[model] if is_gfgn(model) else {name: own[name] for name in datasets if name in own}
            for model, own in published.items()
        }
        columns = {
            "published": self.published.ranks,
            "from published scores": _ranked(self.published.scores),
            "measured GFGN, published baselines": _ranked(mixed),
            "measured, models of the published table": _ranked({model: measured[model] for model in published}),
            "measured, all models": _ranked(measured),
        }
        rows = []
        for model, scores in measured.items():
            ranks = [f"{column[model]:.1f}" if model in column else NONE for column in columns.values()]
            rows.append([model, *ranks, f"{len(scores)} of {len(datasets)}"])
        words = (
            "The rank of a model by its mean score, 1 being the best, averaged over the datasets it has a score on; "
            "tied models share the better rank. The first two columns are over all datasets of the published table, "
            "the others over those of this page."
        )
        heads = ["model", *columns, "datasets measured"]
        return _section("## Average ranks", words, heads, rows) if self.published.ranks else []

    def facts(self) -> Lines:
        rows = []
        for fact in self.published.facts:
            measured, where = self.results.measure(fact), fact.dataset
            if fact.at is not None:
                where += f", {self._at(fact.at)} added edges" if self.axis == "noise" else f", λ {fact.at:g}"
            what = MEASURES[fact.measure] + (f" ({fact.model})" if fact.model else "")
            values = [MISSING, NONE] if measured is None else [_number(measured), _number(measured - fact.value, "+")]
            rows.append([what, where, f"{fact.value:g}", *values])
        heads = ["measure", "where", "published", "measured", "difference"]
        return _section("## Further published numbers", "", heads, rows) if rows else []

    def notes(self) -> Lines:
        notes = [f"- {note}" for note in self.published.notes]
        return ["## Notes on the published results", "", *notes] if notes else []

    def standins(self, names: Sequence[str]) -> Lines:
        """Stand-ins: measured scores only, because published scores are of other data."""
        axis = [] if self.axis is None else [AXES[self.axis]]
        heads = ["model", *axis, "measured", "95% interval", "runs", "configuration"]
        words = "These are not the published datasets. Their scores can only be compared with each other."
        lines = ["## Stand-ins", "", words]
        for name in names:
            cells = [cell for model in self.study.models for cell in self.study.cells(name, model)]
            at = {cell: [self._at(cell.at)] if axis else [] for cell in cells}
            rows = [[cell.model, *at[cell], *self._measured(cell), *self._runs(cell)] for cell in cells]
            description = DATASETS[name].description
            words = f"{description[:1].upper()}{description[1:]}."
            lines += ["", *_section(f"### {name}", words, heads, rows)]
        return lines if names else []

    def times(self, times: Sequence[Time]) -> Lines:
        models, rows = list(self.study.models), self.results.rows
        levels = [model for model in models if is_gfgn(model)]
        groups = {model: [model] for model in models}
        groups |= ({"**the GFGN levels**": levels} if levels else {}) | {"**all**": models}
        table = []
        for label, group in groups.items():
            trained = [row.seconds for row in rows if row.model in group]
            measured = [time.seconds for time in times if time.model in group]
            wall_clock = f"{sum(measured) / 60:.1f}" if measured else NONE
            table.append([label, f"{len(trained):,}", f"{math.fsum(trained) / 60:.1f}", wall_clock])
        words = (
            "Runs train in batches; the training time of a run is that of its batch divided by the number of runs. "
            "Wall-clock times ([times.csv](times.csv)) include compilation and everything else except loading the data."
        )
        if times and math.fsum(row.seconds for row in rows) > math.fsum(time.seconds for time in times):
            words += (
                " Training time exceeds wall-clock time where runs trained in parallel, each on one CPU core, or were "
                "reused from another study."
            )
        heads = ["model", "runs", "training time, minutes", "wall-clock time, minutes"]
        return _section("## Times", words, heads, table)

    def method(self) -> Lines:
        study, rows, config = self.study, self.results.rows, self.study.config
        limited = sum(row.epochs >= row.config.max_epochs for row in rows)
        intervals = (
            "With one split there is no interval over splits."
            if study.splits == 1
            else "Intervals are t-intervals of the mean over splits, after averaging the seeds of each split; they are "
            "corrected for the overlap of splits (Nadeau and Bengio)."
        )
        if study.draws > 1:
            intervals += (
                " Those under noise cover the draws of random edges, too: splits and draws are two crossed random "
                "factors, whose variances add up, with Satterthwaite's degrees of freedom."
            )
        if study.splits * study.seeds > 1:
            intervals = f"± is the standard deviation over runs. {intervals}"
        grid = "grid" if study.search is None else "search"
        features = f"bag-of-words features are {'row-normalized' if study.view.features == 'normalized' else 'raw'}"
        lines = [
            f"Every configuration of a model's {grid} trains on {count(study.splits, 'split')} with seed 0. The one "
            "with the best mean validation score is chosen ([chosen.csv](chosen.csv)) and trained on the same "
            f"{'split' if study.splits == 1 else 'splits'} with {count(study.seeds, 'seed')}. Test scores are read at "
            "the epoch with the best validation score and are not used for selection.",
            f"{_length(config.max_epochs, config.patience)}; Adam; {features} and edges "
            f"are undirected{', unless a variant changes it' if self.axis == 'variant' else ''}.",
        ]
        if study.draws > 1:
            lines.append(
                f"There are {study.draws} draws of random edges. A configuration is chosen on the first, for every "
                "fraction of added edges, and trained with all splits and seeds on every draw."
            )
        if config.tf32:
            lines.append("Products of float32 matrices use TF32, with a precision of 11 bits.")
        for own in dict.fromkeys(study.configs.values()):
            names = " and ".join(model for model in study.models if study.configs.get(model) == own)
            lines.append(f"{names}: {_length(own.max_epochs, own.patience).lower()}.")
        if limited:
            end = "runs reached the last epoch; with more epochs their scores might differ."
            lines.append(f"{limited:,} of {len(rows):,} {end}")
        grids = [f"{model}: {self._grid(model)}" for model in study.models] if study.search is None else []
        lines += [intervals, *grids]
        return ["## Method", "", *(f"- {line}" for line in lines)]

    # --- cells --------------------------------------------------------------------------------------------------------

    def _measured(self, cell: Cell) -> list[str]:
        """The score with its standard deviation, and its interval."""
        summary = self.results[cell].summary
        if summary is None:
            return [self._absent(cell), NONE]
        return [
            mean_and_std(summary.mean, summary.std, summary.runs, "accuracy", digits=2),
            self._interval(cell) or NONE,
        ]

    def _score(self, cell: Cell | None) -> str:
        """The mean score with its interval."""
        if cell is None:
            return NONE
        mean = self.results[cell].mean
        return self._absent(cell) if mean is None else f"{mean:.2f} {self._interval(cell)}".rstrip()

    def _with_published(self, cell: Cell) -> str:
        """The mean score, bold if it is the best on its dataset, with the published score."""
        mean, published = self.results[cell].mean, self.published.score(cell.dataset, cell.model)
        text = self._absent(cell) if mean is None else f"{mean:.2f}"
        if mean is not None and mean == max(
            self.results[cell._replace(model=m)].mean or 0.0 for m in self.study.models
        ):
            text = f"**{text}**"
        return text if published is None else f"{text} ({published:.2f})"

    def _interval(self, cell: Cell) -> str:
        """The interval of the mean over splits; empty with a single split."""
        summary = self.results[cell].summary
        return "" if summary is None or self.study.splits == 1 else interval(summary, "accuracy", digits=2)

    def _runs(self, cell: Cell) -> list[str]:
        """The number of runs and the chosen configuration."""
        configuration = self.results[cell].configuration
        words = "" if configuration is None else in_words(configuration, cell.model)
        return [f"{len(self.results[cell].rows):,}", words]

    def _absent(self, cell: Cell) -> str:
        """The text of a cell without a score: runs are missing or diverged."""
        if cell not in self.study.cells(cell.dataset, cell.model):
            return NONE
        result = self.results[cell]
        if result.rows:
            return f"{result.diverged:,} of {count(len(result.rows), 'run')} diverged"
        return f"{MISSING} ({result.have:,} of {result.need:,} runs)" if result.have else MISSING

    def _change(self, cell: Cell) -> Change | None:
        return None if cell.at == self.values[0] else self.results.change(cell)

    def _to_published(self, cell: Cell) -> float | None:
        """The measured minus the published score."""
        published, mean = self.published.score(cell.dataset, cell.model), self.results[cell].mean
        return None if published is None or mean is None else mean - published

    def _gap(self, cell: Cell) -> str:
        return _number(self._to_published(cell), "+")

    def _at(self, at: At | None) -> str:
        """A value of what is varied."""
        if at is None or isinstance(at, str):
            return at or NONE
        return f"{100 * at:g}%" if self.axis == "noise" else f"{at:g}"

    def _grid(self, model: str) -> str:
        """The values of a model's grid."""
        configurations = self.study.models[model]
        hidden = "" if find_model(model).gated and self.axis != "lam" else "lam"
        words = [_set(name, values) for name, values in _choices(configurations).items() if name != hidden]
        return f"{', '.join(words)} ({count(len(configurations), 'configuration')})"


def _over_cells(changes: Sequence[Change]) -> list[str]:
    """The effects of one variant: mean, smallest, largest, and how many are positive or significant."""
    if not changes:
        return [NONE] * 5
    means, tested = [change.mean for change in changes], _tested(changes)
    return [
        *(_number(value, "+") for value in (fmean(means), min(means), max(means))),
        f"{sum(mean > 0 for mean in means)} of {len(means)}",
        f"{sum(p < SIGNIFICANT for p in tested)} of {len(tested)}" if tested else NONE,
    ]


def _tested(changes: Iterable[Change]) -> list[float]:
    """The p-values of the changes that have one."""
    return [change.p for change in changes if change.p is not None and not math.isnan(change.p)]


def _difference(variant: Variant, base: Variant) -> str:
    """The settings in which a variant differs from another."""
    pairs = [(asdict(variant.view), asdict(base.view)), (asdict(variant.config), asdict(base.config))]
    words = [f"{name} {_plain(value)}" for new, old in pairs for name, value in new.items() if value != old[name]]
    for model, configurations in variant.models.items():
        before = _choices(base.models[model])
        words += [_set(name, own) for name, own in _choices(configurations).items() if own != before.get(name)]
    return ", ".join(dict.fromkeys(words)) or NONE


def _ranked(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average ranks as the paper computes them, of the models that have any score."""
    rounded = {model: {name: round(score, 2) for name, score in own.items()} for model, own in scores.items() if own}
    return average_ranks(rounded, ties="min") if rounded else {}


def _choices(configurations: Sequence[Configuration]) -> dict[str, list[object]]:
    """The values of each hyperparameter among several configurations."""
    return {name: list(dict.fromkeys(each[name] for each in configurations)) for name in configurations[0]}


def _set(name: str, values: Iterable[object]) -> str:
    return f"{name} {{{', '.join(map(_plain, values))}}}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _length(max_epochs: int, patience: int) -> str:
    return f"At most {max_epochs} epochs, early stopping after {patience} epochs without improvement"
