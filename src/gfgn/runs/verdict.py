"""What a comparison means, in one sentence."""

from __future__ import annotations

from gfgn.runs.comparison import Comparison
from gfgn.runs.text import gain, percent, unit


def headline(comparison: Comparison) -> str:
    """The best model and the gain of the best GFGN over the best baseline."""
    summary, metric = comparison.summary(), comparison.dataset.metric
    if not summary:
        return f"No model has all its runs on {comparison.dataset.name} yet."
    best = max(summary, key=lambda model: summary[model].mean)
    sentence = f"{best} has the best mean test score, {percent(summary[best], metric)}{unit(metric)}"
    levels = {model: value for model in summary if (value := comparison.gain(model)) is not None}
    if not levels:
        return f"{sentence}."
    points = " points" if unit(metric) else ""
    level = max(levels, key=lambda model: levels[model].mean)
    return f"{sentence}; {level} against {comparison.best_baseline}: {gain(levels[level], metric)}{points}."
