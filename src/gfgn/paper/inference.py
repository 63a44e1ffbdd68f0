"""Tests of claims: quantities are compared with a bound, and comparisons combine by "all" and "at least so many"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from gfgn.paper.evidence import CAPPED, LEVELS, RAW, Evidence, Missing
from gfgn.paper.pages import number, span
from gfgn.train.statistics import Estimate, best_interval, dataset_ranks, estimate, rank_intervals

FIGURE = 0.25, 0.5  # tolerance of a published figure: this share of it, or this much where that is more
COUNTED = 0.025  # the one-sided p-value below which a single graph is counted as shown


class Decision(NamedTuple):
    """Two p-values of a statement: `holds` is small where it is shown to be true, `fails` where it is shown false."""

    holds: float
    fails: float

    @property
    def p(self) -> float:
        """The two-sided p-value: either could have been shown."""
        return min(1.0, 2 * min(self))


def at_least(count: int, tests: Sequence[Decision]) -> Decision:
    """Tests whether at least `count` of `n` statements are true, however they depend on each other.

    The p-value is `n − count + 1` times the `count`-th smallest (Benjamini and Heller, 2008): the largest for all of
    them, `n` times the smallest for some of them. The opposite is that at least `n − count + 1` are false.
    """
    if not 1 <= count <= len(tests):
        raise ValueError(f"count must be 1 to {len(tests)}, got {count}")
    holds, fails = sorted(test.holds for test in tests), sorted(test.fails for test in tests)
    others = len(tests) - count + 1
    return Decision(min(1.0, others * holds[count - 1]), min(1.0, count * fails[others - 1]))


@dataclass(frozen=True)
class ClaimTest:
    """A test of a claim, as `claims.yaml` describes it.

    Attributes:
        let: The value of every variable, or its values. `model` is compared with `other`, or with itself, at `at` with
            the position or form `than`; with `versus`, the difference of two datasets is tested.
        over: How comparisons combine, from the outside: `all`, `some` or a number of the values of variables.
        of: What is compared, see `QUANTITIES`; or a column of a table of networks.
        above: The bound that a quantity is above if the claim is true.
        near: A figure that it is near instead, within `within` or `FIGURE`.
        show: The comparisons that are written: `all`, the `least`, the least of every `dataset`, the one that speaks
            most clearly `against` the claim, or average `ranks`.
        by: The variables that are told apart; the best of the others is written, with the choice inside its interval.
        words, digits, unit: How it is written.
        like: A test whose comparisons are written in place of these.
    """

    let: Mapping[str, Any]
    over: Sequence[str] = ("all",)
    of: str = "score"
    above: float = 0.0
    near: float | None = None
    within: float | None = None
    show: str = "least"
    by: Sequence[str] | None = None
    words: str = ""
    digits: int = 1
    unit: str = ""
    like: Mapping[str, Any] | None = None


class Compared(NamedTuple):
    """One comparison: the variables, its quantity and test, whether a gain is shown, the baseline's share of runs that
    reach the last epoch, and the ends of its null."""

    binding: Mapping[str, Any]
    estimate: Estimate
    test: Decision
    shown: bool = True
    capped: float = 0.0
    null: tuple[float, float] | None = None


def decide(
    tests: Sequence[ClaimTest], evidence: Evidence, study: str, agree: Sequence[str] = ()
) -> tuple[Decision, str, dict[str, float]]:
    """Tests that all of several tests hold; and what was measured, in words and as numbers. With `agree`, all models
    that have been measured must show the same, each in the place of `model`."""
    decisions, texts, values = list[Decision](), list[str](), dict[str, float]()
    for model in agree or ("",):
        try:
            known = [AppliedTest(test, evidence, study, model) for test in tests]
        except Missing:
            if not decisions:
                raise
            continue
        each = [decision for test in known for decision in test.decisions]
        count = len(each) if len(known) > 1 else known[0].needed(known[0].test.over[0], each)
        decisions.append(at_least(count, each))
        texts.append("without row normalization " * model.endswith(RAW) + "; ".join(test.text() for test in known))
        values |= {test.label(c): c.estimate.mean for test in known for c in test.compared}
    return Decision(*(max(each[side] for each in decisions) for side in (0, 1))), "; ".join(texts), values


class AppliedTest:
    """A test and what the evidence says.

    Attributes:
        decisions: The tests that the outermost quantifier combines.
        compared: All comparisons.
    """

    def __init__(self, test: ClaimTest, evidence: Evidence, study: str, model: str = "") -> None:
        self.test = test = replace(test, let={**test.let, "model": model}) if model else test
        self.evidence, self.study = evidence, study
        self.compared: list[Compared] = []
        if test.near is None:
            self.decisions = self._combine(test.over, {}, test.above)
            return
        margin = test.within or max(abs(test.near) * FIGURE[0], FIGURE[1])
        high, low = (
            at_least(self.needed(test.over[0], each), each)
            for each in (self._combine(test.over, {}, test.near + sign * margin) for sign in (1, -1))
        )
        self.compared = self.compared[len(self.compared) // 2 :]
        # A figure is between two bounds. It cannot be beyond both, so that nothing is corrected.
        self.decisions = [Decision(max(low.holds, high.fails), min(low.fails, high.holds))]

    def needed(self, quantifier: str, tests: Sequence[Decision]) -> int:
        """How many of the tests have to hold."""
        word = quantifier.split()[0]
        return {"all": len(tests), "some": 1}[word] if word.isalpha() else int(word)

    def _combine(self, over: Sequence[str], bound: Mapping[str, Any], above: float) -> list[Decision]:
        """The tests of the values of the outermost variables."""
        tests, names = [], over[0].split()[1:]
        for values in product(*(self.test.let[name] for name in names)):
            binding = {**self.test.let, **bound, **dict(zip(names, values, strict=True))}
            if over[1:]:
                inner = self._combine(over[1:], binding, above)
                tests.append(at_least(self.needed(over[1], inner), inner))
            else:
                self.compared.append(self._compare(binding, above))
                tests.append(self.compared[-1].test)
        return tests

    def _compare(self, b: Mapping[str, Any], above: float) -> Compared:
        quantity: Quantity = QUANTITIES.get(self.test.of, _network)
        gap = quantity(self, b, b.get("dataset", ""))
        if "versus" in b:
            gap -= quantity(self, b, b["versus"])
        if self.test.of == "rank_correlation":
            low, above = (self._statistic(f"null_{end}", b, b["dataset"]).mean for end in ("low", "high"))
            return Compared(b, gap, Decision(gap.p_above(above), gap.p_below(above)), null=(low, above))
        shown, capped = True, 0.0
        if self.test.of in ("score", "lost", "relative"):
            other, at = b.get("other", b["model"]), b.get("than", b.get("end", b.get("at")))
            capped = self.evidence.share_capped(self.study, b["dataset"], other, at)
            if other not in LEVELS:
                shown = capped <= CAPPED
            elif isinstance(at, str):  # another form of the gate
                first = self.evidence.share_capped(self.study, b["dataset"], b["model"], b["at"])
                shown = capped <= max(first, CAPPED)
        return Compared(b, gap, Decision(gap.p_above(above) if shown else 1.0, gap.p_below(above)), shown, capped)

    def _statistic(self, name: str, b: Mapping[str, Any], dataset: str) -> Estimate:
        return self.evidence.network(self.study, dataset, b["model"], name)

    def scores(self) -> dict[str, dict[str, float]]:
        """The rounded scores of all models of the test by dataset."""
        let, mean = self.test.let, self.evidence.mean
        models = [*([let["model"]] if isinstance(let["model"], str) else let["model"]), *let["other"]]
        return {model: {name: round(mean(self.study, name, model), 2) for name in let["dataset"]} for model in models}

    # --- in words -----------------------------------------------------------------------------------------------------

    def label(self, one: Compared) -> str:
        """The variables of a comparison in words."""
        varied = {name for quantifier in self.test.over for name in quantifier.split()[1:]}
        forms = {"model": "", "other": "over ", "dataset": "on ", "versus": "against ", "at": "at "}
        words = [f"{form}{one.binding[name]}" for name, form in forms.items() if name in varied]
        return " ".join(words).removeprefix("on ") or self.test.of

    def text(self) -> str:
        """What was measured."""
        test, words = self.test, f"{self.test.words} " * bool(self.test.words)
        if test.like is not None:
            return AppliedTest(ClaimTest(**test.like), self.evidence, self.study).text()
        if test.show == "ranks":
            return _ranks_text(self)
        chosen = test.over[-1].split()[1:] if test.over[-1].startswith("some") else []
        varied = [name for quantifier in test.over for name in quantifier.split()[1:] if name not in chosen]
        groups: dict[tuple[Any, ...], list[Compared]] = {}
        for each in self.compared:
            groups.setdefault(tuple(each.binding[name] for name in test.by or varied), []).append(each)
        best = [(max(own, key=_mean), own) for own in groups.values()]
        if test.show == "all":
            return words + ", ".join(self._written(*each) for each in best)
        if test.show == "dataset":
            names = dict.fromkeys(one.binding["dataset"] for one, _ in best)
            least = [min((each for each in best if each[0].binding["dataset"] == name), key=_first) for name in names]
            return words + ", ".join(self._written(*each) for each in least)
        if test.show == "against":
            worst = min(best, key=lambda each: (each[0].test.fails, _first(each)))
            won = sum(_first(each) > test.above for each in best)
            return f"{words}in {won} of {len(best)} comparisons, clearest against it {self._written(*worst)}"
        doubtful = sum(not one.shown and _mean(one) > 0 for one in self.compared)
        remark = f"; {doubtful} of {len(best)} are over a baseline whose runs reach the last epoch" * bool(doubtful)
        return f"{words}{self._written(*min(best, key=_first))}{remark}"

    def _written(self, one: Compared, own: Sequence[Compared]) -> str:
        """The best of some comparisons, with its interval that contains the choice, and what makes it doubtful."""
        difference = self.test.of in ("score", "relative", "lost", "rank_correlation") or "versus" in one.binding
        digits, ends = self.test.digits, best_interval([each.estimate for each in own])
        text = f"{number(_mean(one), digits, '+' if difference else '')}{self.test.unit} {span(*ends, digits)}"
        text += f" ({self.label(one)})" if self.label(one) != self.test.of else ""
        if one.null is not None:
            text += f" (permuted {number(one.null[0])} to {number(one.null[1])})"
        if one.shown or self.test.show in ("least", "against") or "other" not in one.binding:
            return text
        return f"{text}; {100 * one.capped:.0f}% of {one.binding['other']}'s runs reach the last epoch allowed"


def _ranks_text(applied: AppliedTest) -> str:
    """Average ranks, with bootstrap intervals, of the models and of the best other one; or how many graphs are won."""
    let, scores = applied.test.let, applied.scores()
    means = {model: fmean(ranks.values()) for model, ranks in dataset_ranks(scores, ties="min").items()}
    models = [let["model"]] if isinstance(let["model"], str) else let["model"]
    if applied.test.of == "rank":
        ends = rank_intervals(scores, ties="min")
        shown = sorted({min(let["other"], key=means.__getitem__), *models}, key=means.__getitem__)
        return ", ".join(f"{model} {means[model]:.1f} {span(*ends[model], 1)}" for model in shown)
    won = [n for n in let["dataset"] if max(scores[m][n] for m in models) == max(own[n] for own in scores.values())]
    ahead, behind = (sum(test[side] < COUNTED for test in applied.decisions) for side in (0, 1))
    text = f"{len(won)} of {len(let['dataset'])} by means ({', '.join(won)})"
    return f"{text}; graph by graph, a level is shown to be the best on {ahead} and a baseline on {behind}"


def _mean(one: Compared) -> float:
    return one.estimate.mean


def _first(each: tuple[Compared, Sequence[Compared]]) -> float:
    return each[0].estimate.mean


# --- quantities -------------------------------------------------------------------------------------------------------


def _score(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """The difference of test scores in points."""
    cells = [(b["model"], b.get("at")), (b.get("other", b["model"]), b.get("than", b.get("at")))]
    return applied.evidence.paired(dataset, *(applied.evidence.cell(applied.study, dataset, *cell) for cell in cells))


def _relative(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """The difference of test scores in % of that of the other model."""
    return applied.evidence.relative(applied.study, dataset, b["model"], b["other"], b.get("at"))


def _lost(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """How many points more the other model loses between the position `start`, or `at`, and `end`."""
    cells = [(b["other"], b.get("start", b["at"])), (b["model"], b["at"])]
    lost = [applied.evidence.lost(applied.study, dataset, *cell, b["end"]) for cell in cells]
    return applied.evidence.paired(dataset, *lost)


def _rank(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """By how much a model's rank is better, over the datasets; ties share the better rank as in the paper."""
    ranks = dataset_ranks(applied.scores(), ties="min")
    return estimate([ranks[b["other"]][name] - rank for name, rank in ranks[b["model"]].items()], 0)


def _width(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """The width of the range of gates; the errors of its two ends are added."""
    low, high = (applied._statistic(name, b, dataset) for name in ("min", "max"))
    return Estimate(high.mean - low.mean, high.error + low.error, min(high.splits, low.splits))


def _percentage(applied: AppliedTest, b: Mapping[str, Any], dataset: str) -> Estimate:
    """The percentage of gates below 0.55."""
    mean, error, splits = applied._statistic("below_055", b, dataset)
    return Estimate(100 * mean, 100 * error, splits)


def _network(applied: AppliedTest, b: Mapping[str, Any], dataset: str | Sequence[str]) -> Estimate:
    """A statistic of gates, averaged over several datasets, whose errors are independent."""
    names = [dataset] if isinstance(dataset, str) else dataset
    each = [applied._statistic(applied.test.of, b, name) for name in names]
    error = sum(one.error**2 for one in each) ** 0.5 / len(each)
    return Estimate(fmean(one.mean for one in each), error, min(one.splits for one in each))


Quantity = Callable[[AppliedTest, Mapping[str, Any], Any], Estimate]
QUANTITIES: dict[str, Quantity] = {
    "score": _score,
    "relative": _relative,
    "lost": _lost,
    "rank": _rank,
    "width": _width,
    "percentage": _percentage,
}
