"""Numbers as text, the same in the terminal, in the HTML report and on the pages of studies."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gfgn.metrics import METRICS
from gfgn.train.statistics import Summary

NONE = "–"  # where there is no value


def unit(metric: str) -> str:
    """What follows a score: scores are shown in percent, except for the log loss."""
    return "%" if METRICS[metric].percent else ""


def scale(metric: str) -> float:
    """What a score is multiplied with to be shown."""
    return 100.0 if unit(metric) else 1.0


def heading(metric: str) -> str:
    """The name of a metric with its unit."""
    return f"{METRICS[metric].title}, %" if unit(metric) else METRICS[metric].title


def score(value: float, metric: str, digits: int | None = None, sign: str = "") -> str:
    """A score in percent, or the log loss as it is; with one digit, or three for the log loss."""
    if math.isnan(value):
        return NONE
    digits = digits if digits is not None else 1 if unit(metric) else 3
    return f"{scale(metric) * value:{sign}.{digits}f}".replace("-", "−")


def mean_and_std(mean: float, std: float, runs: int, metric: str, digits: int | None = None) -> str:
    """Mean ± standard deviation; the mean only for a single run."""
    return score(mean, metric, digits) + (f" ± {score(std, metric, digits)}" if runs > 1 else "")


def percent(summary: Summary, metric: str) -> str:
    """Mean ± standard deviation."""
    return mean_and_std(summary.mean, summary.std, summary.runs, metric)


def divergence(model: str, diverged: int, runs: int) -> str:
    """`gcn: 2 of 4 runs diverged (no epoch with a finite loss), so it has no score`."""
    return f"{model}: {diverged:,} of {count(runs, 'run')} diverged (no epoch with a finite loss), so it has no score"


def bounds(summary: Summary, metric: str) -> tuple[float, float]:
    """The 95% interval of a mean score without what lies outside of the possible scores; NaN if there is none."""
    lowest, highest = (0.0, 1.0) if unit(metric) else (-math.inf, 0.0)
    return max(summary.low, lowest), min(summary.high, highest)


def interval(summary: Summary, metric: str, digits: int | None = None) -> str:
    """The 95% interval of a mean score; a dash if there is none, with a single split."""
    low, high = (score(bound, metric, digits) for bound in bounds(summary, metric))
    return NONE if math.isnan(summary.low) else f"[{low}, {high}]"


def gain(difference: Summary, metric: str) -> str:
    """A difference in percentage points, or of the log loss, with its 95% interval if there is one."""
    mean, low, high = (score(value, metric, sign="+") for value in (difference.mean, difference.low, difference.high))
    return mean if math.isnan(difference.low) else f"{mean} [{low}, {high}]"


def p_value(value: float | None) -> str:
    """A p-value with three digits; empty if there is none."""
    if value is None or math.isnan(value):
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def short_names(models: Iterable[str], longest: int = 24) -> dict[str, str]:
    """The names of models in tables: of a long `package.module:Class` the class, if no other model is called so."""
    short = {model: model.rpartition(":")[2] if len(model) > longest else model for model in models}
    names = list(short.values())
    return {model: name if names.count(name) == 1 else model for model, name in short.items()}


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def edges_in_words(number: int, directed: bool | None) -> str:
    """The edges of a graph that stores an undirected one in both directions; `directed` is `None` if not known."""
    if directed is None:
        return f"{number:,} edges, those of an undirected graph counted twice"
    return f"{number:,} directed edges" if directed else count(number // 2, "edge")


def duration(seconds: float) -> str:
    """`12 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
