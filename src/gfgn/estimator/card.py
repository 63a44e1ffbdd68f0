"""The model card: what a saved model is, what it was trained on, and how well it did, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gfgn.literal import one_line, visible
from gfgn.metrics import METRICS
from gfgn.pages import render
from gfgn.runs.text import edges_in_words
from gfgn.train.evaluation import ClassReport


def title_of(metric: str) -> str:
    """The name of a metric; the log loss is not negated here."""
    return "log loss" if metric == "log_loss" else METRICS[metric].title


FIRST = 2  # networks per level, at most, that the choice of a level goes by
EXTREMES = 10  # features shown with the largest and with the smallest gates


def model_card(content: Mapping[str, Any], feature_names: Sequence[str]) -> str:
    """The card of the content of `model.json`, as `templates/card.md.j2` of the reports lays it out."""
    fitted, facts, metric = content["fitted"], content["facts"], content["facts"]["metric"]
    gates = sorted(zip(feature_names, fitted["smoothing_scores_"], strict=True), key=lambda pair: -pair[1])
    few = len(gates) <= 2 * EXTREMES
    text = render(
        "report/templates/card.md.j2",
        **content,
        code=_code,
        title_of=title_of,
        metric=metric,
        validation=natural(metric, fitted["val_score_"]),
        edges=edges_in_words(facts["edges"], content["constructor"].get("directed", True)),
        labelled=labeled_in_words(facts["labelled"], facts.get("splits", 1)),
        class_rows=ClassReport.from_json(facts["classes"]).rows() if "classes" in facts else [],
        caveat=caveat(facts.get("part", "")),
        levels=level_sentence(metric, fitted["level_scores_"], len(fitted["history_"])),
        gates=gates if few else [*gates[:EXTREMES], *gates[-EXTREMES:]],
        ends=0 if few else EXTREMES,
    )
    return visible(text)


def labeled_in_words(parts: Mapping[str, int], splits: int) -> str:
    """The numbers of labeled nodes by part."""
    text = f"{parts['train']:,} training and {parts['val']:,} validation nodes"
    if splits > 1:
        text += " in the split of the first network (each has another)"
    return text + (f", and {parts['test']:,} test nodes that training did not see" if parts.get("test") else "")


def level_sentence(metric: str, scores: Mapping[str, float], networks: int) -> str:
    """The level with its validation score, and whether it was chosen by it or given."""
    of = f" of the first {min(networks, FIRST)} networks" if networks > 1 else ""
    values = ", ".join(f"{level} {in_unit(metric, natural(metric, score))}" for level, score in scores.items())
    chosen = "The level was chosen by the" if len(scores) > 1 else "The level was given;"
    return f"{chosen} validation {title_of(metric)}{of}: {values}."


def caveat(part: str) -> str:
    """What to say of scores on validation nodes."""
    if part != "validation":
        return ""
    return " There are no test nodes: training was stopped by these nodes, so that the scores are optimistic."


def natural(metric: str, score: float) -> float:
    """A score as it is shown: the log loss is not negated."""
    return -score if metric == "log_loss" else score


def in_unit(metric: str, value: float) -> str:
    """A score as text: in percent, or the log loss."""
    return f"{value:.3f}" if metric == "log_loss" else f"{100 * value:.1f}%"


def _code(name: object) -> str:
    """A name as code in Markdown, where nothing in it is markup, in a table too."""
    return f"`{one_line(str(name)).replace('`', 'ʼ').replace('|', chr(92) + '|')}`"
