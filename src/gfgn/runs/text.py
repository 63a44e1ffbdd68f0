"""Numbers as text, the same in the terminal, in the HTML report and on the pages of studies."""

from __future__ import annotations

import math

from gfgn.train.statistics import Summary, in_percent

METRICS = {"accuracy": "accuracy", "roc_auc": "ROC AUC", "micro_f1": "micro-F1"}


def score(value: float, metric: str) -> str:
    """A score in percent."""
    return f"{100 * value:.1f}"


def percent(summary: Summary, metric: str = "accuracy") -> str:
    """Mean ± standard deviation, in percent."""
    return in_percent(summary.mean, summary.std, summary.runs)


def interval(summary: Summary, metric: str = "accuracy") -> str:
    """The 95% interval of the mean, in percent."""
    return f"[{100 * summary.low:.1f}, {100 * summary.high:.1f}]"


def gain(difference: Summary, metric: str = "accuracy") -> str:
    """A difference in percentage points with its 95% interval."""
    return f"{_signed(difference.mean)} [{_signed(difference.low)}, {_signed(difference.high)}]"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value with three digits; empty if there is none."""
    if value is None or math.isnan(value):
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """`12 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
