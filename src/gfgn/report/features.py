"""The features of an explained run: the table that the page's script searches and sorts, a chart, and a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from gfgn.data.files import atomic_write
from gfgn.literal import csv_cell
from gfgn.metrics import METRICS
from gfgn.report.charts import Chart, legend, padded
from gfgn.report.elements import data, figure, heading, hidden_caption, number, row_head, scrolling
from gfgn.runs import Comparison
from gfgn.runs.text import scale, unit

ENDS = 20  # features at each end of the order that are shown first
FOLLOWS = {True: "follows the graph", False: "does not"}
START = "feature,gate_"  # of every file that `write_gates` may replace


def write_gates(comparisons: Sequence[Comparison], folder: Path) -> list[str | None]:
    """Writes the features of each explained comparison as CSV and returns the names of the files.

    One comparison has `gates.csv`, several have `gates-NAME.csv` each.
    """
    files: list[str | None] = []
    for comparison in comparisons:
        features = None if comparison.explanation is None else comparison.explanation["features"]
        if features is None or not features["gates"]:
            files.append(None)
            continue
        name = "gates.csv" if len(comparisons) == 1 else f"gates-{_slug(comparison.dataset.name)}.csv"
        name = name if name not in files else f"{name.removesuffix('.csv')}-{len(files)}.csv"
        write_features(features, folder / name)
        files.append(name)
    return files


class ForeignFileError(ValueError):
    """Raised instead of replacing a file that gfgn has not written."""


def _slug(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "data"


def write_features(features: dict[str, Any], path: Path) -> None:
    """Writes features with gates, smoothness and importance as CSV; another file of that name is not replaced."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(START):
        raise ForeignFileError(
            f"path must be in a folder whose {path.name} gfgn may overwrite, but {path} is something else"
        )
    columns = {"feature": features["names"]}
    columns |= {f"gate_{level}": values for level, values in features["gates"].items()}
    columns |= {name: features[name] for name in ("smoothness", "importance", "importance_std")}
    columns |= {name: features[name] for name in ("follows", "source") if features[name] is not None}
    with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(csv_cell, row) for row in zip(*columns.values(), strict=True))


def features_section(features: dict[str, Any], metric: str, number: int, level: int, file: str | None) -> str:
    """Gates, smoothness and importance of the features, see `gfgn.runs.explain`."""
    columns, main = _columns(metric, features)
    parts = [heading(level, "Features", f"features-{number}"), _meaning(metric, features)]
    if features["gates"]:
        parts.append(_chart(metric, features, main))
    parts.append(_explorer(features["names"], columns, main, number))
    if file is not None:
        parts.append(
            f'<p class="soft">All features with these numbers: <code>{escape(file)}</code>, beside this page.</p>'
        )
    return "\n".join(parts)


def _columns(metric: str, features: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The columns of numbers, and the index of the one that the table is first ordered by: the gate of the explained
    GFGN's level if there is one."""
    factor, points = scale(metric), ", points" if unit(metric) else ""
    columns = [
        {"label": f"gate, {level}", "values": values, "digits": 2} for level, values in features["gates"].items()
    ]
    levels = list(features["gates"])
    own = features.get("level", features["model"].removeprefix("gfgn-"))  # stores of earlier versions lack the level
    columns.append({"label": "smoothness", "values": features["smoothness"], "digits": 2})
    drops = [None if value is None else round(factor * value, 4) for value in features["importance"]]
    columns.append({"label": f"importance{points}", "values": drops, "digits": 2 if points else 4})
    if features["follows"] is not None:
        columns.append({"label": "by construction", "values": [FOLLOWS[each] for each in features["follows"]]})
    main = levels.index(own) if own in levels else 0 if levels else 1  # importance without gates
    return columns, main


def _meaning(metric: str, features: dict[str, Any]) -> str:
    """What the columns are."""
    known, total = sum(value is not None for value in features["importance"]), len(features["names"])
    terms = {}
    if features["gates"]:
        terms["Gate"] = (
            "how much of a feature a GFGN with one gate per feature takes from the neighbors: 0, the node's own value; "
            "1, the neighbors'. Mean over nodes or edges."
        )
        if (lam := features.get("lam", 1.0)) != 1:  # stores of earlier versions lack it
            terms["Gate"] += f" None exceeds λ, here {lam:g}."
        if len(features["gates"]) < 3:
            terms["Gate"] += " For data of this size, the graph level only."
    terms["Smoothness"] = "fᵀLf / fᵀf of the feature: 0 if it is equal along edges, about 1 for noise."
    terms["Importance"] = (
        f"drop of the validation {METRICS[metric].title} of {features['model']} when the feature's values "
        f"are exchanged between nodes at random, mean of {features['repeats']} times. Test nodes play no part."
    )
    if known < total:
        terms["Importance"] += f" For {known:,} features with extreme gates or large weights; others have a dash."
    if features["source"] is not None and len(set(features["source"])) < total:
        terms["Importance"] += " Features from one column of a table are exchanged together and share it."
    items = "".join(f"<dt>{term}</dt><dd>{escape(text)}</dd>" for term, text in terms.items())
    return f'<dl class="soft">{items}</dl>'


def _chart(metric: str, features: dict[str, Any], main: int) -> str:
    """Importance against the gate, one mark per feature."""
    columns, _ = _columns(metric, features)
    gates, drops = columns[main], columns[len(features["gates"]) + 1]
    follows = features["follows"] or [True] * len(features["names"])
    rows = list(zip(features["names"], gates["values"], drops["values"], follows, strict=True))
    points = [(name, gate, drop, follow) for name, gate, drop, follow in rows if None not in (gate, drop)]
    if not points:
        return ""
    chart = Chart((0.0, max(1.0, *(gate for _, gate, _, _ in points))), padded((p[2] for p in points), True), 260)
    chart.x_axis(f"{gates['label']} level (0: own value, 1: neighbors')")
    chart.y_axis(drops["label"])
    for name, gate, drop, follow in points:
        chart.dot(gate, drop, "a" if follow else "b", f"{name}: gate {gate:.2f}, {drops['label']} {drop:g}")
    top = sorted(points, key=lambda point: -point[2])[:3]
    most = ", ".join(f"{name} (gate {gate:.2f})" for name, gate, *_ in top)
    alt = f"Scatter plot of importance against the gate of {len(points):,} features. Most important: {most}."
    marks = legend([("a", "follows the graph by construction"), ("b", "does not")]) if features["follows"] else ""
    return figure(marks + chart.svg(alt), "Each mark is one feature: its importance against its gate.")


def _explorer(names: list[str], columns: list[dict[str, Any]], main: int, index: int) -> str:
    """The table of features. Without a script it shows both ends of the order; the script makes it searchable."""
    caption, wide = "Features", len(names) > 2 * ENDS
    label, values = columns[main]["label"], columns[main]["values"]
    known = sorted((k for k in range(len(names)) if values[k] is not None), key=lambda k: -values[k])
    groups = [("", [*known, *(k for k in range(len(names)) if values[k] is None)])]
    if wide:
        groups = [(f"{ENDS} highest: {label}", known[:ENDS]), (f"{ENDS} lowest: {label}", known[: -ENDS - 1 : -1])]
    body = "\n".join(_group(title, rows, names, columns) for title, rows in groups)
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ["feature", *(c["label"] for c in columns)])
    content = f"<table>\n{hidden_caption(caption)}<thead><tr>{heads}</tr></thead>\n{body}\n</table>"
    first = f'<option value="ends">the {ENDS} highest and the {ENDS} lowest</option>' if wide else ""
    controls = (
        f'<p class="controls" hidden><label for="search-{index}">Search '
        f'<input id="search-{index}" type="search" autocomplete="off" spellcheck="false"></label> '
        f'<label for="show-{index}">Show <select id="show-{index}">{first}'
        f'<option value="all">all {len(names):,} features</option></select></label></p>'
    )
    pages = (
        '<p class="controls" hidden><button type="button">Previous</button> <button type="button">Next</button> '
        '<span role="status"></span></p>'
    )
    content = scrolling(content, caption) + data({"names": names, "columns": columns, "main": main})
    return f'<div class="explorer">{controls}\n{content}\n{pages}</div>'


def _group(title: str, rows: Sequence[int], names: Sequence[str], columns: Sequence[dict[str, Any]]) -> str:
    lines = [f'<tr><th scope="rowgroup" colspan="{len(columns) + 1}">{escape(title)}</th></tr>'] if title else []
    for k in rows:
        cells = "".join(f"<td>{escape(_cell(column, k))}</td>" for column in columns)
        lines.append(f"<tr>{row_head(names[k])}{cells}</tr>")
    return "<tbody>\n" + "\n".join(lines) + "\n</tbody>"


def _cell(column: dict[str, Any], row: int) -> str:
    value = column["values"][row]
    return value if isinstance(value, str) else number(value, column["digits"])
