"""What a comparison means: whether the graph helps, and which kind of model suffices.

Every statement rests on paired differences of test scores over splits, with 95% intervals. Each side of a difference is
the best model of its kind *on the validation nodes of the same split*: had the choice been made by means over splits,
test nodes of one split, which are validation nodes of another, would have taken part in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from gfgn.runs.comparison import Comparison
from gfgn.runs.record import Row
from gfgn.runs.text import METRICS, duration, gain, interval, score, unit
from gfgn.train.catalog import CLASSICAL
from gfgn.train.statistics import Summary, difference

MAJORITY = "majority"
GUESSABLE = ("accuracy", "balanced_accuracy", "macro_f1")  # guessing among C classes scores 1 / C, or less
NAMES = {"features": "features alone", "edges": "edges alone", "graph": "graph models"}


@dataclass(frozen=True)
class Verdict:
    """Which kind of model suffices.

    Attributes:
        kind: `"graph"` (a graph model is worth it), `"features"` or `"edges"` (one of them alone suffices), `"nothing"`
            (no model beats the majority class), or `"undecided"` (a single split gives no interval).
        models: By kind, the model with the best mean validation score.
        gaps: Paired differences of test scores by what they compare, such as `"graph − features"`.
        sentence: The verdict in words.
    """

    kind: str
    models: dict[str, str]
    gaps: dict[str, Summary] = field(default_factory=dict)
    sentence: str = ""


def reads(model: str) -> str:
    """What a model learns from: `"labels"`, `"features"`, `"edges"`, or `"graph"`, that is features and edges."""
    if model in CLASSICAL:
        return CLASSICAL[model].reads
    return "features" if model == "mlp" else "graph"


def headline(comparison: Comparison) -> str:
    """What a comparison means, in one sentence."""
    models = comparison.scored
    if not models:
        yet = "a score on {}: runs diverged or have no test nodes" if comparison.models else "all its runs on {} yet"
        return f"No model has {yet.format(comparison.dataset.name)}."
    best = best_model(comparison, models)
    sentence = f"{best}, chosen on validation, has a test {_scored(comparison, best)}"
    others = [model for model in models if model != MAJORITY]
    if MAJORITY in models and others:
        gap = _gap(comparison, others, [MAJORITY])
        beats = "above" if gap.low > 0 else "and so not shown to be above"
        sentence += f", {_gain(comparison, gap)} {beats} the majority class"
    graph = [model for model in models if reads(model) == "graph"]
    plain = [model for model in models if reads(model) in ("features", "labels")]
    if graph and plain:
        gap = _gap(comparison, graph, plain)
        helps = "hurts" if gap.high < 0 else "is not shown to help"
        sentence += f"; the graph {'helps' if gap.low > 0 else helps}: {_gain(comparison, gap)} over models without it"
    return f"{sentence}."


def judge(comparison: Comparison) -> Verdict:
    """Which kind of model suffices: the simplest that no other kind is shown to beat.

    1. If the kind with the best validation score does not beat the majority class (or guessing, where that is better),
       nothing does.
    2. Features alone, or edges alone, suffice if no other kind is better than it; if both do, the one with the better
       validation score.
    3. Otherwise a graph model is worth it: it is better than either.

    "Better" means that the 95% interval of the paired difference lies above 0.
    """
    kinds: dict[str, list[str]] = {}
    for model in comparison.scored:
        kinds.setdefault(reads(model), []).append(model)
    if MAJORITY not in comparison.scored or "features" not in kinds or "graph" not in kinds:
        got = ", ".join(comparison.scored) or "none"
        diverged = "".join(f"; {number} runs of {model} diverged" for model, number in comparison.diverged.items())
        raise ValueError(
            f"comparison must have the majority class, a model of the features and a graph model, got {got}{diverged}"
        )
    del kinds["labels"]
    models = {kind: best_model(comparison, names) for kind, names in kinds.items()}
    gaps = {
        f"{kind} − {other}": _gap(comparison, names, kinds.get(other, [MAJORITY]))
        for kind, names in kinds.items()
        for other in (*kinds, "majority")
        if other != kind
    }
    order = sorted(kinds, key=lambda kind: fmean(row.val for row in _chosen(comparison, kinds[kind])), reverse=True)
    enough = [
        kind
        for kind in order
        if kind != "graph" and not any(gaps[f"{other} − {kind}"].low > 0 for other in kinds if other != kind)
    ]
    kind = enough[0] if enough else "graph"
    if math.isnan(gaps["graph − features"].low):
        kind = "undecided"
    elif not gaps[f"{order[0]} − majority"].low > 0:
        kind = "nothing"
    return Verdict(kind, models, gaps, _sentence(comparison, kind, order[0], models, gaps))


def best_model(comparison: Comparison, models: Sequence[str]) -> str:
    """The model with the best mean validation score; the first of equal ones."""
    return max(models, key=lambda model: fmean(row.val for row in comparison.rows[model]))


def seconds_per_fit(comparison: Comparison, model: str) -> float:
    """Mean wall-clock time of a run of the chosen configuration."""
    return fmean(row.seconds for row in comparison.rows[model])


def _chosen(comparison: Comparison, models: Sequence[str]) -> list[Row]:
    """For every split, the runs of the model with the best validation score on it."""
    runs: list[Row] = []
    for split in dict.fromkeys(row.replica.split for row in comparison.rows[models[0]]):
        own = [[row for row in comparison.rows[model] if row.replica.split == split] for model in models]
        runs += max(own, key=lambda rows: fmean(row.val for row in rows))
    return runs


def _gap(comparison: Comparison, models: Sequence[str], others: Sequence[str]) -> Summary:
    return difference(_scores(comparison, models), _scores(comparison, others), comparison.dataset.test_share)


def _scores(comparison: Comparison, models: Sequence[str]) -> list[tuple[int, int, float]]:
    """Split, seed and test score of the chosen runs. The majority class counts as at least as good as guessing: if all
    classes are equally frequent, the class with the most training nodes has the fewest test nodes."""
    data = comparison.dataset
    least = 1 / data.num_classes if list(models) == [MAJORITY] and data.metric in GUESSABLE else -math.inf
    return [(row.replica.split, row.replica.seed, max(row.test, least)) for row in _chosen(comparison, models)]


# --- words ------------------------------------------------------------------------------------------------------------


def _sentence(comparison: Comparison, kind: str, first: str, models: dict[str, str], gaps: dict[str, Summary]) -> str:
    if kind == "undecided":
        scores = "; ".join(f"{model}: test {_scored(comparison, model)}" for model in models.values())
        return f"A single split gives no interval and so no verdict; {scores}."
    if kind == "nothing":
        gap = gaps[f"{first} − majority"]
        best = f"the best on validation, {models[first]}, differs from it by {_gain(comparison, gap)}"
        return f"Nothing is shown to beat the majority class: {best}."
    start = f"{models[kind]} has a test {_scored(comparison, models[kind])}"
    others = [other for other in models if other != kind]
    if kind == "graph":
        better = " and ".join(f"{_gain(comparison, gaps[f'graph − {other}'])} over {NAMES[other]}" for other in others)
        return f"A graph model is worth it: {start}, {better}{_cost(comparison, models['graph'], models['features'])}."
    differ = " and ".join(f"{NAMES[other]} {_gain(comparison, gaps[f'{other} − {kind}'])}" for other in others)
    cost = _cost(comparison, models["graph"], models[kind])
    return f"{NAMES[kind].capitalize()} suffice: {start}; against it, {differ}{cost}."


def _scored(comparison: Comparison, model: str) -> str:
    """`accuracy of 81.3% [79.9, 82.7]`."""
    summary, metric = comparison.summary()[model], comparison.dataset.metric
    text = f"{METRICS[metric]} of {score(summary.mean, metric)}{unit(metric)}"
    return text if math.isnan(summary.low) else f"{text} {interval(summary, metric)}"


def _gain(comparison: Comparison, gap: Summary) -> str:
    """`+4.2 [+1.1, +7.3] points`."""
    metric = comparison.dataset.metric
    return f"{gain(gap, metric)}{' points' if unit(metric) else ''}"


def _cost(comparison: Comparison, model: str, other: str) -> str:
    seconds = (seconds_per_fit(comparison, each) for each in (model, other))
    one, two = (duration(each) if each >= 10 else f"{each:.2g} s" for each in seconds)
    return f"; a fit of {model} takes {one}, one of {other} {two}"
