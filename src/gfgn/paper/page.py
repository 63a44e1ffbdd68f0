"""The page of a study, `README.md`: published beside measured, from the runs alone.

What is published and what was measured is marked as such, a cell without all its runs says so, and stand-ins have a
section of their own, where nothing published stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gfgn.data.datasets.registry import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.runs.comparison import in_words
from gfgn.runs.plan import Configuration
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Change, Result, Results
from gfgn.runs.study import AXES, MEASURES, At, Cell, Study, Variant
from gfgn.train.statistics import Summary, average_ranks, in_percent

MISSING, NONE = "missing", "–"
"""What stands where runs are missing, and where nothing was published."""
LIKELY = 0.05
"""The p-value below which a change is counted."""
METRICS = {"accuracy": "accuracy", "roc_auc": "ROC AUC", "micro_f1": "micro-F1"}

Lines = list[str]


class Time(NamedTuple):
    """How long some runs of a model on a dataset took in all, with everything around them."""

    dataset: str
    model: str
    runs: int
    seconds: float
    device: str
    date: str


def make_page(results: Results, times: Sequence[Time] = (), figures: Sequence[Path] = ()) -> str:
    """The page in Markdown.

    Args:
        results: The study and its runs.
        times: What `times.csv` has.
        figures: Pictures to show, by their place beside the page.
    """
    study = results.study
    real = [name for name in study.datasets if not DATASETS[name].standin]
    standins = [name for name in study.datasets if DATASETS[name].standin]
    parts = [_head(results), [f"![{path.stem}]({path.name})" for path in figures]]
    if study.vary is None:
        parts += [_overview(results, real), *(_dataset(results, name) for name in real), _ranks(results, real)]
    elif study.vary.name == "variant":
        parts += [_variants(study), _changes(results), *(_compared(results, name) for name in real)]
    else:
        parts += [_along_axis(results, name) for name in real]
    parts += [_facts(results), _notes(study), _standins(results, standins), _times(results, times), _method(results)]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


# --- parts of the page ------------------------------------------------------------------------------------------------


def _head(results: Results) -> Lines:
    study, missing = results.study, results.missing()
    cells, rows = study.all_cells(), results.rows
    lines = [f"# {study.title}", "", *([study.about, ""] if study.about else [])]
    source = study.published.source or "nothing"
    made = ", ".join(sorted({row.device for row in rows}))
    with_versions = "; ".join(sorted({_versions(row.versions) for row in rows}))
    lines.append(f"- **Published**: {source}.")
    lines.append(f"- **Measured**: {len(rows):,} runs, all in [runs.csv](runs.csv)" + f", on {made}" * bool(made) + ".")
    lines += [f"- Versions: {with_versions}."] * bool(rows)
    lines.append(f"- {len(cells) - len(missing):,} of {len(cells):,} cells have all their runs.")
    lines.append(f"- This page is written by `gfgn reproduce {study.name}` and checked with `--check`.")
    return lines


def _overview(results: Results, datasets: Sequence[str]) -> Lines:
    """Means only: every model on every dataset."""
    if not datasets:
        return []
    study = results.study
    best = {name: _best(results, name) for name in datasets}
    lines = []
    for model in study.models:
        cells = []
        for name in datasets:
            mean, published = results[Cell(name, model)].mean, study.published.score(name, model)
            text = _absent(results, name, model) if mean is None else f"{mean:.2f}"
            text = f"**{text}**" if mean is not None and mean == best[name] else text
            cells.append(text if published is None else f"{text} ({published:.2f})")
        lines.append([model, *cells])
    heading = "## Measured, and in brackets published"
    return [heading, "", "Mean test score in %; the best measured one is bold.", "", *_table(["", *datasets], lines)]


def _dataset(results: Results, name: str) -> Lines:
    """One dataset: scores with intervals, differences, and what was chosen."""
    study = results.study
    heads = ["model", "published", "measured", "95% interval", "difference", "runs", "configuration"]
    lines = []
    for model in study.models:
        result, published = results[Cell(name, model)], study.published.score(name, model)
        spread = study.published.spreads.get(model, {}).get(name)
        said = NONE if published is None else f"{published:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")
        gap = NONE if published is None or result.mean is None else _signed(result.mean - published)
        lines.append([model, said, *_measured(results, result), gap, *_made_of(result)])
    return [f"### {name}", "", *_table(heads, lines)]


def _along_axis(results: Results, name: str) -> Lines:
    """One dataset: a column a value of what is varied."""
    study = results.study
    assert study.vary is not None
    values = study.vary.values
    heads = [AXES[study.vary.name], *(_place(study, at) for at in values)]
    lines = []
    for model in study.models:
        cells = study.cells(name, model)
        several = len(cells) > 1 or len(values) == 1
        by_value = {cell.at: cell for cell in cells}
        found = [by_value.get(value) if several else (cells[0] if cells else None) for value in values]
        lines.append([model, *(_short(results, cell) for cell in found)])
    words = "Measured mean test score in %, with the 95% interval of the mean over splits."
    alone = [model for model in study.models if len(study.cells(name, model)) == 1 < len(values)]
    words += f" {', '.join(alone)} does not depend on {AXES[study.vary.name]}." if alone else ""
    return [f"## {name}", "", words, "", *_table(heads, lines)]


def _variants(study: Study) -> Lines:
    """What each variant changes."""
    assert study.vary is not None
    base = study.variants[study.vary.values[0]]
    lines = [[str(at), _changed(study.variants[at], base), study.variants[at].about] for at in study.vary.values]
    words = f"Each of them is “{study.vary.values[0]}” with one change."
    return ["## Variants", "", words, "", *_table(["variant", "what is changed", "why"], lines)]


def _changes(results: Results) -> Lines:
    """What each variant changes over all cells, how many changes matter, and how many of them chance would make."""
    study = results.study
    assert study.vary is not None
    found = {cell: results.change(cell) for cell in study.all_cells() if _is_changed(study, cell)}
    tested = [change.p for change in found.values() if change is not None and _is_tested(change)]
    if not tested:
        return []
    likely = sum(p is not None and p < LIKELY for p in tested)
    words = (
        "Changes are in points and paired over splits, seeds averaged first; p is of the two-sided t-test over splits, "
        f"not corrected for the number of tests: of {_count(len(tested), 'comparison')} {likely} "
        f"{'has' if likely == 1 else 'have'} p < {LIKELY}, and chance alone makes about {LIKELY * len(tested):.1f}. "
        "Other splits have nothing to pair, and no p. Over all datasets and models:"
    )
    lines = []
    for at in study.vary.values:
        cells = [cell for cell in study.all_cells() if cell.at == at]
        changes = [change for cell in cells if (change := found.get(cell)) is not None]
        gaps = [gap for cell in cells if (gap := _to_published(results, cell)) is not None]
        lines.append([str(at), *_over_cells(changes), _signed(fmean(gaps)) if gaps else NONE])
    heads = ["variant", "mean change", "from", "to", "up in", f"p < {LIKELY} in", "to published, mean"]
    return ["## What they come to", "", words, "", *_table(heads, lines)]


def _over_cells(changes: Sequence[Change]) -> list[str]:
    """The changes of one variant: their mean, the least and the largest, and how many go up or are likely."""
    if not changes:
        return [NONE] * 5
    means = [change.mean for change in changes]
    tested = [change.p for change in changes if _is_tested(change)]
    likely = sum(p is not None and p < LIKELY for p in tested)
    return [
        *(_signed(value) for value in (fmean(means), min(means), max(means))),
        f"{sum(mean > 0 for mean in means)} of {len(means)}",
        f"{likely} of {len(tested)}" if tested else NONE,
    ]


def _is_tested(change: Change) -> bool:
    return change.p is not None and not math.isnan(change.p)


def _to_published(results: Results, cell: Cell) -> float | None:
    """How far a cell is above its published score."""
    published, mean = results.study.published.score(cell.dataset, cell.model), results[cell].mean
    return None if published is None or mean is None else mean - published


def _compared(results: Results, name: str) -> Lines:
    """One dataset: every variant of every model, against the first one and what is published."""
    study = results.study
    heads = ["variant", "measured", "95% interval", "change", "95% interval", "p", "to published", "runs"]
    lines = [f"## {name}"]
    for model in study.models:
        published, rows = study.published.score(name, model), []
        for cell in study.cells(name, model):
            result, change = results[cell], results.change(cell) if _is_changed(study, cell) else None
            low, high = (None, None) if change is None else (change.low, change.high)
            interval = NONE if low is None or high is None else f"[{_number(low)}, {_number(high)}]"
            gap = _to_published(results, cell)
            told = [NONE if change is None else _signed(change.mean), interval, _p(change)]
            told.append(NONE if gap is None else _signed(gap))
            rows.append([str(cell.at), *_measured(results, result), *told, *_made_of(result)])
        said = NONE if published is None else f"{published:.2f}"
        lines += ["", f"### {model} on {name}, published {said}", "", *_table([*heads, "configuration"], rows)]
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
    mixed = {
        model: measured[model] if is_gfgn(model) else _only(published.scores[model], datasets)
        for model in study.models
        if model in published.scores
    }
    columns = [
        published.ranks,
        _ranked(published.scores),
        _ranked(mixed),
        _ranked({model: scores for model, scores in measured.items() if model in published.scores}),
        _ranked(measured),
    ]
    heads = ["model", "published", "from published scores", "measured GFGN, published baselines"]
    heads += ["measured, models of the published table", "measured, all models"]
    places = [len(measured[model]) for model in study.models]
    lines = [
        [model, *(_rank(column.get(model)) for column in columns), f"{count} of {len(datasets)}"]
        for model, count in zip(study.models, places, strict=True)
    ]
    words = (
        "The rank of a model by its mean score, 1 being the best, averaged over the datasets that it has a score on; "
        "models with the same score share the better rank. The first two columns are over all datasets of the "
        "published table, the others over those of this page."
    )
    return ["## Average ranks", "", words, "", *_table([*heads, "datasets measured"], lines)]


def _facts(results: Results) -> Lines:
    facts = results.study.published.facts
    lines = []
    for fact in facts:
        measured = results.measure(fact)
        where = fact.dataset + _at(results.study, fact.at)
        what = MEASURES[fact.measure] + (f" ({fact.model})" if fact.model else "")
        gap = NONE if measured is None else _signed(measured - fact.value)
        lines.append([what, where, f"{fact.value:g}", MISSING if measured is None else _number(measured), gap])
    heads = ["what", "where", "published", "measured", "difference"]
    return ["## Further published numbers", "", *_table(heads, lines)] if facts else []


def _notes(study: Study) -> Lines:
    notes = study.published.notes
    return ["## What the paper says besides", "", *(f"- {note}" for note in notes)] if notes else []


def _standins(results: Results, names: Sequence[str]) -> Lines:
    """Stand-ins: measured only, as their scores are no scores of what they stand in for."""
    lines: Lines = []
    study = results.study
    varied = [] if study.vary is None else [AXES[study.vary.name]]
    for name in names:
        entry = DATASETS[name]
        rows = [
            [
                model,
                *[_place(study, cell.at) for _ in varied],
                *_measured(results, results[cell]),
                *_made_of(results[cell]),
            ]
            for model in study.models
            for cell in study.cells(name, model)
        ]
        heads = ["model", *varied, "measured", "95% interval", "runs", "configuration"]
        lines += ["", f"### {name}", "", f"{_sentence(entry.description)}.", "", *_table(heads, rows)]
    words = "These are not the published datasets. Their scores compare models with each other and with nothing else."
    return ["## Stand-ins", "", words, *lines] if names else []


def _place(study: Study, at: At | None) -> str:
    """Where a cell lies along what is varied."""
    if at is None or study.vary is None:
        return NONE
    if isinstance(at, str):
        return at
    return f"{100 * at:g}%" if study.vary.name == "noise" else f"{at:g}"


def _times(results: Results, times: Sequence[Time]) -> Lines:
    study = results.study
    groups = {model: [model] for model in study.models}
    levels = [model for model in study.models if is_gfgn(model)]
    groups |= {"**the GFGN levels**": levels} if levels else {}
    groups["**all**"] = list(study.models)
    lines = []
    for label, models in groups.items():
        rows = [row for row in results.rows if row.model in models]
        whole = [time for time in times if time.model in models]
        told = f"{sum(time.seconds for time in whole) / 60:.1f}" if whole else NONE
        lines.append([label, f"{len(rows):,}", f"{math.fsum(row.seconds for row in rows) / 60:.1f}", told])
    heads = ["model", "runs", "minutes of training", "minutes in all"]
    words = (
        "Runs train many at a time; the minutes of training are the sum of their shares. The minutes in all are "
        "measured by the clock ([times.csv](times.csv)), with compiling and all else but loading the data."
    )
    if times and math.fsum(row.seconds for row in results.rows) > math.fsum(time.seconds for time in times):
        words += (
            " The first exceed the second where runs trained side by side, each on a core of a CPU, or were taken over "
            "from another study."
        )
    return ["## Times", "", words, "", *_table(heads, lines)]


def _method(results: Results) -> Lines:
    study, rows = results.study, results.rows
    config = study.config
    varied = study.vary is not None and study.vary.name == "variant"
    lines = ["## How", ""]
    lines.append(
        f"- Every configuration of a model's grid trains on {_count(study.splits, 'split')} with seed 0; the one with "
        "the best mean validation score is chosen ([chosen.csv](chosen.csv)) and trains on the same "
        f"{'split' if study.splits == 1 else 'splits'} with {_count(study.seeds, 'seed')}. Test scores are read at the "
        "epoch with the best validation score, and choose nothing."
    )
    lines.append(
        f"- At most {config.max_epochs} epochs, ending {config.patience} epochs after the best one; Adam, rows of "
        "bags of words normalised, edges undirected" + (", unless a variant says otherwise." if varied else ".")
    )
    if config.tf32:
        lines.append("- Products of float32 matrices in TF32: eleven binary digits of each number.")
    for own in dict.fromkeys(study.configs.values()):
        names = " and ".join(model for model in study.models if study.configs.get(model) == own)
        lines.append(f"- {names}: at most {own.max_epochs} epochs, ending {own.patience} after the best one.")
    limited = sum(row.epochs >= row.config.max_epochs for row in rows)
    if limited:
        lines.append(
            f"- {limited:,} of {len(rows):,} runs reached the last epoch: with more they might score otherwise."
        )
    lines.append(
        ("- What follows a ± is the standard deviation over runs. " if study.splits * study.seeds > 1 else "- ")
        + (
            "There is one split, and so no interval over splits."
            if study.splits == 1
            else "Intervals are bootstrap intervals of the mean over splits, seeds of a split averaged first."
        )
    )
    lines += [f"- {model}: {_grid(study, model)}" for model in study.models]
    return lines


# --- cells ------------------------------------------------------------------------------------------------------------


def _measured(results: Results, result: Result) -> list[str]:
    if result.summary is None:
        return [_absent(results, *result.cell), NONE]
    summary = result.summary
    score = in_percent(summary.mean, summary.std, summary.runs, digits=2)
    return [score, _interval(results.study, summary) or NONE]


def _made_of(result: Result) -> list[str]:
    configuration = result.configuration
    words = "" if configuration is None else in_words(configuration, result.cell.model)
    return [f"{len(result.rows):,}", words]


def _short(results: Results, cell: Cell | None) -> str:
    if cell is None:
        return NONE
    result = results[cell]
    if result.summary is None:
        return _absent(results, *cell)
    return f"{result.mean:.2f} {_interval(results.study, result.summary)}".rstrip()


def _absent(results: Results, dataset: str, model: str, at: At | None = None) -> str:
    """What stands in a cell without all its runs."""
    cell = Cell(dataset, model, at)
    if cell not in results.study.cells(dataset, model):
        return NONE
    result = results[cell]
    return f"{MISSING} ({result.have:,} of {result.need:,} runs)" if result.have else MISSING


def _is_changed(study: Study, cell: Cell) -> bool:
    return study.vary is not None and cell.at != study.vary.values[0]


def _changed(variant: Variant, base: Variant) -> str:
    """What a variant has other than another, in words."""
    pairs = [(asdict(variant.view), asdict(base.view)), (asdict(variant.config), asdict(base.config))]
    words = [f"{name} {_plain(value)}" for new, old in pairs for name, value in new.items() if value != old[name]]
    for model, configurations in variant.models.items():
        before = _choices(base.models[model])
        for name, some in _choices(configurations).items():
            words += [f"{name} {{{', '.join(map(_plain, some))}}}"] * (some != before.get(name))
    return ", ".join(dict.fromkeys(words)) or NONE


def _p(change: Change | None) -> str:
    if change is None or change.p is None or math.isnan(change.p):
        return NONE
    return "< 0.001" if change.p < 0.001 else f"{change.p:.3f}"


def _best(results: Results, dataset: str) -> float | None:
    means = [results[Cell(dataset, model)].mean for model in results.study.models]
    return max((mean for mean in means if mean is not None), default=None)


def _ranked(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Average ranks as the paper computes them, of the models that have any score."""
    there = {
        model: {name: round(score, 2) for name, score in found.items()} for model, found in scores.items() if found
    }
    return average_ranks(there, ties="min") if there else {}


def _rank(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}"


def _only(scores: Mapping[str, float], datasets: Iterable[str]) -> dict[str, float]:
    return {name: scores[name] for name in datasets if name in scores}


def _interval(study: Study, summary: Summary) -> str:
    """The interval of the mean over splits; nothing where there is one split only."""
    return "" if study.splits == 1 else f"[{100 * summary.low:.2f}, {100 * summary.high:.2f}]"


def _number(value: float, sign: str = "") -> str:
    text = f"{value:{sign}.2f}".replace("-", "−")
    return "0.00" if float(f"{value:.2f}") == 0 else text


def _signed(value: float) -> str:
    return _number(value, "+")


def _at(study: Study, at: float | None) -> str:
    if at is None or study.vary is None:
        return ""
    return f", {100 * at:g}% added edges" if study.vary.name == "noise" else f", λ {at:g}"


def _choices(configurations: Sequence[Configuration]) -> dict[str, list[object]]:
    """The values of each hyper-parameter among some configurations."""
    return {name: list(dict.fromkeys(each[name] for each in configurations)) for name in configurations[0]}


def _grid(study: Study, model: str) -> str:
    """The choices of a model's grid in words."""
    configurations = study.models[model]
    hidden = {"lam"} if not MODELS[model].gated or (study.vary is not None and study.vary.name == "lam") else set()
    choices = {name: some for name, some in _choices(configurations).items() if name not in hidden}
    words = ", ".join(f"{name} {{{', '.join(map(_plain, some))}}}" for name, some in choices.items())
    return f"{words} ({_count(len(configurations), 'configuration')})"


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    rule = [
        ":--" if place == 0 or head in ("configuration", "where", "what is changed", "why") else "--:"
        for place, head in enumerate(heads)
    ]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
