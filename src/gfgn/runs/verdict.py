"""What a comparison means: whether the graph helps, and which kind of model suffices.

Every statement rests on paired differences of test scores over splits, with 95% intervals. Each side of a difference is
the best model of its kind *on the validation nodes of the same split*: had the choice been made by means over splits,
test nodes of one split, which are validation nodes of another, would have taken part in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

from gfgn.metrics import METRICS
from gfgn.runs.record import RunRecord
from gfgn.runs.results import Results
from gfgn.runs.text import NONE, duration, gain, interval, score, unit
from gfgn.train.catalog import CLASSICAL
from gfgn.train.statistics import Scored, Summary, difference

MAJORITY = "majority"
NAMES = {"features": "features alone", "edges": "edges alone", "graph": "graph models"}


class Floor(NamedTuple):
    """What a model must be shown to be above before anything is said in its favor: its name, and its scores."""

    name: str
    scores: Sequence[Scored]

    @property
    def mean(self) -> float:
        return fmean(each[2] if isinstance(each, tuple) else each.test for each in self.scores)


@dataclass(frozen=True)
class Verdict:
    """Which kind of model suffices.

    Attributes:
        kind: `"graph"` (a graph model is worth it), `"features"` or `"edges"` (one of them alone suffices), `"nothing"`
            (no model is shown to beat guessing), or `"undecided"`.
        models: By kind, the model with the best mean validation score.
        floor: What the rule takes for guessing.
        gaps: Paired differences of test scores by what they compare, such as `"graph − features"` or
            `"graph − guessing"`.
        sentence: The verdict in words.
    """

    kind: str
    models: dict[str, str]
    floor: Floor
    gaps: dict[str, Summary] = field(default_factory=dict)
    sentence: str = ""


def reads(model: str) -> str:
    """What a model learns from: `"labels"`, `"features"`, `"edges"`, or `"graph"`, that is features and edges."""
    if model in CLASSICAL:
        return CLASSICAL[model].reads
    return "features" if model == "mlp" else "graph"


def headline(comparison: Results) -> str:
    """What a comparison means, in one sentence: the verdict, as of `gfgn advise`, if there are models of all kinds or a
    tabular one; there is no model of the edges for multi-label data and for unseen graphs."""
    models = comparison.scored
    if not models:
        yet = "a score on {}: runs diverged or have no test nodes" if comparison.models else "all its runs on {} yet"
        return f"No model has {yet.format(comparison.dataset.name)}."
    kinds, simple = set(map(reads, models)), {reads(model) for model in models if model in CLASSICAL}
    if MAJORITY in models and kinds >= {"features", "graph"} and simple & {"features", "edges"}:
        return judge(comparison).sentence
    best = best_model(comparison, models)
    sentence = f"{best}{', chosen on validation,' if len(models) > 1 else ''} has a test {_scored(comparison, best)}"
    floor = find_floor(comparison)
    shown = floor is None
    if floor is not None and best != MAJORITY:
        gap = difference(comparison.rows[best], floor.scores, comparison.dataset.test_share)
        shown = gap.low > 0
        beats = "above" if shown else "and so not shown to be above"
        sentence += f", {_gain(comparison, gap)} {beats} {_named(comparison, floor)}"
    graph = [model for model in models if reads(model) == "graph"]
    plain = [model for model in models if reads(model) in ("features", "labels")]
    if graph and plain:
        gap = _gap(comparison, graph, plain)
        shown = shown and gap.low > 0 and (floor is None or _gap(comparison, graph, floor).low > 0)
        helps = "helps" if shown else "hurts" if gap.high < 0 else "is not shown to help"
        sentence += f"; the graph {helps}: {_gain(comparison, gap)} over models without it"
        if len(graph) + len(plain) > 2:
            sentence += ", on either side the best on validation in each split"
    return f"{sentence}."


def judge(comparison: Results) -> Verdict:
    """Which kind of model suffices: the simplest that beats guessing and that no other kind is shown to beat.

    1. If the kind with the best validation score does not beat guessing, see `find_floor`, nothing does.
    2. Features alone, or edges alone, suffice if they beat guessing and no other kind is better; if both do, the one
       with the better validation score.
    3. A graph model is worth it if it beats guessing and is better than features alone and than edges alone.
    4. Otherwise something beats guessing, but which kind it takes is undecided.

    "Better" and "beats" mean that the 95% interval of the paired difference lies above 0.
    """
    kinds: dict[str, list[str]] = {}
    for model in comparison.scored:
        kinds.setdefault(reads(model), []).append(model)
    floor = find_floor(comparison)
    if floor is None or "features" not in kinds or "graph" not in kinds:
        got = ", ".join(comparison.scored) or "none"
        diverged = "".join(f"; {number} runs of {model} diverged" for model, number in comparison.diverged.items())
        raise ValueError(
            f"comparison must have the majority class, a model of the features and a graph model, got {got}{diverged}"
        )
    del kinds["labels"]
    models = {kind: best_model(comparison, names) for kind, names in kinds.items()}
    others = kinds | {"guessing": floor}
    pairs = [*itertools.permutations(kinds, 2), *((kind, "guessing") for kind in kinds)]
    gaps = {f"{kind} − {other}": _gap(comparison, kinds[kind], others[other]) for kind, other in pairs}
    order = sorted(kinds, key=lambda kind: fmean(row.val for row in _chosen(comparison, kinds[kind])), reverse=True)
    verdict = Verdict(_decide(order, gaps), models, floor, gaps)
    return replace(verdict, sentence=_sentence(comparison, verdict, order[0]))


def _decide(order: Sequence[str], gaps: dict[str, Summary]) -> str:
    """The verdict on kinds in the order of their validation scores."""

    def better(kind: str, other: str) -> bool:
        return gaps[f"{kind} − {other}"].low > 0

    if math.isnan(gaps["graph − features"].low):
        return "undecided"
    if not better(order[0], "guessing"):
        return "nothing"
    others = {kind: [other for other in order if other != kind] for kind in order}
    for kind in order:
        if kind != "graph" and better(kind, "guessing") and not any(better(other, kind) for other in others[kind]):
            return kind
    worth = better("graph", "guessing") and all(better("graph", other) for other in others["graph"])
    return "graph" if worth else "undecided"


def find_floor(comparison: Results) -> Floor | None:
    """The majority class or, where it scores more on the test nodes, guesses; `None` without the majority class.

    Where classes are equally frequent, the one with the most training nodes has the fewest test nodes, so that a coin
    beats it; and a random ranking has a higher average precision than one rank for all nodes.
    """
    if MAJORITY not in comparison.scored:
        return None
    data, rows = comparison.dataset, comparison.rows[MAJORITY]
    majority = Floor("the majority class", rows)
    if not data.guesses:
        return majority
    name = "a random ranking" if METRICS[data.metric].ranks else "guessing"
    runs = [(row.replica.split, row.replica.seed) for row in rows]
    return max(majority, Floor(name, [(*run, data.guesses[run[0]]) for run in runs]), key=lambda floor: floor.mean)


def best_model(comparison: Results, models: Sequence[str]) -> str:
    """The model with the best mean validation score; the first of equal ones."""
    return max(models, key=lambda model: fmean(row.val for row in comparison.rows[model]))


def _chosen(comparison: Results, models: Sequence[str]) -> list[RunRecord]:
    """For every split, the runs of the model with the best validation score on it."""
    runs: list[RunRecord] = []
    for split in dict.fromkeys(row.replica.split for row in comparison.rows[models[0]]):
        own = [[row for row in comparison.rows[model] if row.replica.split == split] for model in models]
        runs += max(own, key=lambda rows: fmean(row.val for row in rows))
    return runs


def _gap(comparison: Results, models: Sequence[str], others: Sequence[str] | Floor) -> Summary:
    scores = others.scores if isinstance(others, Floor) else _chosen(comparison, others)
    return difference(_chosen(comparison, models), scores, comparison.dataset.test_share)


# --- words ------------------------------------------------------------------------------------------------------------


def _sentence(comparison: Results, verdict: Verdict, first: str) -> str:
    """The verdict in words; `first` is the kind with the best validation score."""
    kind, models, gaps = verdict.kind, verdict.models, verdict.gaps
    if math.isnan(gaps["graph − features"].low):
        scores = "; ".join(f"{model}: test {_scored(comparison, model)}" for model in models.values())
        return f"A single split gives no interval and so no verdict; {scores}."
    floor, above = _named(comparison, verdict.floor), _gain(comparison, gaps[f"{first} − guessing"])
    if kind == "nothing":
        return f"Nothing is shown to beat {floor}: the best on validation, {models[first]}, differs from it by {above}."
    others = [other for other in models if other != kind]
    over = " and ".join(
        f"{_gain(comparison, gaps[f'graph − {other}'])} over {NAMES[other]}" for other in models if other != "graph"
    )
    if kind == "undecided":
        return (
            f"Undecided: {models[first]} has a test {_scored(comparison, models[first])}, {above} above {floor}, but "
            f"graph models are {over}, and nothing simpler is shown to suffice."
        )
    start = f"{models[kind]} has a test {_scored(comparison, models[kind])}"
    if kind == "graph":
        return f"A graph model is worth it: {start}, {over}{_cost(comparison, models['graph'], models['features'])}."
    differ = " and ".join(f"{NAMES[other]} {_gain(comparison, gaps[f'{other} − {kind}'])}" for other in others)
    cost = _cost(comparison, models["graph"], models[kind])
    return f"{NAMES[kind].capitalize()} suffice: {start}; against it, {differ}{cost}."


def _named(comparison: Results, floor: Floor) -> str:
    """`the majority class (35.3%)`."""
    metric = comparison.dataset.metric
    return f"{floor.name} ({score(floor.mean, metric)}{unit(metric)})"


def _scored(comparison: Results, model: str) -> str:
    """`accuracy of 81.3% [79.9, 82.7]`."""
    summary, metric = comparison.summary()[model], comparison.dataset.metric
    text = f"{METRICS[metric].title} of {score(summary.mean, metric)}{unit(metric)}"
    ends = interval(summary, metric)
    return text if ends == NONE else f"{text} {ends}"


def _gain(comparison: Results, gap: Summary) -> str:
    """`+4.2 [+1.1, +7.3] points`."""
    metric = comparison.dataset.metric
    text, points = gain(gap, metric), " points" if unit(metric) else ""
    return f"{score(0.0, metric, sign='+')}{points} (equal in every split)" if text == "equal" else f"{text}{points}"


def _cost(comparison: Results, model: str, other: str) -> str:
    seconds = (fmean(row.seconds for row in comparison.rows[each]) for each in (model, other))
    one, two = (duration(each) if each >= 10 else f"{each:.2g} s" for each in seconds)
    return f"; a fit of {model} takes {one}, one of {other} {two}"
