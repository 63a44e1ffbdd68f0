"""`write_report`: comparisons as one self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gfgn.data.files import replace_text
from gfgn.pages import render
from gfgn.report.files import ForeignFileError, check_page, write_features
from gfgn.report.panels import Panel, comparison_panels
from gfgn.runs.comparison import Comparison
from gfgn.runs.explanation import Explanation
from gfgn.runs.record import DatasetRecord, is_gfgn
from gfgn.runs.results import rank_models
from gfgn.runs.text import count, divergence, edges_in_words, percent, short_names
from gfgn.runs.verdict import headline


@dataclass(frozen=True)
class Section:
    """What the page says about one comparison, see `templates/comparisons.html.j2`."""

    dataset: DatasetRecord
    headline: str
    description: str
    sizes: str
    training: str
    warnings: list[str]
    others: str
    panels: list[Panel]


@dataclass(frozen=True)
class Overview:
    """The table of several comparisons: by model the name, the cells, whether it is a GFGN, and the bold cells."""

    datasets: list[str]
    ranked: bool
    note: str
    rows: list[tuple[str, list[str], bool, list[int]]]


def write_report(comparisons: Sequence[Comparison], path: str | Path) -> Path:
    """Writes the report, one section per comparison, and returns its path.

    The features of explained comparisons are written to `gates.csv` beside it, or to one `gates-NAME.csv` each if there
    are several comparisons.
    """
    if not comparisons:
        raise ValueError("comparisons must not be empty, got none")
    path = Path(path)
    check_page(path)
    several = len(comparisons) > 1
    same_training = several and len({comparison.settings for comparison in comparisons}) == 1
    models = {model for comparison in comparisons for model in comparison.study.models}
    data = count(len(comparisons), "dataset") if several else comparisons[0].dataset.name
    files = _write_gates(comparisons, path.parent)
    page = render(
        "report/templates/comparisons.html.j2",
        title=f"{count(len(models), 'model')} on {data}",
        anchors=[(f"data-{k}", comparison.dataset.name) for k, comparison in enumerate(comparisons)],
        overview=_overview(comparisons) if several else None,
        shared_training=_training(comparisons[0]) if same_training else "",
        sections=[
            _section(comparison, file, not same_training) for comparison, file in zip(comparisons, files, strict=True)
        ],
        footer=_footer(comparisons),
    )
    return replace_text(path, page)


@contextmanager
def _explained_errors(comparison: Comparison) -> Iterator[None]:
    """Turns the exceptions of an explanation that gfgn has not written into one that says what to do."""
    try:
        yield
    except ForeignFileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"the explanation of {comparison.dataset.name} in the store is damaged ({type(error).__name__}: {error}); "
            "move the store away and run `gfgn compare` again"
        ) from error


def _write_gates(comparisons: Sequence[Comparison], folder: Path) -> list[str | None]:
    """Writes the features of each explained comparison as CSV and returns the names of the files."""
    files: list[str | None] = []
    for comparison in comparisons:
        name = None
        if comparison.explanation is not None:
            with _explained_errors(comparison):
                features = Explanation.from_json(comparison.explanation).features
                if features.gates:
                    slug = re.sub(r"[^\w.+-]+", "-", comparison.dataset.name).strip("-.") or "data"
                    name = "gates.csv" if len(comparisons) == 1 else f"gates-{slug}.csv"
                    name = name if name not in files else f"{name.removesuffix('.csv')}-{len(files)}.csv"
                    write_features(features, folder / name)
        files.append(name)
    return files


def _section(comparison: Comparison, file: str | None, with_training: bool) -> Section:
    data, study = comparison.dataset, comparison.study
    text = data.description[:1].upper() + data.description[1:]
    missing = "; ".join(f"{model}, {have:,} of {need:,} runs" for model, (have, need) in comparison.incomplete.items())
    diverged = [divergence(model, number, len(comparison.rows[model])) for model, number in comparison.diverged.items()]
    with _explained_errors(comparison):
        panels = comparison_panels(comparison, file)
    return Section(
        dataset=data,
        headline=headline(comparison),
        description=text if not text or text.endswith((".", "!", "?")) else f"{text}.",
        sizes=f"{data.num_nodes:,} nodes, {edges_in_words(data.num_edges, data.directed)}, "
        f"{data.num_features:,} feature dimensions, {data.num_classes} classes. {count(study.splits, 'split')}, "
        f"{count(study.seeds, 'seed')} each.",
        training=_training(comparison) if with_training else "",
        warnings=[*([f"Left out because runs are missing: {missing}"] if missing else []), *diverged],
        others=", ".join(f"{model} ({count(number, 'run')})" for model, number in comparison.others.items()),
        panels=panels,
    )


def _training(comparison: Comparison) -> str:
    text = f"Every network: {comparison.settings}."
    if comparison.study.config.best == "last":
        return text
    return f"{text} The best epoch is chosen on the validation nodes; the test score is that of the chosen epoch."


def _overview(comparisons: Sequence[Comparison]) -> Overview:
    """One row per model, one column per dataset, and the average rank."""
    summaries = [comparison.summary() for comparison in comparisons]
    models = list(dict.fromkeys(model for comparison in comparisons for model in comparison.models))
    ranks = rank_models(comparisons) if len(models) > 1 else {}
    best = [
        max((summary[model].mean for model in each.scored), default=0.0)
        for each, summary in zip(comparisons, summaries, strict=True)
    ]
    rows, names = [], short_names(models)
    for model in models:
        cells = [
            percent(summary[model], each.dataset.metric) if model in summary else ""
            for each, summary in zip(comparisons, summaries, strict=True)
        ]
        bold = [k for k, summary in enumerate(summaries) if model in summary and summary[model].mean == best[k]]
        rank = [f"{ranks[model]:.2f}" if model in ranks else ""] if ranks else []
        rows.append((names[model], cells + rank, is_gfgn(model), bold))
    note = "Test score (in percent unless it is a log loss), mean ± standard deviation over runs; the best of each "
    note += "dataset in bold."
    if ranks:
        note += " Rank: average over datasets, among the models that ran on all of them; ties share their average rank."
    return Overview([comparison.dataset.name for comparison in comparisons], bool(ranks), note, rows)


def _footer(comparisons: Sequence[Comparison]) -> str:
    rows = [row for comparison in comparisons for runs in comparison.rows.values() for row in runs]
    runs = sum(
        comparison.study.plan(cell).count
        for comparison in comparisons
        for cell in comparison.study.all_cells()
        if cell.model in comparison.rows
    )
    versions = {f"gfgn {row.versions['gfgn']}, torch {row.versions['torch']}, {row.device}" for row in rows}
    trained = f" Trained with {'; '.join(sorted(versions))}." if versions else ""
    return f"{count(runs, 'run')}, all of them in the store and in runs.csv.{trained}"
