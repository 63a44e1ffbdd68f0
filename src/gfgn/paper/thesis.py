"""The page of the study `thesis`: differences of the forms of a gate, and gates against the smoothness of dimensions.
What follows for the thesis of the paper is a matter of `gfgn.paper.claims`."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from gfgn.paper.evidence import LEVELS
from gfgn.paper.mechanism import DATASETS, FILE, Mean, mean_correlation
from gfgn.paper.pages import group_by, read_csv, render
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.train.statistics import Summary, difference, holm

COMPARISONS = (("dimension", "scalar"), ("scalar", "constant"))
GENERATED = "dimensions"  # the graph whose truth is known; it is no evidence about real graphs
MEASURES = {
    "rank_correlation": "the paper's fᵀLf",
    "centered": "without the mean",
    "label": "label part",
    "truth": "truth",
}


def compare(results: Results, first: str, second: str) -> dict[tuple[str, str], Summary]:
    """The differences of two forms of the gate in points by dataset and model, paired over splits."""
    gaps = {}
    for name in results.study.datasets:
        for model in results.study.models:
            one, other = (results[Cell(name, model, form)] for form in (first, second))
            if one.mean is not None and other.mean is not None:
                gap = difference(one.rows, other.rows, one.test_share)
                gaps[name, model] = Summary(100 * gap.mean, 100 * gap.std, 100 * gap.low, 100 * gap.high, gap.runs)
    return gaps


def sections(results: Results, out: Path) -> str:
    """The sections of the page that follow its tables, in Markdown."""
    cells, means = group_by(read_csv(out / FILE), "dataset", "model"), dict[tuple[str, str, str], Mean]()
    for measure in MEASURES:
        for model in LEVELS:  # p-values are adjusted over the graphs of a level
            known = {name: mean_correlation(cells[name, model], measure) for name in DATASETS if (name, model) in cells}
            adjusted = holm([mean.p for mean in known.values()])
            means |= {
                (name, model, measure): mean._replace(p=p)
                for (name, mean), p in zip(known.items(), adjusted, strict=True)
            }
    comparisons = {pair: compare(results, *pair) for pair in COMPARISONS}
    averages = {
        pair: fmean(gap.mean for (name, _), gap in gaps.items() if name != GENERATED) if gaps else None
        for pair, gaps in comparisons.items()
    }
    real = [key for key in means if key[0] != GENERATED]
    signs = {
        measure: [
            sum(means[key].p < 0.05 and sign * means[key].mean > 0 for key in real if key[2] == measure)
            for sign in (1, -1)
        ]
        for measure in MEASURES
    }
    return "\n" + render(
        "thesis", study=results.study, comparisons=comparisons, averages=averages, cells=list(cells), means=means,
        measures=MEASURES, signs=signs, pairs=len({key[:2] for key in real}),
    )  # fmt: skip
