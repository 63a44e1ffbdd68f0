"""Tests of claims: quantities are compared with a bound, and comparisons combine by "all" and "at least so many"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from gfgn.paper.evidence import CAPPED, LEVELS, RAW, Draws, Evidence, Missing
from gfgn.paper.pages import number, span
from gfgn.train.statistics import Estimate, best_interval, dataset_ranks, estimate, rank_intervals

Binding: TypeAlias = Mapping[str, Any]  # the value of every variable
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


def needed(quantifier: str, count: int) -> int:
    """How many of `count` statements have to be true: `all`, `some` or a number of them."""
    word = quantifier.split()[0]
    return count if word == "all" else 1 if word == "some" else int(word)


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

    let: Binding
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
    like: Binding | None = None


class Compared(NamedTuple):
    """One comparison: its variables, its quantity, and a test for every bound; whether a gain is shown, the baseline's
    share of runs that reach the last epoch, and the ends of its null."""

    binding: Binding
    estimate: Estimate
    tests: list[Decision]
    shown: bool = True
    capped: float = 0.0
    null: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        """The quantity, the mean over splits."""
        return self.estimate.mean


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
        decisions.append(at_least(len(each) if len(known) > 1 else needed(tests[0].over[0], len(each)), each))
        texts.append("without row normalization " * model.endswith(RAW) + "; ".join(test.text() for test in known))
        values |= {test.label(c): c.mean for test in known for c in test.compared}
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
        margin = 0.0 if test.near is None else test.within or max(abs(test.near) * FIGURE[0], FIGURE[1])
        self.bounds = [test.above] if test.near is None else [test.near + margin, test.near - margin]
        by_bound = self._combine(test.over, {})
        self.decisions = by_bound[0]
        if test.near is not None:
            high, low = (at_least(needed(test.over[0], len(each)), each) for each in by_bound)
            # A figure is between two bounds. It cannot be beyond both, so that nothing is corrected.
            self.decisions = [Decision(max(low.holds, high.fails), min(low.fails, high.holds))]

    def _combine(self, over: Sequence[str], bound: Binding) -> list[list[Decision]]:
        """By bound, the tests of the values of the outermost variables."""
        rows, names = list[list[Decision]](), over[0].split()[1:]
        for values in product(*(self.test.let[name] for name in names)):
            binding = {**self.test.let, **bound, **dict(zip(names, values, strict=True))}
            if over[1:]:
                rows.append([at_least(needed(over[1], len(each)), each) for each in self._combine(over[1:], binding)])
            else:
                self.compared.append(self._compare(binding))
                rows.append(self.compared[-1].tests)
        return [list(each) for each in zip(*rows, strict=True)]

    def _compare(self, b: Binding) -> Compared:
        quantity = QUANTITIES.get(self.test.of, _network)
        gap, bounds = quantity(self, b, b.get("dataset", "")), self.bounds
        if "versus" in b:
            gap -= quantity(self, b, b["versus"])
        if self.test.of == "rank_correlation":
            low, high = (self.network(f"null_{end}", b, b["dataset"]).mean for end in ("low", "high"))
            return Compared(b, gap, [Decision(gap.p_above(high), gap.p_below(high))], null=(low, high))
        shown, capped = True, 0.0
        if self.test.of in ("score", "lost", "relative"):
            other, at = b.get("other", b["model"]), b.get("than", b.get("end", b.get("at")))
            capped = self.evidence.share_capped(self.study, b["dataset"], other, at)
            if other not in LEVELS:
                shown = capped <= CAPPED
            elif isinstance(at, str):  # another form of the gate
                first = self.evidence.share_capped(self.study, b["dataset"], b["model"], b["at"])
                shown = capped <= max(first, CAPPED)
        tests = [Decision(gap.p_above(bound) if shown else 1.0, gap.p_below(bound)) for bound in bounds]
        return Compared(b, gap, tests, shown, capped)

    def network(self, name: str, b: Binding, dataset: str) -> Estimate:
        """A statistic of the gates of trained networks."""
        return self.evidence.network(self.study, dataset, b["model"], name)

    def models(self) -> Sequence[str]:
        """The models in the place of `model`."""
        model = self.test.let["model"]
        return [model] if isinstance(model, str) else model

    def scores(self) -> dict[str, dict[str, float]]:
        """The rounded scores of all models of the test by dataset."""
        let, mean = self.test.let, self.evidence.mean
        models = [*self.models(), *let["other"]]
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
            return self._ranks()
        chosen = test.over[-1].split()[1:] if test.over[-1].startswith("some") else []
        varied = [name for quantifier in test.over for name in quantifier.split()[1:] if name not in chosen]
        groups: dict[tuple[Any, ...], list[Compared]] = {}
        for each in self.compared:
            groups.setdefault(tuple(each.binding[name] for name in test.by or varied), []).append(each)
        best = [(max(group, key=attrgetter("mean")), group) for group in groups.values()]
        remark = ""
        if test.show == "dataset":
            names = dict.fromkeys(one.binding["dataset"] for one, _ in best)
            best = [min((each for each in best if each[0].binding["dataset"] == name), key=_first) for name in names]
        elif test.show == "against":
            words += (
                f"in {sum(_first(each) > test.above for each in best)} of {len(best)} comparisons, clearest against it "
            )
            best = [min(best, key=lambda each: (each[0].tests[0].fails, _first(each)))]
        elif test.show == "least":
            doubtful = sum(not one.shown and one.mean > 0 for one in self.compared)
            remark = f"; {doubtful} of {len(best)} are over a baseline whose runs reach the last epoch" * bool(doubtful)
            best = [min(best, key=_first)]
        return words + ", ".join(self._written(*each) for each in best) + remark

    def _written(self, one: Compared, group: Sequence[Compared]) -> str:
        """The best of some comparisons, with its interval that contains the choice, and what makes it doubtful."""
        signed = self.test.of in ("score", "relative", "lost", "rank_correlation") or "versus" in one.binding
        digits, ends = self.test.digits, best_interval([each.estimate for each in group])
        text = f"{number(one.mean, digits, '+' if signed else '')}{self.test.unit} {span(*ends, digits)}"
        text += f" ({self.label(one)})" if self.label(one) != self.test.of else ""
        if one.null is not None:
            text += f" (permuted {number(one.null[0])} to {number(one.null[1])})"
        if one.shown or self.test.show in ("least", "against") or "other" not in one.binding:
            return text
        return f"{text}; {100 * one.capped:.0f}% of {one.binding['other']}'s runs reach the last epoch allowed"

    def _ranks(self) -> str:
        """Average ranks, with bootstrap intervals, of the models and the best other one; or how many graphs are won."""
        let, scores, models = self.test.let, self.scores(), self.models()
        if self.test.of == "rank":
            means = {model: fmean(ranks.values()) for model, ranks in dataset_ranks(scores, ties="min").items()}
            ends = rank_intervals(scores, ties="min")
            shown = sorted({min(let["other"], key=means.__getitem__), *models}, key=means.__getitem__)
            return ", ".join(f"{model} {means[model]:.1f} {span(*ends[model], 1)}" for model in shown)
        tops = {name: max(own[name] for own in scores.values()) for name in let["dataset"]}
        won = [name for name, top in tops.items() if max(scores[model][name] for model in models) == top]
        ahead, behind = (sum(test[side] < COUNTED for test in self.decisions) for side in (0, 1))
        text = f"{len(won)} of {len(tops)} by means ({', '.join(won)})"
        return f"{text}; graph by graph, a level is shown to be the best on {ahead} and a baseline on {behind}"


def _first(each: tuple[Compared, Sequence[Compared]]) -> float:
    return each[0].mean


# --- quantities -------------------------------------------------------------------------------------------------------


def _score(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """The difference of test scores in points."""
    cells = [(b["model"], b.get("at")), (b.get("other", b["model"]), b.get("than", b.get("at")))]
    return applied.evidence.paired(dataset, *(applied.evidence.cell(applied.study, dataset, *cell) for cell in cells))


def _relative(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """The difference of test scores in % of that of the other model, whose error counts as well."""
    other, own = (applied.evidence.cell(applied.study, dataset, b[name], b.get("at")) for name in ("other", "model"))
    base, mean = (fmean(score for runs in draws for _, _, score in runs) for draws in (other, own))
    scaled = [[(split, seed, mean / base * score) for split, seed, score in runs] for runs in other]
    error = applied.evidence.paired(dataset, own, scaled)
    return Estimate(100 * (mean / base - 1), 100 * error.error / base, error.splits)


def _lost(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """How many points more the other model loses between the position `start`, or `at`, and `end`."""
    cells, lost = [(b["other"], b.get("start", b["at"])), (b["model"], b["at"])], list[Draws]()
    for model, start in cells:
        first, last = (applied.evidence.cell(applied.study, dataset, model, at) for at in (start, b["end"]))
        before = [{run[:2]: run[2] for run in runs} for runs in first] * (len(last) if len(first) == 1 else 1)
        lost.append(
            [
                [(*run[:2], scores[run[:2]] - run[2]) for run in runs if run[:2] in scores]
                for scores, runs in zip(before, last, strict=True)
            ]
        )
    return applied.evidence.paired(dataset, *lost)


def _rank(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """By how much a model's rank is better, over the datasets; ties share the better rank as in the paper."""
    ranks = dataset_ranks(applied.scores(), ties="min")
    return estimate([ranks[b["other"]][name] - rank for name, rank in ranks[b["model"]].items()], 0)


def _width(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """The width of the range of gates; the errors of its two ends are added."""
    low, high = (applied.network(name, b, dataset) for name in ("min", "max"))
    return Estimate(high.mean - low.mean, high.error + low.error, min(high.splits, low.splits))


def _percentage(applied: AppliedTest, b: Binding, dataset: str) -> Estimate:
    """The percentage of gates below 0.55."""
    mean, error, splits = applied.network("below_055", b, dataset)
    return Estimate(100 * mean, 100 * error, splits)


def _network(applied: AppliedTest, b: Binding, dataset: str | Sequence[str]) -> Estimate:
    """A statistic of gates, averaged over several datasets, whose errors are independent."""
    names = [dataset] if isinstance(dataset, str) else dataset
    each = [applied.network(applied.test.of, b, name) for name in names]
    error = sum(one.error**2 for one in each) ** 0.5 / len(each)
    return Estimate(fmean(one.mean for one in each), error, min(one.splits for one in each))


QUANTITIES: dict[str, Callable[[AppliedTest, Binding, Any], Estimate]] = {
    "score": _score,
    "relative": _relative,
    "lost": _lost,
    "rank": _rank,
    "width": _width,
    "percentage": _percentage,
}
