"""The page of the study `thesis`: differences of the forms of a gate, and gates against the smoothness of dimensions.
What follows for the thesis of the paper is a matter of `gfgn.paper.claims`."""

from __future__ import annotations

from pathlib import Path

from gfgn.paper.evidence import LEVELS
from gfgn.paper.mechanism import DATASETS, FILE, Mean, mean_correlation
from gfgn.paper.pages import group_by, read_csv, render
from gfgn.runs.results import Gap, Results
from gfgn.runs.study import Cell
from gfgn.train.statistics import holm

COMPARISONS = (("dimension", "scalar"), ("scalar", "constant"))
GENERATED = "dimensions"  # the graph whose truth is known; it is no evidence about real graphs
MEASURES = {
    "rank_correlation": "the paper's fᵀLf",
    "centered": "without the mean",
    "label": "label part",
    "truth": "truth",
}


def compare(results: Results, first: str, second: str) -> dict[tuple[str, str], Gap]:
    """The differences of two forms of the gate in points by dataset and model, paired over splits."""
    cells = [(name, model) for name in results.study.datasets for model in results.study.models]
    gaps = {cell: results.gap(Cell(*cell, first), Cell(*cell, second)) for cell in cells}
    return {cell: gap.points for cell, gap in gaps.items() if gap}


def correlations(path: Path) -> dict[tuple[str, str, str], Mean]:
    """The mean rank correlations of a table by measure, dataset and model, p-values adjusted over the graphs of a
    level."""
    cells, means = group_by(read_csv(path), "dataset", "model"), dict[tuple[str, str, str], Mean]()
    for measure in MEASURES:
        for model in LEVELS:
            known = {name: mean_correlation(cells[name, model], measure) for name in DATASETS if (name, model) in cells}
            adjusted = holm([mean.p for mean in known.values()])
            for (name, mean), p in zip(known.items(), adjusted, strict=True):
                means[measure, name, model] = mean._replace(p=p)
    return means


def sections(results: Results, out: Path) -> str:
    """The sections of the page that follow its tables, in Markdown."""
    comparisons, means = {pair: compare(results, *pair) for pair in COMPARISONS}, correlations(out / FILE)
    return "\n" + render(
        "thesis", study=results.study, comparisons=comparisons, means=means, measures=MEASURES, generated=GENERATED
    )
