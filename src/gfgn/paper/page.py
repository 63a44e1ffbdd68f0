"""The page of a study, `README.md`: published and measured results, made from the runs alone.

Published and measured values are marked as such, incomplete cells say so, and stand-ins have a separate section without
published values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from gfgn.data.datasets.registry import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.runs.comparison import in_words
from gfgn.runs.grid import Configuration
from gfgn.runs.plan import Result
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Change, Results
from gfgn.runs.study import AXES, MEASURES, At, Cell, Study, Variant
from gfgn.runs.study_files import RUNS, Time
from gfgn.train.statistics import average_ranks, in_percent

MISSING, NONE = "missing", "–"
"""What a cell shows if runs are missing, and if there is no value."""
SIGNIFICANT = 0.05
"""The p-value below which a change is counted."""
LEFT_ALIGNED = ("configuration", "where", "change", "reason")
"""Columns with text; all others but the first are aligned right."""

Lines = list[str]


def make_page(results: Results, times: Sequence[Time] = (), figures: Sequence[Path] = ()) -> str:
    """The page in Markdown.

    Args:
        results: The study and its runs.
        times: The wall-clock times.
        figures: Figures in the folder of the page.
    """
    study = results.study
    real = [name for name in study.datasets if not DATASETS[name].standin]
    standins = [name for name in study.datasets if DATASETS[name].standin]
    parts = [_head(results), [f"![{path.stem}]({path.name})" for path in figures]]
    if study.vary is None:
        parts += [_overview(results, real), *(_dataset(results, name) for name in real), _ranks(results, real)]
    elif study.vary.name == "variant":
        parts += [_variants(study), _effects(results), *(_compared(results, name) for name in real)]
    else:
        parts += [_along_axis(results, name) for name in real]
    parts += [_facts(results), _notes(study), _standins(results, standins), _times(results, times), _method(results)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


# --- parts of the page ------------------------------------------------------------------------------------------------


def _head(results: Results) -> Lines:
    study, rows, cells = results.study, results.rows, results.study.all_cells()
    devices = ", ".join(sorted({row.device for row in rows}))
    versions = sorted({", ".join(f"{name} {value}" for name, value in row.versions.items()) for row in rows})
    return [
        *(f"# {study.title}", "", *([study.about, ""] if study.about else [])),
        f"- **Published**: {study.published.source or 'nothing'}.",
        f"- **Measured**: {len(rows):,} runs in [{RUNS}]({RUNS})" + (f", on {devices}." if devices else "."),
        *([f"- Versions: {'; '.join(versions)}."] if rows else []),
        f"- {len(cells) - len(results.missing()):,} of {len(cells):,} cells have all their runs.",
        f"- `gfgn reproduce {study.name}` writes this page, and `--check` verifies it.",
    ]


def _overview(results: Results, datasets: Sequence[str]) -> Lines:
    """Mean scores of every model on every dataset."""
    if not datasets:
        return []
    study, lines = results.study, []
    best = {name: max(results[Cell(name, model)].mean or 0.0 for model in study.models) for name in datasets}
    for model in study.models:
        cells = []
        for name in datasets:
            mean, published = results[Cell(name, model)].mean, study.published.score(name, model)
            text = _absent(results, Cell(name, model)) if mean is None else f"{mean:.2f}"
            text = f"**{text}**" if mean is not None and mean == best[name] else text
            cells.append(text if published is None else f"{text} ({published:.2f})")
        lines.append([model, *cells])
    words = "Mean test score in %, with the published score in parentheses. The best measured score is bold."
    return ["## Overview", "", words, "", *_table(["", *datasets], lines)]


def _dataset(results: Results, name: str) -> Lines:
    """One dataset: scores with intervals, differences to published scores, and chosen configurations."""
    study, lines = results.study, []
    heads = ["model", "published", "measured", "95% interval", "difference", "runs", "configuration"]
    for model in study.models:
        cell, published = Cell(name, model), study.published.score(name, model)
        spread = study.published.spreads.get(model, {}).get(name)
        text = _number(published) + ("" if spread is None else f" ± {spread:.2f}")
        gap = _number(_to_published(results, cell), "+")
        lines.append([model, text, *_measured(results, cell), gap, *_runs(results[cell])])
    return [f"### {name}", "", *_table(heads, lines)]


def _along_axis(results: Results, name: str) -> Lines:
    """One dataset: one column per value of what is varied."""
    study, lines = results.study, []
    assert study.vary is not None
    axis, values = AXES[study.vary.name], study.vary.values
    for model in study.models:
        cells = {cell.at: cell for cell in study.cells(name, model)}
        lines.append([model, *(_score(results, cells.get(value, cells.get(None))) for value in values)])
    words = "Measured mean test score in %, with the 95% interval of the mean over splits."
    constant = [model for model in study.models if [cell.at for cell in study.cells(name, model)] == [None]]
    words += f" {', '.join(constant)} does not depend on {axis}." if constant else ""
    return [f"## {name}", "", words, "", *_table([axis, *(_at(study, at) for at in values)], lines)]


def _variants(study: Study) -> Lines:
    """What each variant changes."""
    assert study.vary is not None
    base = study.variants[study.vary.values[0]]
    lines = [[str(at), _difference(study.variants[at], base), study.variants[at].about] for at in study.vary.values]
    words = f"Each variant is “{study.vary.values[0]}” with one change."
    return ["## Variants", "", words, "", *_table(["variant", "change", "reason"], lines)]


def _effects(results: Results) -> Lines:
    """The effect of each variant over all cells, and how many effects are significant."""
    study = results.study
    assert study.vary is not None
    cells = study.all_cells()
    effects = {cell: results.change(cell) for cell in cells if cell.at != study.vary.values[0]}
    tested = _tested([change for change in effects.values() if change is not None])
    if not tested:
        return []
    significant = sum(p < SIGNIFICANT for p in tested)
    words = (
        "Effects are differences to the first variant in points, paired over splits after averaging the seeds of a "
        "split. p is from the two-sided t-test over splits, not corrected for multiple tests: "
        f"{significant} of {_count(len(tested), 'comparison')} {'has' if significant == 1 else 'have'} "
        f"p < {SIGNIFICANT}, and about {SIGNIFICANT * len(tested):.1f} are expected by chance. "
        "Variants with other splits cannot be paired and have no p. Over all datasets and models:"
    )
    lines = []
    for at in study.vary.values:
        own = [cell for cell in cells if cell.at == at]
        changes = [change for cell in own if (change := effects.get(cell)) is not None]
        gaps = [gap for cell in own if (gap := _to_published(results, cell)) is not None]
        lines.append([str(at), *_over_cells(changes), _number(fmean(gaps), "+") if gaps else NONE])
    heads = ["variant", "mean effect", "smallest", "largest", "positive", f"p < {SIGNIFICANT}", "mean minus published"]
    return ["## Effects", "", words, "", *_table(heads, lines)]


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


def _tested(changes: Sequence[Change]) -> list[float]:
    """The p-values of the changes that have one."""
    return [change.p for change in changes if change.p is not None and not math.isnan(change.p)]


def _compared(results: Results, name: str) -> Lines:
    """One dataset: every variant of every model, compared with the first variant and with the published score."""
    study, lines = results.study, [f"## {name}"]
    assert study.vary is not None
    heads = ["variant", "measured", "95% interval", "effect", "95% interval", "p", "minus published", "runs"]
    for model in study.models:
        rows = []
        for cell in study.cells(name, model):
            change = results.change(cell) if cell.at != study.vary.values[0] else None
            effect = [NONE, NONE, NONE]
            if change is not None:
                interval = NONE if change.low is None else f"[{_number(change.low)}, {_number(change.high)}]"
                effect = [_number(change.mean, "+"), interval, _p_value(change)]
            gap = _number(_to_published(results, cell), "+")
            rows.append([str(cell.at), *_measured(results, cell), *effect, gap, *_runs(results[cell])])
        published = _number(study.published.score(name, model))
        lines += ["", f"### {model} on {name}, published {published}", "", *_table([*heads, "configuration"], rows)]
    return lines


def _ranks(results: Results, datasets: Sequence[str]) -> Lines:
    """Average ranks: of the published scores, of measured levels among published baselines, and all measured."""
    study, published = results.study, results.study.published
    if not published.ranks:
        return []
    measured = {
        model: {name: mean for name in datasets if (mean := results[Cell(name, model)].mean) is not None}
        for model in study.models
    }
    scores = {model: published.scores[model] for model in study.models if model in published.scores}
    mixed = {
        model: measured[model] if is_gfgn(model) else {name: own[name] for name in datasets if name in own}
        for model, own in scores.items()
    }
    columns = {
        "published": published.ranks,
        "from published scores": _ranked(published.scores),
        "measured GFGN, published baselines": _ranked(mixed),
        "measured, models of the published table": _ranked({model: measured[model] for model in scores}),
        "measured, all models": _ranked(measured),
    }
    lines = [
        [
            model,
            *(f"{column[model]:.1f}" if model in column else NONE for column in columns.values()),
            f"{len(measured[model])} of {len(datasets)}",
        ]
        for model in study.models
    ]
    words = (
        "The rank of a model by its mean score, 1 being the best, averaged over the datasets it has a score on; "
        "tied models share the better rank. The first two columns are over all datasets of the published table, the "
        "others over those of this page."
    )
    return ["## Average ranks", "", words, "", *_table(["model", *columns, "datasets measured"], lines)]


def _facts(results: Results) -> Lines:
    study, lines = results.study, []
    for fact in study.published.facts:
        measured = results.measure(fact)
        where = fact.dataset
        if fact.at is not None and study.vary is not None:
            where += f", {_at(study, fact.at)} added edges" if study.vary.name == "noise" else f", λ {fact.at:g}"
        what = MEASURES[fact.measure] + (f" ({fact.model})" if fact.model else "")
        value = MISSING if measured is None else _number(measured)
        gap = None if measured is None else measured - fact.value
        lines.append([what, where, f"{fact.value:g}", value, _number(gap, "+")])
    heads = ["measure", "where", "published", "measured", "difference"]
    return ["## Further published numbers", "", *_table(heads, lines)] if lines else []


def _notes(study: Study) -> Lines:
    notes = [f"- {note}" for note in study.published.notes]
    return ["## Notes on the published results", "", *notes] if notes else []


def _standins(results: Results, names: Sequence[str]) -> Lines:
    """Stand-ins: measured scores only, because published scores are of other data."""
    study, lines = results.study, []
    axis = [] if study.vary is None else [AXES[study.vary.name]]
    for name in names:
        rows = [
            [model, *[_at(study, cell.at) for _ in axis], *_measured(results, cell), *_runs(results[cell])]
            for model in study.models
            for cell in study.cells(name, model)
        ]
        description = DATASETS[name].description
        heads = ["model", *axis, "measured", "95% interval", "runs", "configuration"]
        lines += ["", f"### {name}", "", f"{description[:1].upper()}{description[1:]}.", "", *_table(heads, rows)]
    words = "These are not the published datasets. Their scores can only be compared with each other."
    return ["## Stand-ins", "", words, *lines] if names else []


def _times(results: Results, times: Sequence[Time]) -> Lines:
    groups = {model: [model] for model in results.study.models}
    levels = [model for model in groups if is_gfgn(model)]
    groups |= ({"**the GFGN levels**": levels} if levels else {}) | {"**all**": list(groups)}
    lines = []
    for label, models in groups.items():
        rows = [row for row in results.rows if row.model in models]
        measured = [time.seconds for time in times if time.model in models]
        wall_clock = f"{sum(measured) / 60:.1f}" if measured else NONE
        lines.append([label, f"{len(rows):,}", f"{math.fsum(row.seconds for row in rows) / 60:.1f}", wall_clock])
    words = (
        "Runs train in batches; the training time of a run is that of its batch divided by the number of runs. "
        "Wall-clock times ([times.csv](times.csv)) include compilation and everything else except loading the data."
    )
    if times and math.fsum(row.seconds for row in results.rows) > math.fsum(time.seconds for time in times):
        words += (
            " Training time exceeds wall-clock time where runs trained in parallel, each on one CPU core, or were "
            "reused from another study."
        )
    heads = ["model", "runs", "training time, minutes", "wall-clock time, minutes"]
    return ["## Times", "", words, "", *_table(heads, lines)]


def _method(results: Results) -> Lines:
    study, rows, config = results.study, results.rows, results.study.config
    splits = f"the same {'split' if study.splits == 1 else 'splits'}"
    varied = ", unless a variant changes it" if study.vary is not None and study.vary.name == "variant" else ""
    limited = sum(row.epochs >= row.config.max_epochs for row in rows)
    intervals = (
        "With one split there is no interval over splits."
        if study.splits == 1
        else "Intervals are bootstrap intervals of the mean over splits, after averaging the seeds of each split."
    )
    if study.splits * study.seeds > 1:
        intervals = f"± is the standard deviation over runs. {intervals}"
    lines = [
        f"- Every configuration of a model's grid trains on {_count(study.splits, 'split')} with seed 0. The one with "
        f"the best mean validation score is chosen ([chosen.csv](chosen.csv)) and trained on {splits} with "
        f"{_count(study.seeds, 'seed')}. Test scores are read at the epoch with the best validation score and are not "
        "used for selection.",
        f"- {_length(config.max_epochs, config.patience)}; Adam; bag-of-words features are row-normalized and edges "
        f"are undirected{varied}.",
        *(["- Products of float32 matrices use TF32, with a precision of 11 bits."] if config.tf32 else []),
    ]
    for own in dict.fromkeys(study.configs.values()):
        names = " and ".join(model for model in study.models if study.configs.get(model) == own)
        lines.append(f"- {names}: {_length(own.max_epochs, own.patience).lower()}.")
    if limited:
        lines.append(
            f"- {limited:,} of {len(rows):,} runs reached the last epoch; with more epochs their scores might differ."
        )
    lines += [f"- {intervals}", *(f"- {model}: {_grid(study, model)}" for model in study.models)]
    return ["## Method", "", *lines]


# --- cells ------------------------------------------------------------------------------------------------------------


def _measured(results: Results, cell: Cell) -> list[str]:
    """The score with its standard deviation, and its interval."""
    summary = results[cell].summary
    if summary is None:
        return [_absent(results, cell), NONE]
    return [in_percent(summary.mean, summary.std, summary.runs, digits=2), _interval(results, cell) or NONE]


def _score(results: Results, cell: Cell | None) -> str:
    """The mean score with its interval."""
    if cell is None:
        return NONE
    mean = results[cell].mean
    return _absent(results, cell) if mean is None else f"{mean:.2f} {_interval(results, cell)}".rstrip()


def _interval(results: Results, cell: Cell) -> str:
    """The interval of the mean over splits; empty with a single split."""
    summary = results[cell].summary
    if summary is None or results.study.splits == 1:
        return ""
    return f"[{100 * summary.low:.2f}, {100 * summary.high:.2f}]"


def _runs(result: Result) -> list[str]:
    """The number of runs and the chosen configuration."""
    configuration = result.configuration
    words = "" if configuration is None else in_words(configuration, result.plan.model)
    return [f"{len(result.rows):,}", words]


def _absent(results: Results, cell: Cell) -> str:
    """The text of a cell that lacks runs."""
    if cell not in results.study.cells(cell.dataset, cell.model):
        return NONE
    result = results[cell]
    return f"{MISSING} ({result.have:,} of {result.need:,} runs)" if result.have else MISSING


def _to_published(results: Results, cell: Cell) -> float | None:
    """The measured minus the published score."""
    published, mean = results.study.published.score(cell.dataset, cell.model), results[cell].mean
    return None if published is None or mean is None else mean - published


def _difference(variant: Variant, base: Variant) -> str:
    """The settings in which a variant differs from another."""
    pairs = [(asdict(variant.view), asdict(base.view)), (asdict(variant.config), asdict(base.config))]
    words = [f"{name} {_plain(value)}" for new, old in pairs for name, value in new.items() if value != old[name]]
    for model, configurations in variant.models.items():
        before = _choices(base.models[model])
        words += [_set(name, own) for name, own in _choices(configurations).items() if own != before.get(name)]
    return ", ".join(dict.fromkeys(words)) or NONE


def _at(study: Study, at: At | None) -> str:
    """A value of what is varied."""
    if at is None or study.vary is None:
        return NONE
    if isinstance(at, str):
        return at
    return f"{100 * at:g}%" if study.vary.name == "noise" else f"{at:g}"


def _p_value(change: Change) -> str:
    if change.p is None or math.isnan(change.p):
        return NONE
    return "< 0.001" if change.p < 0.001 else f"{change.p:.3f}"


def _ranked(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average ranks as the paper computes them, of the models that have any score."""
    rounded = {model: {name: round(score, 2) for name, score in own.items()} for model, own in scores.items() if own}
    return average_ranks(rounded, ties="min") if rounded else {}


def _number(value: float | None, sign: str = "") -> str:
    if value is None:
        return NONE
    return "0.00" if float(f"{value:.2f}") == 0 else f"{value:{sign}.2f}".replace("-", "−")


def _choices(configurations: Sequence[Configuration]) -> dict[str, list[object]]:
    """The values of each hyperparameter among several configurations."""
    return {name: list(dict.fromkeys(each[name] for each in configurations)) for name in configurations[0]}


def _grid(study: Study, model: str) -> str:
    """The values of a model's grid."""
    configurations = study.models[model]
    hidden = {"lam"} if not MODELS[model].gated or (study.vary is not None and study.vary.name == "lam") else set()
    words = [_set(name, values) for name, values in _choices(configurations).items() if name not in hidden]
    return f"{', '.join(words)} ({_count(len(configurations), 'configuration')})"


def _set(name: str, values: Iterable[object]) -> str:
    return f"{name} {{{', '.join(map(_plain, values))}}}"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _length(max_epochs: int, patience: int) -> str:
    return f"At most {max_epochs} epochs, early stopping after {patience} epochs without improvement"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    rule = [":--" if k == 0 or head in LEFT_ALIGNED else "--:" for k, head in enumerate(heads)]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
