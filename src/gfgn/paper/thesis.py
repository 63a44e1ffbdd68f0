"""The verdict on the paper's thesis: what the study `thesis` and the analysis `mechanism` say, by a stated rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gfgn.paper.mechanism import DATASETS, FILE, MODELS, Correlation, Mean, mean_correlation, read_correlations
from gfgn.paper.outputs import markdown_table
from gfgn.paper.titles import title_of
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.train.statistics import difference, holm, paired_test

FORMS = ("dimension", "scalar", "constant")
GENERATED = "dimensions"  # the graph whose truth is known; it is no evidence about real graphs
COMPARISONS = (("dimension", "scalar"), ("scalar", "constant"))
SIGNIFICANT = 0.05
MARGIN = 0.5  # points: a difference that is surely below it is no gain, as in the claims
GAIN, LOSS, NONE, UNDECIDED, OPEN = "gain", "loss", "no gain", "undecided", "not measured yet"
HOLDS, FAILS = "holds", "does not hold"


class Finding(NamedTuple):
    """A difference on one graph at one level, in points, its 95% interval, Holm's p-value, and what it amounts to."""

    dataset: str
    model: str
    kind: str
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    def __str__(self) -> str:
        if self.kind == OPEN:
            return OPEN
        return f"{_signed(self.mean)} [{_signed(self.low)}, {_signed(self.high)}] {self.kind}"


def compare(results: Results, first: str, second: str) -> list[Finding]:
    """The differences of two forms of the gate, paired and corrected for the overlap of splits, on every graph and at
    every level; p-values are adjusted over the graphs of a level."""
    findings = []
    for model in results.study.models:
        measured, missing = [], []
        for dataset in results.study.datasets:
            one, other = (results[Cell(dataset, model, form)] for form in (first, second))
            if one.mean is None or other.mean is None:
                missing.append(Finding(dataset, model, OPEN))
                continue
            gap = difference(one.rows, other.rows, one.test_share)
            p = paired_test(one.rows, other.rows, one.test_share).t_p
            values = (100 * gap.mean, 100 * gap.low, 100 * gap.high)
            measured.append(Finding(dataset, model, UNDECIDED, *values, p))
        adjusted = holm([each.p for each in measured])
        judged = [_judge(each._replace(p=p)) for each, p in zip(measured, adjusted, strict=True)]
        findings += sorted([*judged, *missing], key=lambda each: results.study.datasets.index(each.dataset))
    return findings


def _judge(finding: Finding) -> Finding:
    if finding.p < SIGNIFICANT:
        return finding._replace(kind=GAIN if finding.mean > 0 else LOSS)
    return finding._replace(kind=NONE if finding.high < MARGIN else UNDECIDED)


def decide(kinds: Iterable[str]) -> str:
    """The verdict on "a gain in most cases": it holds if more than half are gains, and it does not hold if they are not
    even with all undecided and missing ones."""
    counts = Counter(kinds)
    total = counts.total()
    if 2 * counts[GAIN] > total:
        return HOLDS
    if 2 * (counts[GAIN] + counts[UNDECIDED] + counts[OPEN]) <= total:
        return FAILS
    return OPEN if counts[OPEN] else UNDECIDED


# --- the mechanism ----------------------------------------------------------------------------------------------------


def judge_mechanism(correlations: Sequence[Correlation], measure: str) -> dict[tuple[str, str], tuple[Mean, str]]:
    """The mean correlation and what it amounts to, by dataset and model; p-values are adjusted over the graphs of a
    level. A gain is a correlation that is significantly positive."""
    cells: dict[tuple[str, str], tuple[Mean, str]] = {}
    for model in MODELS:
        own = [each for each in correlations if each.model == model]
        names = [name for name in DATASETS if any(each.dataset == name for each in own)]
        means = [mean_correlation([each for each in own if each.dataset == name], measure) for name in names]
        for name, mean, p in zip(names, means, holm([mean.p for mean in means]), strict=True):
            kind = UNDECIDED if not p < SIGNIFICANT else GAIN if mean.mean > 0 else LOSS
            cells[name, model] = mean._replace(p=p), kind
    return cells


# --- the page ---------------------------------------------------------------------------------------------------------


def sections(results: Results, out: Path) -> str:
    """The sections of the page of the study `thesis` that follow its tables, in Markdown; they end with the verdict.
    Empty for a study of another kind with that name."""
    if results.study.vary is None or results.study.vary.values != FORMS:
        return ""
    correlations = read_correlations(out / FILE)
    comparisons = {pair: compare(results, *pair) for pair in COMPARISONS}
    parts = [_comparison(results, *pair, findings) for pair, findings in comparisons.items()]
    parts += [_mechanism(correlations), _rule(), _verdict(comparisons, correlations)]
    return "".join(f"\n{part}\n" for part in parts)


def _comparison(results: Results, first: str, second: str, findings: Sequence[Finding]) -> str:
    at = {(each.dataset, each.model): str(each) for each in findings}
    rows = [[title_of(name), *(at[name, model] for model in results.study.models)] for name in results.study.datasets]
    return f"""## {first} − {second}

Points, with the 95% interval, paired over splits after averaging the seeds of a split, and corrected for the overlap of
splits. {GAIN.capitalize()} and {LOSS}: p < {SIGNIFICANT} after Holm's adjustment over the graphs of a level.
{NONE.capitalize()}: the interval ends below {MARGIN:g} points.

{markdown_table(["", *map(title_of, results.study.models)], rows)}"""


MEASURES = {
    "rank_correlation": "the paper's fᵀLf",
    "centered": "without the mean",
    "label": "label part",
    "truth": "truth",
}


def _mechanism(correlations: Sequence[Correlation]) -> str:
    judged = {measure: judge_mechanism(correlations, measure) for measure in MEASURES}
    rows = []
    for dataset, model in judged["rank_correlation"]:
        cells = [judged[measure][dataset, model][0] for measure in MEASURES]
        texts = [f"{_signed(mean.mean)}{'*' if mean.p < SIGNIFICANT else ''}" for mean in cells]
        texts[-1] = texts[-1] if cells[-1].networks else "–"
        rows.append([title_of(dataset), title_of(model), *texts, f"±{cells[0].half:.2f}", str(cells[0].networks)])
    heads = ["", "level", *MEASURES.values(), "null", "networks"]
    table = markdown_table(heads, rows) if rows else f"{OPEN.capitalize()}: `gfgn reproduce mechanism`."
    return f"""## Gates and smoothness

Section 4.4 of the paper says that dimensions in which neighbors are alike get high scores, and others low ones. The
table has Spearman's rank correlation of gate and smoothness over the dimensions of the first layer, averaged over
networks trained on ten splits with the chosen configuration of one gate per dimension ([{FILE}]({FILE}),
`gfgn reproduce mechanism`). The smoothness of a dimension, a column `f` of `HW`, is −`fᵀLf` for `‖f‖ = 1`, as in the
paper. A column that is nearly constant is smooth by that measure whatever the graph; *without the mean* measures what
differs between nodes, *label part* the means of the classes in it. *Truth* is the share of a dimension's squared
weights that belong to features that are smooth by construction. Dimensions whose weights have vanished are left out.
*Null*: the mean of permuted gates is within this range in 95% of cases. An asterisk marks p < {SIGNIFICANT} after
Holm's adjustment over the graphs of a level.

{table}"""


def _rule() -> str:
    return f"""## Rule of the verdict

A statement “A is better than B” {HOLDS} if more than half of the pairs of a real graph and a level show a gain. It
{FAILS} if gains would not be more than half even if every undecided or missing pair were one. Otherwise it is
{UNDECIDED}, or {OPEN} where runs are missing. The same rule decides on “gates rise with smoothness”, with significantly
positive correlations as gains and all others that are measured as none. The graph `{GENERATED}`, which is generated to
need a gate per dimension, is reported and not counted. The [claims](../claims/README.md) ask for more, level by level: a
gain of half a point on five of nine graphs, and a positive correlation on all of them."""


def _verdict(comparisons: dict[tuple[str, str], list[Finding]], correlations: Sequence[Correlation]) -> str:
    better, learned = (_sentence(findings) for findings in comparisons.values())
    return f"""## Verdict

That one gate per dimension is better than one learned gate for all dimensions, the thesis of the paper, {better}.
That one learned gate is better than a constant that validation chooses {learned}.
{_mechanism_sentence(correlations)}"""


def _sentence(findings: Sequence[Finding]) -> str:
    real = [each for each in findings if each.dataset != GENERATED]
    counts = Counter(each.kind for each in real)
    words = [f"{counts[kind]} {kind}" for kind in (GAIN, LOSS, NONE, UNDECIDED, OPEN) if counts[kind]]
    verdict = decide(each.kind for each in real)
    means = [each.mean for each in real if each.kind != OPEN]
    mean = f", a mean of {_signed(fmean(means))} points" if means else ""
    made = [each for each in findings if each.dataset == GENERATED and each.kind != OPEN]
    levels = ", ".join(f"{_signed(each.mean)} ({each.model.removeprefix('gfgn-')}, {each.kind})" for each in made)
    known = f"; on the generated graph {levels}" if made else ""
    linked = f"is {verdict}" if verdict in (UNDECIDED, OPEN) else verdict
    return f"{linked} ({', '.join(words)} of {len(real)} pairs of a real graph and a level{mean}{known})"


def _mechanism_sentence(correlations: Sequence[Correlation]) -> str:
    texts = []
    for measure in ("rank_correlation", "centered"):
        cells = judge_mechanism(correlations, measure)
        kinds = [kind for (name, _), (_, kind) in cells.items() if name != GENERATED]
        pairs = (len(DATASETS) - 1) * len(MODELS)
        counts = Counter(kinds)
        verdict = decide([kind if kind == GAIN else NONE for kind in kinds] + [OPEN] * (pairs - len(kinds)))
        linked = f"is {verdict}" if verdict in (UNDECIDED, OPEN) else verdict
        signs = f"positive in {counts[GAIN]}, negative in {counts[LOSS]}"
        texts.append(f"{linked} ({signs} of {len(kinds)} measured pairs of {pairs})")
    return (
        f"The mechanism, that gates rise with the smoothness of a dimension, {texts[0]} by the paper's measure and "
        f"{texts[1]} once a dimension's mean over all nodes is removed."
    )


def _signed(value: float) -> str:
    return "0.00" if float(f"{value:.2f}") == 0 else f"{value:+.2f}".replace("-", "−")
