"""Ranks of models on Cornell as downloaded and corrected. Models are compared with the MLP, which does not see the
links: a difference to it is what links add."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import kendalltau, rankdata, spearmanr

from gfgn.paper.pages import title_of
from gfgn.report.style import FAINT, PAGE_WIDTH, model_style
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Gap, Results
from gfgn.runs.study import Cell
from gfgn.train.statistics import Summary, split_means, summarize

COLUMNS = ("cornell", "cornell-corrected")
STUDIES = ("cornell", "table1-open")  # studies with both graphs
BASELINE = "mlp"
LEAST = 4  # models for a ranking


class Place(NamedTuple):
    """A model on one graph: score in %, rank (1 is the best), and difference to the MLP in points."""

    score: Summary
    rank: float
    gap: Gap


class Comparison(NamedTuple):
    """What a study shows about the models that have all runs on both graphs."""

    seeds: int
    models: dict[str, tuple[Place, Place]]  # as downloaded and corrected, in the order of the ranks on the latter
    missing: list[str]
    spearman: float  # rank correlations of the two columns
    kendall: float
    halves: list[float]  # of each graph with itself, see `halved_correlation`


def compare_columns(results: Results) -> Comparison | None:
    """Compares the columns of a study; `None` unless `LEAST` models, the MLP among them, have all runs on both."""
    study = results.study
    usable = [m for m in study.models if all(results[Cell(graph, m)].mean is not None for graph in COLUMNS)]
    if BASELINE not in usable or len(usable) < LEAST:
        return None
    places, halves = [], []
    for graph in COLUMNS:
        share = results.test_share(Cell(graph, BASELINE))
        runs = {m: [(r.split, r.seed, 100 * r.test) for r in results[Cell(graph, m)].rows] for m in usable}
        scores = {model: summarize(own, share) for model, own in runs.items()}
        gaps = {m: (results.gap(Cell(graph, m), Cell(graph, BASELINE)) or Gap(0.0)).points for m in usable}
        ranks = dict(zip(usable, rankdata([-round(score.mean, 8) for score in scores.values()]).tolist(), strict=True))
        places.append({m: Place(scores[m], ranks[m], gaps[m]) for m in usable})
        halves.append(halved_correlation([split_means(own) for own in runs.values()]))
    order = sorted(usable, key=lambda model: places[1][model].rank)
    first, second = ([column[model].score.mean for model in order] for column in places)
    models = {model: (places[0][model], places[1][model]) for model in order}
    missing = [model for model in study.models if model not in usable]
    spearman, kendall = (float(each(first, second).statistic) for each in (spearmanr, kendalltau))
    return Comparison(study.seeds, models, missing, spearman, kendall, halves)


def halved_correlation(scores: Sequence[Mapping[int, float]]) -> float:
    """Spearman's correlation of the ranking of models by one half of the splits of a graph with that by the other half,
    averaged over all ways to halve them: how well a ranking agrees with itself."""
    table = np.array([[own[split] for split in sorted(own)] for own in scores])
    splits, values = range(table.shape[1]), []
    for half in itertools.combinations(splits, len(splits) // 2):
        rest = [split for split in splits if split not in half]
        values.append(float(spearmanr(table[:, half].mean(axis=1), table[:, rest].mean(axis=1)).statistic))
    return float(np.mean(values))


def draw_ranks(compared: Comparison) -> Figure:
    """One line per model from its rank as downloaded to its rank as corrected; 1 is on top."""
    ranks = {model: (first.rank, second.rank) for model, (first, second) in compared.models.items()}
    figure = Figure(figsize=(0.62 * PAGE_WIDTH, 0.8 + 0.19 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    for model, both in ranks.items():
        named = is_gfgn(model) or model == BASELINE
        color, width = (model_style(model)["color"], 1.8) if named else (FAINT, 0.9)
        axes.plot([0, 1], both, "o-", color=color, linewidth=width, markersize=3.5)
    for x, align, shift in ((0, "right", -6), (1, "left", 6)):
        for rank in sorted({both[x] for both in ranks.values()}):
            words = ", ".join(title_of(model) for model, both in ranks.items() if both[x] == rank)
            axes.annotate(words, (x, rank), (shift, 0), textcoords="offset points", ha=align, va="center", fontsize=7)
    axes.set(xlim=(-0.75, 1.75), ylim=(len(ranks) + 0.6, 0.4), yticks=[])
    axes.set_xticks([0, 1], ["Cornell as downloaded", "corrected"])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure
