"""Draws the plots in `docs/assets/` from the JSON files in `results/`, and fills the tables of the pages (`tables.py`).

python benchmarks/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tables
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gfgn.report.style import save_svg

RESULTS = Path(__file__).parent / "results"
ASSETS = Path(__file__).parent.parent / "docs" / "assets"
OURS, THEIRS, PLAIN = "#00796b", "#9aa5ad", "#c77f0a"
STYLES = ("-", "--", ":", "-.", (0, (6, 1)), (0, (1, 3)))
"""Line styles of contenders, in their order."""


def color(contender: str) -> str:
    if "plain PyTorch" in contender:
        return PLAIN
    return OURS if contender.startswith(("GFGN", "gfgn")) else THEIRS


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def save(figure: Figure, name: str) -> None:
    save_svg(figure, ASSETS / f"{name}.svg", crop=True)
    print(f"drew {ASSETS.name}/{name}.svg")


def bars(axes: Axes, rows: list[dict[str, Any]], field: str, label: str) -> None:
    names = [tables.label(row) for row in rows]
    values = [row[field] for row in rows]
    largest = max(value or 0 for value in values)
    for position, (name, value) in enumerate(zip(names, values, strict=True)):
        axes.barh(position, value or 0, color=color(name), height=0.7)
        text = "out of memory" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        axes.text((value or 0) + largest * 0.015, position, text, va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, largest * 1.18)
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def training(device: str) -> None:
    """Speed of one epoch of one run relative to the loop."""
    content = load(f"training-{device}")
    problems = content["problems"]
    levels = {"gfgn-graph": "#80cbc4", "gfgn-neighbor": "#26a69a", "gfgn-pair": "#00695c"}
    figure = Figure(figsize=(9.5, 2.9), layout="constrained")
    axes = figure.subplots()
    for shift, (level, shade) in enumerate(levels.items()):
        ratios = [next(row["ratio"] for row in p["rows"] if row["contender"] == level) for p in problems]
        positions = [position + 0.27 * (shift - 1) for position in range(len(problems))]
        axes.bar(positions, ratios, width=0.25, color=shade, label=level)
        for position, ratio in zip(positions, ratios, strict=True):
            axes.text(position, ratio * 1.04, f"{ratio:.0f}×", ha="center", va="bottom", fontsize=7)
    axes.set_yscale("log")
    axes.set_ylim(1, 1.6 * max(row["ratio"] for p in problems for row in p["rows"] if "ratio" in row))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.set_xticks(range(len(problems)), [p["dataset"] for p in problems], fontsize=8)
    axes.set_ylabel("times faster than a loop", fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.legend(fontsize=8, frameon=False, ncols=3, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    where = content["environment"]["device"].split(",")[0]
    axes.set_title(f"One epoch of one run in a batch of 160, against a loop over PyG's GCN ({where})", fontsize=9)
    save(figure, f"training-{device}")


def layer(device: str) -> None:
    """Every contender in its fastest form."""
    content = load(f"layer-{device}")
    named = {problem["title"]: problem for problem in content["problems"] if problem["dtype"] == "float32"}
    title = "ogbn-arxiv structure" if "ogbn-arxiv structure" in named else "BlogCatalog"
    problem = named[title]
    contenders = dict.fromkeys((row["contender"], row["ours"]) for row in problem["rows"])
    rows = [tables.fastest(problem["rows"], ours, name) for name, ours in contenders]
    rows = sorted(filter(None, rows), key=lambda row: (not row["ours"], row["total_ms"]))
    figure = Figure(figsize=(9.5, 0.6 + 0.26 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    bars(left, rows, "total_ms", "forward + backward, ms")
    bars(right, rows, "peak_mib", "peak memory, MiB")
    figure.suptitle(
        f"One layer, {title}: {problem['nodes']:,} nodes, {problem['edges']:,} edges, {problem['D']} features "
        f"({content['environment']['device']}){tables.note(content)}",
        fontsize=9,
    )
    save(figure, f"layer-{device}")


def propagate(device: str) -> None:
    """Time against width, on even and skewed degrees."""
    content = load(f"propagate-{device}")
    wide = [p for p in content["problems"] if p["dtype"] == "float32"]
    titles = [title for title in dict.fromkeys(p["title"] for p in wide) if title != "BlogCatalog"]
    figure = Figure(figsize=(9.5, 2.9), layout="constrained")
    for panel, title in zip(figure.subplots(1, len(titles), sharey=True, squeeze=False)[0], titles, strict=True):
        chosen = [p for p in wide if p["title"] == title]
        eager = [(p["D"], row) for p in chosen for row in p["rows"] if row["form"] == "eager" and row["total_ms"]]
        for name, style in zip(dict.fromkeys(row["contender"] for _, row in eager), STYLES, strict=False):
            points = [(d, row["total_ms"]) for d, row in eager if row["contender"] == name]
            panel.plot(*zip(*points, strict=True), linestyle=style, marker="o", ms=3, color=color(name), label=name)
        points = [(p["D"], p["floor_ms"]) for p in chosen if p["floor_ms"]]
        if points:
            panel.plot(*zip(*points, strict=True), color="#444444", linewidth=0.8, label="byte floor")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("features", fontsize=8)
        logarithmic(panel)
    panel.legend(fontsize=7, frameon=False)
    figure.suptitle(
        f"propagate, forward + backward, ms ({content['environment']['device']}){tables.note(content)}", fontsize=9
    )
    save(figure, f"propagate-{device}")


def logarithmic(panel: Axes) -> None:
    plain = FuncFormatter(lambda value, _: f"{value / 1e6:.3g}M" if value >= 1e5 else f"{value:,g}")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(plain)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(plain)
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def growth(device: str) -> None:
    content = load(f"growth-{device}")
    labels = {"nodes": "nodes", "edges": "directed edges", "width": "features", "heads": "heads",
              "skew": "largest degree", "replicas": "replicas"}  # fmt: skip
    axes = [axis for axis in labels if any(p["axis"] == axis for p in content["problems"])]
    figure = Figure(figsize=(2.4 * len(axes), 4.6), layout="constrained")
    panels = figure.subplots(2, len(axes), sharex="col", squeeze=False)
    for column, axis in enumerate(axes):
        rows = [(p["at"], row) for p in content["problems"] if p["axis"] == axis for row in p["rows"]]
        fields = ("total_ms", "time, ms"), ("peak_mib", "peak memory, MiB")
        for panel, (field, label) in zip(panels[:, column], fields, strict=True):
            for name, style in zip(dict.fromkeys(row["contender"] for _, row in rows), STYLES, strict=False):
                points = [(at, row[field]) for at, row in rows if row["contender"] == name and row[field]]
                panel.plot(*zip(*points, strict=True), linestyle=style, marker="o", ms=3, color=color(name), label=name)
            logarithmic(panel)
            if column == 0:
                panel.set_ylabel(label, fontsize=8)
        panels[1][column].set_xlabel(labels[axis], fontsize=8)
    lines = panels[0][0].get_lines()
    figure.legend(
        handles=lines, fontsize=7, frameon=False, ncols=len(lines), handlelength=4, loc="outside lower center"
    )
    figure.suptitle(f"Growth of time and memory ({content['environment']['device']}){tables.note(content)}", fontsize=9)
    save(figure, f"growth-{device}")


def interval_coverage(device: str) -> None:
    """How often intervals of scores and of differences contain the truth; one dot per estimate and distribution."""
    rows = load(f"interval_coverage-{device}")["problems"]
    methods = {"bootstrap": PLAIN, "t": THEIRS, "printed": OURS}
    names = {"bootstrap": "percentile bootstrap", "t": "Student's t, not corrected", "printed": "printed by gfgn"}
    splits = sorted({row["splits"] for row in rows})
    figure = Figure(figsize=(9.5, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, kind in zip(panels, ("score", "difference"), strict=True):
        panel.axhspan(92, 98, color=OURS, alpha=0.1, linewidth=0)
        panel.axhline(95, color="#444444", linewidth=0.8, linestyle="--")
        for shift, (method, shade) in enumerate(methods.items()):
            chosen = [row for row in rows if row["kind"] == kind]
            offsets = {at: iter(range(len(chosen))) for at in splits}
            x = [
                splits.index(row["splits"]) + 0.28 * (shift - 1) + 0.012 * (next(offsets[row["splits"]]) - 7)
                for row in chosen
            ]
            panel.scatter(x, [100 * row[method] for row in chosen], s=14, color=shade, label=names[method])
        panel.set_xticks(range(len(splits)), [f"{count} splits" for count in splits], fontsize=8)
        panel.set_title(
            {"score": "score of one model", "difference": "paired difference of two models"}[kind], fontsize=9
        )
        panel.tick_params(axis="y", labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("contain the truth, %", fontsize=8)
    panels[1].legend(fontsize=8, frameon=False, loc="lower right")
    save(figure, f"interval_coverage-{device}")


def main() -> None:
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "gfgn"
    for draw in (layer, growth):
        draw("cuda")
        draw("cpu")
    propagate("cpu")
    training("cuda")
    interval_coverage("cpu")
    tables.main()


if __name__ == "__main__":
    main()
