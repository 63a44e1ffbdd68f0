"""`write_report`: comparisons as one self-contained HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gfgn.data.files import replace_text
from gfgn.pages import render
from gfgn.report.files import ForeignFileError, check_page, write_features
from gfgn.report.panels import comparison_panels
from gfgn.runs import text
from gfgn.runs.explanation import Explanation
from gfgn.runs.results import Results, rank_models
from gfgn.runs.study import Study
from gfgn.runs.verdict import headline


def write_report(comparisons: Sequence[Results], path: str | Path, study: Study | None = None) -> Path:
    """Writes the report, one section per comparison, and returns its path; `study` names the page of a whole study,
    whose parts are `Results.comparisons()`.

    The features of explained comparisons are written to `gates.csv` beside it, or to one `gates-NAME.csv` each if there
    are several comparisons.
    """
    if not comparisons:
        raise ValueError("comparisons must not be empty, got none")
    path, several = Path(path), len(comparisons) > 1
    check_page(path)
    same_training = several and len({comparison.settings for comparison in comparisons}) == 1
    models = {model for comparison in comparisons for model in comparison.study.models}
    data = text.count(len(comparisons), "dataset") if several else comparisons[0].dataset.name
    sections, files = [], list[str]()
    for comparison in comparisons:
        with _explained_errors(comparison):
            known = comparison.explanation
            explained = None if known is None or not comparison.models else Explanation.from_json(known)
            file = ""
            if explained is not None and explained.features.gates:
                file = _gates_file(comparison.dataset.name if several else "", files)
                write_features(explained.features, path.parent / file)
            files.append(file)
            sections.append((comparison, comparison_panels(comparison, explained, file)))
    page = render(
        "report/templates/comparisons.html.j2",
        title=f"{text.count(len(models), 'model')} on {data}" if study is None else study.title,
        about="" if study is None else study.about,
        overview=_overview(comparisons) if several else None,
        shared_training=_training(comparisons[0]) if same_training else "",
        sections=sections,
        text=text,
        headline=headline,
        training=_training,
        footer=_footer(comparisons, "in the store and in runs.csv" if study is None else "in runs.csv.gz"),
    )
    return replace_text(path, page)


@contextmanager
def _explained_errors(comparison: Results) -> Iterator[None]:
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


def _gates_file(name: str, others: Sequence[str]) -> str:
    """The name of the table of features of a dataset, another one than those of others."""
    slug = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "data"
    file = f"gates-{slug}.csv" if name else "gates.csv"
    return file if file not in others else f"{file.removesuffix('.csv')}-{len(others)}.csv"


def _training(comparison: Results) -> str:
    text = f"Every network: {comparison.settings}."
    if comparison.study.config.best == "last":
        return text
    return f"{text} The best epoch is chosen on the validation nodes; the test score is that of the chosen epoch."


def _overview(comparisons: Sequence[Results]) -> dict[str, object]:
    """One row per model, one column per dataset, and the average rank."""
    summaries = [(comparison.dataset.metric, comparison.summary()) for comparison in comparisons]
    models = list(dict.fromkeys(model for comparison in comparisons for model in comparison.models))
    ranks = rank_models(comparisons) if len(models) > 1 else {}
    best = [
        max((summary[model].mean for model in comparison.scored), default=0.0)
        for comparison, (_, summary) in zip(comparisons, summaries, strict=True)
    ]
    rows, names = [], text.short_names(models)
    for model in models:
        cells = [text.percent(summary[model], metric) if model in summary else "" for metric, summary in summaries]
        bold = [k for k, (_, summary) in enumerate(summaries) if model in summary and summary[model].mean == best[k]]
        rank = [f"{ranks[model]:.2f}" if model in ranks else ""] if ranks else []
        rows.append((names[model], cells + rank, bold))
    return {"rows": rows, "ranked": bool(ranks)}


def _footer(comparisons: Sequence[Results], place: str) -> str:
    rows = [row for comparison in comparisons for runs in comparison.rows.values() for row in runs]
    plans = [comparison.cells[model].plan for comparison in comparisons for model in comparison.models]
    versions = {f"gfgn {row.versions['gfgn']}, torch {row.versions['torch']}, {row.device}" for row in rows}
    trained = f" Trained with {'; '.join(sorted(versions))}." if versions else ""
    return f"{text.count(sum(plan.count for plan in plans), 'run')}, all of them {place}.{trained}"
