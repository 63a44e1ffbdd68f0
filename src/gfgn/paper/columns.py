"""Models on Cornell as downloaded and corrected, the two columns of a study: ranks and differences to the MLP.

The MLP does not see the links, so that a difference to it is what links add.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau, rankdata, spearmanr

from gfgn.paper.studies import load_study, study_names
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_files import RUNS
from gfgn.runs.table import read_runs
from gfgn.train.statistics import Summary, difference, split_means, summarize

GRAPHS = ("cornell", "cornell-corrected")
STUDIES = ("cornell", "table1-open")  # studies with both graphs, those there are
BASELINE = "mlp"
LEAST = 4  # models for a ranking

Runs = list[tuple[int, int, float]]  # split, seed and test score in %


class Place(NamedTuple):
    """A model on one graph: score in %, rank (1 is the best), and difference to the MLP in points."""

    score: Summary
    rank: float
    gap: Summary


class Columns(NamedTuple):
    """What a study shows about the models that have all runs on both graphs."""

    study: str
    seeds: int
    models: dict[str, tuple[Place, Place]]  # as downloaded and corrected, in the order of the ranks on the latter
    missing: list[str]
    spearman: float  # rank correlations of the two columns
    kendall: float
    halves: tuple[float, float]  # of each graph with itself, see `halved_correlation`


def read_columns(folder: Path) -> list[Columns]:
    """The columns of every study that has both, from the folders of studies in `folder`."""
    found = []
    for name in STUDIES:
        if name in study_names() and (folder / name / RUNS).is_file():
            study = load_study(name)
            if set(GRAPHS) <= set(study.datasets):
                found.append(compare_columns(Results(study, read_runs(folder / name / RUNS))))
    return [columns for columns in found if columns is not None]


def compare_columns(results: Results) -> Columns | None:
    """Compares the columns of a study; `None` unless `LEAST` models, the MLP among them, have all runs on both."""
    study = results.study
    usable = [m for m in study.models if all(results[Cell(graph, m)].mean is not None for graph in GRAPHS)]
    if BASELINE not in usable or len(usable) < LEAST:
        return None
    runs = [{model: _runs(results, Cell(graph, model)) for model in usable} for graph in GRAPHS]
    shares = [results.test_share(Cell(graph, BASELINE)) for graph in GRAPHS]
    first, second = (_places(column, share) for column, share in zip(runs, shares, strict=True))
    order = sorted(usable, key=lambda model: second[model].rank)
    means = [[column[model].score.mean for model in order] for column in (first, second)]
    return Columns(
        study.name,
        study.seeds,
        {model: (first[model], second[model]) for model in order},
        [model for model in study.models if model not in usable],
        float(spearmanr(means[0], means[1]).statistic),
        float(kendalltau(means[0], means[1]).statistic),
        (halved_correlation(runs[0]), halved_correlation(runs[1])),
    )


def _runs(results: Results, cell: Cell) -> Runs:
    return [(row.replica.split, row.replica.seed, 100 * row.test) for row in results[cell].rows]


def _places(runs: Mapping[str, Runs], share: float) -> dict[str, Place]:
    scores = {model: summarize(own, share) for model, own in runs.items()}
    ranks = rankdata([-round(score.mean, 8) for score in scores.values()]).tolist()
    return {
        model: Place(score, rank, difference(runs[model], runs[BASELINE], share))
        for (model, score), rank in zip(scores.items(), ranks, strict=True)
    }


def halved_correlation(runs: Mapping[str, Runs]) -> float:
    """Spearman's correlation of the ranking by one half of the splits of a graph with that by the other half, averaged
    over all ways to halve them: how well a ranking agrees with itself."""
    by_split = [split_means(own) for own in runs.values()]
    splits, values = sorted(by_split[0]), []
    for half in itertools.combinations(splits, len(splits) // 2):
        rest = [split for split in splits if split not in half]
        first, second = (_means(by_split, part) for part in (half, rest))
        values.append(float(spearmanr(first, second).statistic))
    return float(np.mean(values))


def _means(by_split: Sequence[Mapping[int, float]], splits: Sequence[int]) -> list[float]:
    return [float(np.mean([own[split] for split in splits])) for own in by_split]
