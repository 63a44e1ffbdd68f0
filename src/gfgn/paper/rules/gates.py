"""Rules about learned gates, the paper's smoothing scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from gfgn.paper.evidence import RAW, Evidence
from gfgn.paper.inference import Decision, above, agree, all_of, between
from gfgn.paper.rules.finding import (
    ASSORTATIVE,
    NINE,
    PAIR_SCORED,
    SCORED,
    Compared,
    Finding,
    above_least,
    all_counted,
    all_hold,
    compare_groups,
    interval,
    mean_interval,
    number,
    optional,
)
from gfgn.train.statistics import Estimate


def score_range(evidence: Evidence, dataset: str, low: float, high: float, tolerance: float = 0.05) -> Finding:
    """Both ends of the range of scores are near the published ones."""

    def near(model: str) -> Decision:
        pairs = [(evidence.gate(end, dataset, model), value) for end, value in (("min", low), ("max", high))]
        return all_of([_near(gate, value, tolerance) for gate, value in pairs])

    def ends(model: str) -> str:
        return " to ".join(mean_interval(evidence.gate(end, dataset, model), 2) for end in ("min", "max"))

    values = {end: evidence.gate(end, dataset).mean for end in ("min", "max")}
    return _with_raw(near, ends, values)


def low_scores(evidence: Evidence, dataset: str, published: float, tolerance: float) -> Finding:
    """The percentage of scores below 0.55 is near the published one."""

    def below(model: str) -> Estimate:
        mean, error, splits = evidence.gate("below_055", dataset, model)
        return Estimate(100 * mean, 100 * error, splits)

    return _with_raw(
        lambda model: _near(below(model), published, tolerance),
        lambda model: f"{mean_interval(below(model))}% below",
        {"below": below("gfgn-graph").mean},
    )


def _with_raw(test: Callable[[str], Decision], text: Callable[[str], str], values: Mapping[str, float]) -> Finding:
    """Judges a claim with row-normalized and, if measured, with raw features: the paper does not say which it has."""
    tests, raw = [test("gfgn-graph")], f"gfgn-graph{RAW}"

    def without() -> str:
        tests.append(test(raw))
        return f"; without row normalization {text(raw)}"

    measured = f"{text('gfgn-graph')}{optional(without)}"
    return Finding(agree(tests), measured, values)


def _near(gate: Estimate, value: float, tolerance: float) -> Decision:
    return between(above(gate, value - tolerance), ~above(gate, value + tolerance))


def scores_vary(evidence: Evidence, least: float = 0.05) -> Finding:
    return above_least(_widths(evidence, "gfgn-graph", (*SCORED, *ASSORTATIVE)), least, "the narrowest range is", 2)


def vary_more_on_disassortative(evidence: Evidence) -> Finding:
    compared = _spread_pairs(evidence, "gfgn-graph", SCORED, ASSORTATIVE)
    return all_counted(compared, "the standard deviation is larger", 2)


def smaller_on_disassortative(evidence: Evidence) -> Finding:
    low, high = (_mean_score(evidence, "gfgn-graph", names) for names in (SCORED, ASSORTATIVE))
    gap = high - low
    text = f"mean score {low.mean:.2f} against {high.mean:.2f}, difference {interval(gap, 2)}"
    return Finding(above(gap), text, {"low": low.mean, "high": high.mean})


def scores_adapt(evidence: Evidence, least: float = 0.01) -> Finding:
    boxes = _boxes(evidence, "neighbor", *SCORED, *ASSORTATIVE) | _boxes(evidence, "pair", *PAIR_SCORED)
    return above_least(boxes, least, "the smallest mean range is", 3)


def boxes_by_features(evidence: Evidence) -> Finding:
    compared: dict[str, Compared] = {}
    for level, others in (("neighbor", ("texas", "cora", "citeseer")), ("pair", ("texas", "cora"))):
        low, high = _boxes(evidence, level, "blogcatalog", "flickr"), _boxes(evidence, level, *others)
        compared |= compare_groups(high, low)
    return all_counted(compared, "the range is smaller", 3)


def trends(evidence: Evidence, level: str, least: float = 0.05) -> Finding:
    """A level shows what the paper observes of GFGN-graph: scores vary, more and lower on disassortative graphs."""
    model, names = f"gfgn-{level}", PAIR_SCORED if level == "pair" else (*SCORED, *ASSORTATIVE)
    first, second = ([name for name in names if name in group] for group in (SCORED, ASSORTATIVE))
    widths = {name: Compared(width, above(width, least)) for name, width in _widths(evidence, model, names).items()}
    spreads = _spread_pairs(evidence, model, first, second)
    means = _mean_score(evidence, model, second) - _mean_score(evidence, model, first)
    wide, more = (sum(each.test.holds < each.test.fails for each in own.values()) for own in (widths, spreads))
    text = (
        f"range wider than {least:g} on {wide} of {len(widths)} graphs; larger standard deviation in {more} of "
        f"{len(spreads)} pairs of graphs; mean score lower by {mean_interval(means, 2)}"
    )
    tests = [each.test for each in (*widths.values(), *spreads.values())]
    return Finding(all_of([*tests, above(means)]), text, {"wide": wide, "more": more, "lower": means.mean})


def gates_follow_smoothness(evidence: Evidence, level: str) -> Finding:
    """On each graph, gates and the smoothness of their dimensions correlate more than permuted gates do."""
    model = f"gfgn-{level}"
    compared, texts, values = {}, [], {}
    for name in NINE:
        gap, low, high = evidence.follows(name, model)
        compared[name] = Compared(gap, above(gap, high))
        texts.append(f"{name} {interval(gap, 2)} (permuted {number(low, 2)} to {number(high, 2)})")
        values[name] = gap.mean
    return Finding(all_hold(compared), f"rank correlation: {', '.join(texts)}", values)


def _widths(evidence: Evidence, model: str, names: Iterable[str]) -> dict[str, Estimate]:
    """Returns the mean width of the range of scores; the errors of its two ends are added."""
    widths = {}
    for name in names:
        low, high = (evidence.gate(end, name, model) for end in ("min", "max"))
        widths[name] = Estimate(high.mean - low.mean, high.error + low.error, min(high.splits, low.splits))
    return widths


def _spread_pairs(evidence: Evidence, model: str, first: Iterable[str], second: Iterable[str]) -> dict[str, Compared]:
    return compare_groups(
        *({name: evidence.gate("spread", name, model) for name in names} for names in (first, second))
    )


def _mean_score(evidence: Evidence, model: str, names: Sequence[str]) -> Estimate:
    """Returns the mean score, averaged over graphs, whose errors are independent."""
    gates = [evidence.gate("mean", name, model) for name in names]
    error = sum(gate.error**2 for gate in gates) ** 0.5 / len(gates)
    return Estimate(fmean(gate.mean for gate in gates), error, min(gate.splits for gate in gates))


def _boxes(evidence: Evidence, level: str, *datasets: str) -> dict[str, Estimate]:
    return {f"{level} {name}": evidence.gate("box", name, f"gfgn-{level}") for name in datasets}
