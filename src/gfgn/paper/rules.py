"""The rules that the claims are judged by; `claims.yaml` states what each rule requires.

A rule takes the evidence and the arguments of the claim. It raises `Missing` if something has not been measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from gfgn.paper.evidence import LEVELS, RAW, Evidence, Missing
from gfgn.paper.inference import Decision, above, agree, all_of, any_of, at_least, between
from gfgn.train.statistics import Estimate, average_ranks, best_interval, dataset_ranks, estimate, rank_intervals

DISASSORTATIVE = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "actor")
ASSORTATIVE = ("cora", "citeseer", "pubmed")
NINE = (*DISASSORTATIVE, *ASSORTATIVE)
SCORED = DISASSORTATIVE[:-1]  # the disassortative graphs in the paper's figures of scores
PAIR_SCORED = ("blogcatalog", "flickr", "texas", "cora")  # the graphs in the paper's figure of GFGN-pair
LAMBDA_DATASETS = ("blogcatalog", "cora")
BASELINES = ("gcn", "gat", "sgc", "arma", "ggnn", "appnp", "geom-gcn")
WITHOUT_GEOM = BASELINES[:-1]  # the baselines of the studies of noise and ogbn-arxiv
PPI_BASELINES = ("graphsage", "vr-gcn", "gaan", "gat", "geniepath", "graphsaint")
ROUNDING = 0.05  # largest rounding error of a figure published with one decimal


class Finding(NamedTuple):
    """What a rule found.

    Attributes:
        result: The p-values of a claim that is a test; of any other, whether it holds, `None` if that is undecided.
        measured: The measured figure as text, with the interval of the comparison that decides.
        values: Its numbers.
    """

    result: Decision | bool | None
    measured: str
    values: Mapping[str, float]


class Compared(NamedTuple):
    """A difference, and the test of whether it is above a value."""

    gap: Estimate
    test: Decision


Comparisons = Mapping[str, Compared]  # by what is compared


# --- tables -----------------------------------------------------------------------------------------------------------


def gain(
    evidence: Evidence, study: str, dataset: str, published: float, at: float | None = None, relative: bool = False
) -> Finding:
    """The gain of the best level over GCN is the published one, up to a quarter of it or 0.5."""
    measure = evidence.relative_gap if relative else evidence.gap
    gaps = {level: measure(study, dataset, level, "gcn", at) for level in LEVELS}
    trained, margin = evidence.is_trained(study, dataset, "gcn", at), max(abs(published) / 4, 0.5)
    larger, too_large = (
        any_of([above(gap, published + sign * margin, shown=trained) for gap in gaps.values()]) for sign in (-1, 1)
    )
    best = max(gaps, key=lambda level: gaps[level].mean)
    low, high = best_interval(list(gaps.values()))
    unit = "%" if relative else ""
    text = f"{_signed(gaps[best].mean)}{unit} [{_number(low)}, {_number(high)}] ({best})"
    text += _cap(evidence, study, dataset, at)
    values = {"mean": gaps[best].mean, "low": low, "high": high, "published": published}
    return Finding(between(larger, ~too_large), text, values)


def _cap(evidence: Evidence, study: str, dataset: str, at: float | None = None, model: str = "gcn") -> str:
    """Says that the runs of a baseline end at the last epoch allowed, if more than 1% do."""
    if evidence.is_trained(study, dataset, model, at):
        return ""
    return f"; {100 * evidence.capped[study, dataset, model, at]:.0f}% of {model}'s runs reach the last epoch allowed"


def levels_lead_ranks(evidence: Evidence) -> Finding:
    ranks = _ranks(evidence, (*BASELINES, *LEVELS))
    finding = _leads(evidence, ranks, [(level, other) for level in LEVELS for other in BASELINES])

    def with_mlp() -> str:
        ranked = average_ranks(_scores(evidence, (*ranks, "mlp")), ties="min")
        return f" (ranked together with an MLP: {_list(_pick(ranked, (*LEVELS, 'mlp')))})"

    return finding._replace(measured=finding.measured + _optional(with_mlp))


def neighbor_ranks_first(evidence: Evidence) -> Finding:
    ranks = _ranks(evidence, (*BASELINES, *LEVELS))
    return _leads(evidence, ranks, [("gfgn-neighbor", other) for other in ranks if other != "gfgn-neighbor"])


def _leads(evidence: Evidence, ranks: dict[str, dict[str, float]], pairs: Sequence[tuple[str, str]]) -> Finding:
    """Each first model of a pair has a better average rank than the second; graphs are the sample."""
    gaps = [estimate([ranks[two][name] - ranks[one][name] for name in ranks[two]], 0) for one, two in pairs]
    means = {model: fmean(own.values()) for model, own in ranks.items()}
    ends = rank_intervals(_scores(evidence, ranks), ties="min")
    leader = min((two for _, two in pairs), key=means.__getitem__)  # the rest of the table is on the page of the study
    shown = sorted({leader, *(one for one, _ in pairs)}, key=means.__getitem__)
    text = ", ".join(f"{model} {means[model]:.1f} [{ends[model][0]:.1f}, {ends[model][1]:.1f}]" for model in shown)
    return Finding(all_of([above(gap) for gap in gaps]), text, means)


def _ranks(evidence: Evidence, models: Sequence[str]) -> dict[str, dict[str, float]]:
    """Returns ranks on each of the nine graphs, ties sharing the better rank as in the paper."""
    return dataset_ranks(_scores(evidence, models), ties="min")


def _scores(evidence: Evidence, models: Iterable[str]) -> dict[str, dict[str, float]]:
    """Returns the scores of Table 1, of Geom-GCN only where it was measured: two published scores are missing."""

    def names(model: str) -> list[str]:
        return [name for name in NINE if model != "geom-gcn" or ("table1", name, model, None) in evidence.runs]

    if not names("geom-gcn"):
        raise Missing("table1: geom-gcn")
    return {model: {name: round(evidence.mean("table1", name, model), 2) for name in names(model)} for model in models}


def best_on_most(evidence: Evidence, needed: int = 7) -> Finding:
    def best(others: Sequence[str]) -> list[str]:
        scores = _scores(evidence, (*LEVELS, *others))
        top = {name: max(own.get(name, 0.0) for own in scores.values()) for name in NINE}
        return [name for name in NINE if any(scores[level][name] == top[name] for level in LEVELS)]

    tests = [_best_of_all(evidence, name) for name in NINE]
    ahead, behind = (sum(test[side] < 0.025 for test in tests) for side in (0, 1))
    won = best(BASELINES)

    def with_mlp() -> str:
        also = best((*BASELINES, "mlp"))
        return f"; {len(also)} of 9 with an MLP in the table"

    text = f"{len(won)} of 9 by means" + f" ({', '.join(won)})" * (0 < len(won) < len(NINE)) + _optional(with_mlp)
    text += f"; graph by graph, a level is shown to be the best on {ahead} and a baseline on {behind}"
    return Finding(at_least(needed, tests), text, {"best": len(won), "shown best": ahead, "shown behind": behind})


def _best_of_all(evidence: Evidence, dataset: str) -> Decision:
    """Tests whether some level is ahead of every baseline of Table 1 that was measured on a graph."""
    others = [other for other in BASELINES if other != "geom-gcn" or ("table1", dataset, other, None) in evidence.runs]
    return any_of([_all(_ahead(evidence, "table1", [dataset], [level], others)) for level in LEVELS])


def larger_on_disassortative(evidence: Evidence) -> Finding:
    compared = {}
    for level in LEVELS:
        gains = {name: evidence.relative_gap("table1", name, level, "gcn") for name in NINE}
        for name in DISASSORTATIVE:
            for other in ASSORTATIVE:
                gap = gains[name] - gains[other]
                shown = evidence.is_trained("table1", name, "gcn")
                compared[f"{level}, {name} against {other}"] = Compared(gap, above(gap, shown=shown))
    return _all_finding(evidence, compared, "gains differ by at least", "%")


def does_not_hurt(evidence: Evidence, margin: float = 0.5) -> Finding:
    return _within(evidence, dict.fromkeys(ASSORTATIVE, ("gcn",)), margin)


def comparable(evidence: Evidence, margin: float = 2.0) -> Finding:
    return _within(evidence, dict.fromkeys(ASSORTATIVE, BASELINES), margin)


def _within(evidence: Evidence, others: Mapping[str, Sequence[str]], margin: float) -> Finding:
    """On each graph, some level is at most `margin` points behind each of the others."""
    tests, texts, values = [], [], {}
    for name, models in others.items():
        worst: tuple[float, str] = (-1.0, "")
        for other in models:
            gaps = {level: evidence.gap("table1", name, level, other) for level in LEVELS}
            shown = evidence.is_trained("table1", name, other)
            tests.append(any_of([above(gap, -margin, shown=shown) for gap in gaps.values()]))
            best, (low, high) = max(gaps.values(), key=lambda gap: gap.mean), best_interval(list(gaps.values()))
            against = f" against {other}" if len(models) > 1 else ""
            text = f"{name} {_signed(best.mean)} [{_number(low)}, {_number(high)}]{against}"
            worst = max(worst, (-best.mean + 1e3, text + _cap(evidence, "table1", name, model=other)))
            values[f"{name}{against}"] = best.mean
        texts.append(worst[1])
    return Finding(all_of(tests), ", ".join(texts), values)


def beats_local_aggregation(evidence: Evidence) -> Finding:
    return _all_finding(evidence, _ahead(evidence, "table1", DISASSORTATIVE, LEVELS, ("gcn", "gat", "sgc")))


def graph_leads_wisconsin(evidence: Evidence) -> Finding:
    return _every(_ahead(evidence, "table1", ["wisconsin"], ["gfgn-graph"], LEVELS[1:]))


def pair_leads_flickr(evidence: Evidence) -> Finding:
    return _every(_ahead(evidence, "table1", ["flickr"], ["gfgn-pair"], LEVELS[:-1]))


def leads_arxiv(evidence: Evidence) -> Finding:
    return _all_finding(evidence, _ahead(evidence, "arxiv", ["ogbn-arxiv"], LEVELS, WITHOUT_GEOM))


def neighbor_leads_ppi(evidence: Evidence, margin: float = 0.3) -> Finding:
    compared = _ahead(evidence, "table2", ["ppi"], ["gfgn-neighbor"], PPI_BASELINES, by=margin)
    return _all_finding(evidence, compared | _ahead(evidence, "table2", ["ppi"], ["gfgn-neighbor"], LEVELS[::2]))


def competitive_on_ppi(evidence: Evidence, margin: float = 1.0) -> Finding:
    return _all_finding(evidence, _ahead(evidence, "table2", ["ppi"], LEVELS, PPI_BASELINES, by=-margin))


def published_arithmetic(evidence: Evidence, of: str) -> Finding:
    """The published ranks or gains follow from the published scores."""
    from gfgn.paper.studies import load_study

    published = load_study("table1").published
    if of == "ranks":
        return _recomputed(average_ranks(published.scores, ties="min"), published.ranks, "")
    facts = {fact.dataset: fact.value for name in ("table1", "arxiv") for fact in load_study(name).published.facts}
    gains = {}
    for name in facts:
        base, *levels = (published.scores[model][name] for model in ("gcn", *LEVELS))
        gains[name] = 100 * (max(levels) - base) / base
    return _recomputed(gains, facts, "%")


def _recomputed(values: dict[str, float], published: Mapping[str, float], unit: str) -> Finding:
    wrong = [name for name, value in published.items() if abs(values[name] - value) > ROUNDING + 1e-9]
    text = ", ".join(f"{name} {values[name]:.1f}{unit} (published {published[name]:.1f}{unit})" for name in wrong)
    return Finding(not wrong, f"recomputed: {text}" if wrong else f"all {len(published)} agree", values)


# --- noise and λ ------------------------------------------------------------------------------------------------------


def leads_under_noise(evidence: Evidence) -> Finding:
    ratios = {name: [at for at in evidence.values("noise", name, "gcn") if at > 0] for name in ASSORTATIVE}
    cells = [(name, at) for name, own in ratios.items() for at in own]
    if not cells:
        raise Missing("noise: runs with random edges")
    compared: dict[str, Compared] = {}
    for name, at in cells:
        compared |= _ahead(evidence, "noise", [name], LEVELS, WITHOUT_GEOM, at=at)
    won = sum(each.gap.mean > 0 for each in compared.values())

    def mlp() -> str:
        means = [evidence.means("noise", name, (*LEVELS, "mlp"), at) for name, at in cells]
        ahead = sum(max(mean, key=mean.__getitem__) == "mlp" for mean in means)
        return f"; an MLP is ahead of the best level in {ahead} of {len(means)} cases"

    text = f"ahead in {won} of {len(compared)} comparisons, {_weakest(compared)}{_optional(mlp)}"
    return Finding(_all(compared), text, {"won": won, "of": len(compared)})


def loses_less(evidence: Evidence) -> Finding:
    """From no random edges to as many as real ones, each level loses fewer points than each baseline."""
    compared: dict[str, Compared] = {}
    losses: dict[str, float] = {}
    for name in ASSORTATIVE:
        lost = {model: evidence.lost("noise", name, model, 0.0, 1.0) for model in (*LEVELS, *WITHOUT_GEOM)}
        losses |= {f"{name} {model}": fmean(run[2] for run in runs) for model, runs in lost.items()}
        for level in LEVELS:
            for other in WITHOUT_GEOM:
                gap = evidence.paired(name, lost[other], lost[level])
                shown = evidence.is_trained("noise", name, other, 1.0)
                compared[f"{level} against {other} on {name}"] = Compared(gap, above(gap, shown=shown))
    fewer = sum(each.gap.mean > 0 for each in compared.values())
    gcn = [each.gap.mean > 0 for name, each in compared.items() if "against gcn" in name]
    text = f"fewer in {fewer} of {len(compared)} comparisons ({sum(gcn)} of {len(gcn)} with GCN), {_weakest(compared)}"
    return Finding(_all(compared), text, losses)


def ahead_of_mlp(evidence: Evidence) -> Finding:
    """On each graph, each level is ahead of an MLP at some λ above 0."""
    tests, texts, values = [], [], {}
    for name in LAMBDA_DATASETS:
        base, shown = evidence.cell("lambda", name, "mlp"), evidence.is_trained("lambda", name, "mlp")
        for level in LEVELS:
            positive = [at for at in evidence.values("lambda", name, level) if at > 0]
            gaps = [evidence.paired(name, evidence.cell("lambda", name, level, at), base) for at in positive]
            tests.append(any_of([above(gap, shown=shown) for gap in gaps]))
            (low, high), mean = best_interval(gaps), max(gap.mean for gap in gaps)
            values[f"{name} {level}"] = mean
            texts.append((mean, f"{_signed(mean)} [{_number(low)}, {_number(high)}] ({level} on {name})"))
    return Finding(all_of(tests), f"by at least {min(texts)[1]}", values)


def large_lambda_hurts(evidence: Evidence) -> Finding:
    """On each graph, some level is worse at the largest λ than at a smaller one."""
    gaps = _drops(evidence)
    tests = [any_of([above(gap) for level in LEVELS for gap in gaps[name, level]]) for name in LAMBDA_DATASETS]
    return Finding(all_of(tests), *_drop_text(gaps))


def neighbor_most_stable(evidence: Evidence) -> Finding:
    """On each graph, GFGN-neighbor loses fewer points than each other level from its best λ to the largest."""
    tests = []
    for name in LAMBDA_DATASETS:
        lost = {level: _lost(evidence, name, level) for level in LEVELS}
        for other in ("gfgn-graph", "gfgn-pair"):
            pairs = [
                all_of([above(evidence.paired(name, theirs, ours)) for ours in lost["gfgn-neighbor"]])
                for theirs in lost[other]
            ]
            tests.append(any_of(pairs))  # one λ of the other level from which it loses more, whatever λ is best here
    return Finding(all_of(tests), *_drop_text(_drops(evidence)))


def _lost(evidence: Evidence, name: str, level: str) -> list[Sequence[tuple[int, int, float]]]:
    """Returns the points lost from each λ to the largest."""
    *values, largest = evidence.values("lambda", name, level)
    if not values:
        raise Missing(f"lambda: {level} on {name} at two values or more")
    return [evidence.lost("lambda", name, level, at, largest) for at in values]


def _drops(evidence: Evidence) -> dict[tuple[str, str], list[Estimate]]:
    drops = {}
    for name in LAMBDA_DATASETS:
        for level in LEVELS:
            *values, largest = evidence.values("lambda", name, level)
            cells = [evidence.cell("lambda", name, level, at) for at in (*values, largest)]
            drops[name, level] = [evidence.paired(name, cell, cells[-1]) for cell in cells[:-1]]
    return drops


def _drop_text(gaps: Mapping[tuple[str, str], list[Estimate]]) -> tuple[str, dict[str, float]]:
    texts, values = [], {}
    for (name, level), own in gaps.items():
        (low, high), mean = best_interval(own), max(gap.mean for gap in own)
        values[f"{name} {level}"] = mean
        texts.append(f"{name} {level.removeprefix('gfgn-')} {mean:.1f} [{_number(low)}, {_number(high)}]")
    return f"points lost: {', '.join(texts)}", values


# --- smoothing scores -------------------------------------------------------------------------------------------------


def score_range(evidence: Evidence, dataset: str, low: float, high: float, tolerance: float = 0.05) -> Finding:
    """Both ends of the range of scores are near the published ones."""

    def near(model: str) -> Decision:
        pairs = [(evidence.gate(end, dataset, model), value) for end, value in (("min", low), ("max", high))]
        return all_of([_near(gate, value, tolerance) for gate, value in pairs])

    def ends(model: str) -> str:
        return " to ".join(_mean(evidence.gate(end, dataset, model), 2) for end in ("min", "max"))

    values = {end: evidence.gate(end, dataset).mean for end in ("min", "max")}
    return _with_raw(near, ends, values)


def low_scores(evidence: Evidence, dataset: str, published: float, tolerance: float) -> Finding:
    """The percentage of scores below 0.55 is near the published one."""

    def below(model: str) -> Estimate:
        mean, error, splits = evidence.gate("below_055", dataset, model)
        return Estimate(100 * mean, 100 * error, splits)

    return _with_raw(
        lambda model: _near(below(model), published, tolerance),
        lambda model: f"{_mean(below(model))}% below",
        {"below": below("gfgn-graph").mean},
    )


def _with_raw(test: Callable[[str], Decision], text: Callable[[str], str], values: Mapping[str, float]) -> Finding:
    """Judges a claim with row-normalized and, if measured, with raw features: the paper does not say which it has."""
    tests, raw = [test("gfgn-graph")], f"gfgn-graph{RAW}"

    def without() -> str:
        tests.append(test(raw))
        return f"; without row normalization {text(raw)}"

    measured = f"{text('gfgn-graph')}{_optional(without)}"
    return Finding(agree(tests), measured, values)


def _near(gate: Estimate, value: float, tolerance: float) -> Decision:
    return between(above(gate, value - tolerance), ~above(gate, value + tolerance))


def scores_vary(evidence: Evidence, least: float = 0.05) -> Finding:
    return _above_least(_widths(evidence, "gfgn-graph", (*SCORED, *ASSORTATIVE)), least, "the narrowest range is", 2)


def vary_more_on_disassortative(evidence: Evidence) -> Finding:
    compared = _spread_pairs(evidence, "gfgn-graph", SCORED, ASSORTATIVE)
    return _counted(compared, "the standard deviation is larger", 2)


def smaller_on_disassortative(evidence: Evidence) -> Finding:
    low, high = (_mean_score(evidence, "gfgn-graph", names) for names in (SCORED, ASSORTATIVE))
    gap = high - low
    text = f"mean score {low.mean:.2f} against {high.mean:.2f}, difference {_interval(gap, 2)}"
    return Finding(above(gap), text, {"low": low.mean, "high": high.mean})


def scores_adapt(evidence: Evidence, least: float = 0.01) -> Finding:
    boxes = _boxes(evidence, "neighbor", *SCORED, *ASSORTATIVE) | _boxes(evidence, "pair", *PAIR_SCORED)
    return _above_least(boxes, least, "the smallest mean range is", 3)


def boxes_by_features(evidence: Evidence) -> Finding:
    compared: dict[str, Compared] = {}
    for level, others in (("neighbor", ("texas", "cora", "citeseer")), ("pair", ("texas", "cora"))):
        low, high = _boxes(evidence, level, "blogcatalog", "flickr"), _boxes(evidence, level, *others)
        compared |= _larger(high, low)
    return _counted(compared, "the range is smaller", 3)


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
        f"{len(spreads)} pairs of graphs; mean score lower by {_mean(means, 2)}"
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
        texts.append(f"{name} {_interval(gap, 2)} (permuted {_number(low, 2)} to {_number(high, 2)})")
        values[name] = gap.mean
    return Finding(_all(compared), f"rank correlation: {', '.join(texts)}", values)


def _widths(evidence: Evidence, model: str, names: Iterable[str]) -> dict[str, Estimate]:
    """Returns the mean width of the range of scores; the errors of its two ends are added."""
    widths = {}
    for name in names:
        low, high = (evidence.gate(end, name, model) for end in ("min", "max"))
        widths[name] = Estimate(high.mean - low.mean, high.error + low.error, min(high.splits, low.splits))
    return widths


def _spread_pairs(evidence: Evidence, model: str, first: Iterable[str], second: Iterable[str]) -> dict[str, Compared]:
    return _larger(*({name: evidence.gate("spread", name, model) for name in names} for names in (first, second)))


def _mean_score(evidence: Evidence, model: str, names: Sequence[str]) -> Estimate:
    """Returns the mean score, averaged over graphs, whose errors are independent."""
    gates = [evidence.gate("mean", name, model) for name in names]
    error = sum(gate.error**2 for gate in gates) ** 0.5 / len(gates)
    return Estimate(fmean(gate.mean for gate in gates), error, min(gate.splits for gate in gates))


def _boxes(evidence: Evidence, level: str, *datasets: str) -> dict[str, Estimate]:
    return {f"{level} {name}": evidence.gate("box", name, f"gfgn-{level}") for name in datasets}


# --- the method and the graphs ----------------------------------------------------------------------------------------


def is_gcn(evidence: Evidence) -> Finding:
    from gfgn.paper.derivations import gcn_difference

    return _exact(gcn_difference())


def zero_is_mlp(evidence: Evidence) -> Finding:
    from gfgn.paper.derivations import mlp_difference

    def trained() -> str:
        gaps = [
            abs(evidence.mean("lambda", name, level, 0.0) - evidence.mean("lambda", name, "mlp"))
            for name in LAMBDA_DATASETS
            for level in LEVELS
        ]
        return f"; trained separately, accuracies differ by at most {max(gaps):.1f} points"

    return _exact(max(mlp_difference(level.removeprefix("gfgn-")) for level in LEVELS), _optional(trained))


def is_denoising_step(evidence: Evidence, level: str) -> Finding:
    from gfgn.paper.derivations import step_difference

    return _exact(step_difference(level))


def is_spectral_filter(evidence: Evidence) -> Finding:
    from gfgn.paper.derivations import filter_difference

    return _exact(filter_difference())


def smoothness_is_eigenvalue(evidence: Evidence) -> Finding:
    gap = evidence.number("motivation: smoothness minus eigenvalue")
    return _exact(gap, least=1e-6)


def _exact(gap: float, remark: str = "", least: float = 1e-9) -> Finding:
    # Rounding errors depend on the machine: their size is not written down.
    text = f"the two sides {'agree' if gap < least else f'differ by up to {gap:.1f}'}{remark}"
    return Finding(gap < least, text, {"agree": float(gap < least)})


def gates_are_small(evidence: Evidence, deep: bool, most: float = 5.0, too_many: float = 10.0) -> Finding:
    """Gates add at most 5% to the parameters of the paper's networks, and not more than 10%."""
    from gfgn.paper.parameters import USUAL, count_all

    percent = {f"{c.dataset} {c.level}": 100 * c.added for c in count_all() if (c.shape != USUAL) == deep}
    top = max(percent, key=percent.__getitem__)
    result = True if percent[top] <= most else False if percent[top] > too_many else None
    return Finding(result, f"at most +{percent[top]:.1f}% ({top})" + f"; {_list(percent)}" * deep, percent)


def dimensions_differ(evidence: Evidence, least: float = 0.05) -> Finding:
    """Neighbors differ between two dimensions, and more so than random nodes do."""
    share, chance = (
        evidence.number(f"motivation: {who} twice as similar in one dimension") for who in ("neighbors", "random nodes")
    )
    text = f"{100 * share:.0f}% of neighbors are twice as similar in one dimension, {100 * chance:.0f}% of random nodes"
    result = None if share > 0 and share < chance + least else share >= chance + least
    return Finding(result, text, {"neighbors": share, "random": chance})


def homophily_divides(evidence: Evidence) -> Finding:
    low, high = (
        {name: evidence.graph(name, "node_homophily") for name in names} for names in (DISASSORTATIVE, ASSORTATIVE)
    )
    return Finding(max(low.values()) < min(high.values()), f"{_range(low)} against {_range(high)}", low | high)


def homophily_is_low(evidence: Evidence, most: float = 0.1) -> Finding:
    """The six graphs have hardly more homophily than the same classes at random."""
    excess, texts = {}, []
    for name in DISASSORTATIVE:
        own, chance = (evidence.graph(name, column) for column in ("node_homophily", "permuted_homophily"))
        excess[name] = (own - chance) / (1 - chance)
        texts.append(f"{name} {own:.2f} ({chance:.2f})")
    return Finding(max(excess.values()) <= most, f"measured (permuted classes): {', '.join(texts)}", excess)


def statistics_agree(evidence: Evidence, columns: Sequence[str]) -> Finding:
    """The paper's table of datasets has the sizes of the graphs as loaded."""
    from gfgn.data.datasets.catalog import DATASETS

    wrong = []
    for name in NINE:
        paper = DATASETS[name].paper
        assert paper is not None
        for column in columns:
            loaded, printed = int(evidence.graph(name, column)), getattr(paper, column)
            if loaded != printed:
                wrong.append(f"{name} {loaded:,} {column} (published {printed:,})")
    total = len(NINE) * len(columns)
    return Finding(not wrong, ", ".join(wrong) or f"all {total} agree", {"wrong": len(wrong), "of": total})


def graphs_are_distinct(evidence: Evidence) -> Finding:
    """No two of the graphs have the same features and classes."""
    nodes: dict[str, list[str]] = {}
    for name in NINE:
        evidence.graph(name, "nodes")
        nodes.setdefault(evidence.graphs[name]["nodes_sha256"], []).append(name)
    same = [" and ".join(names) for names in nodes.values() if len(names) > 1]
    text = f"{', '.join(same)} have the same features and classes, node by node" if same else "all differ"
    return Finding(not same, text, {"distinct": len(nodes)})


# --- helpers ----------------------------------------------------------------------------------------------------------


def _ahead(
    evidence: Evidence,
    study: str,
    datasets: Iterable[str],
    models: Iterable[str],
    others: Iterable[str],
    by: float = 0.0,
    at: float | None = None,
) -> dict[str, Compared]:
    """Compares each of the models with each of the others on each dataset, by more than `by` points. A baseline whose
    runs end at the last epoch allowed is not shown to be behind."""
    compared = {}
    for name in datasets:
        for other in others:
            shown = other in LEVELS or evidence.is_trained(study, name, other, at)
            for model in models:
                gap = evidence.gap(study, name, model, other, at)
                where = name if at is None else f"{name} at {at:g}"
                compared[f"{model} over {other} on {where}"] = Compared(gap, above(gap, by, shown=shown))
    return compared


def _larger(larger: Mapping[str, Estimate], smaller: Mapping[str, Estimate]) -> dict[str, Compared]:
    """Compares every pair of two groups of independent estimates."""
    gaps = {f"{one} − {two}": first - second for one, first in larger.items() for two, second in smaller.items()}
    return {name: Compared(gap, above(gap)) for name, gap in gaps.items()}


def _all(compared: Comparisons) -> Decision:
    return all_of([each.test for each in compared.values()])


def _all_finding(evidence: Evidence, compared: Comparisons, text: str = "by at least", unit: str = "") -> Finding:
    """All differences are above 0; the text has the smallest, and how many rest on an undertrained baseline."""
    doubtful = sum(each.test.holds == 1.0 and each.gap.mean > 0 for each in compared.values())
    remark = f"; {doubtful} of {len(compared)} are over a baseline whose runs reach the last epoch" if doubtful else ""
    values = {name: each.gap.mean for name, each in compared.items()}
    return Finding(_all(compared), f"{text} {_least(compared, unit)}{remark}", values)


def _every(compared: Comparisons) -> Finding:
    """All differences are above 0; the text has all of them."""
    text = ", ".join(f"{_interval(each.gap)} ({name})" for name, each in compared.items())
    return Finding(_all(compared), text, {name: each.gap.mean for name, each in compared.items()})


def _counted(compared: Comparisons, text: str, digits: int) -> Finding:
    larger = sum(each.gap.mean > 0 for each in compared.values())
    text = f"{text} in {larger} of {len(compared)} pairs of graphs, {_weakest(compared, digits)}"
    return Finding(_all(compared), text, {name: each.gap.mean for name, each in compared.items()})


def _above_least(values: Mapping[str, Estimate], least: float, text: str, digits: int) -> Finding:
    narrow = min(values, key=lambda name: values[name].mean)
    result = all_of([above(value, least) for value in values.values()])
    means = {name: value.mean for name, value in values.items()}
    return Finding(result, f"{text} {_mean(values[narrow], digits)} ({narrow})", means)


def _least(compared: Comparisons, unit: str = "") -> str:
    name = min(compared, key=lambda name: compared[name].gap.mean)
    return f"{_interval(compared[name].gap, unit=unit)} ({name})"


def _weakest(compared: Comparisons, digits: int = 1) -> str:
    """The comparison that speaks most clearly against a claim."""
    name = min(compared, key=lambda name: (compared[name].test.fails, compared[name].gap.mean))
    return f"clearest against it {_interval(compared[name].gap, digits)} ({name})"


def _optional(remark: Callable[[], str]) -> str:
    """Returns a remark, or nothing if what it reports has not been measured."""
    try:
        return remark()
    except Missing:
        return ""


def _pick(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names}


def _list(values: Mapping[str, float], digits: int = 1) -> str:
    return ", ".join(f"{name.removeprefix('gfgn-')} {value:.{digits}f}" for name, value in values.items())


def _number(value: float, digits: int = 1, sign: str = "") -> str:
    """Formats a number; what rounds to 0 has no minus sign."""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")


def _signed(value: float, digits: int = 1) -> str:
    return _number(value, digits, "+")


def _interval(gap: Estimate, digits: int = 1, unit: str = "") -> str:
    low, high = gap.interval()
    return f"{_signed(gap.mean, digits)}{unit} [{_number(low, digits)}, {_number(high, digits)}]"


def _mean(value: Estimate, digits: int = 1) -> str:
    low, high = value.interval()
    return f"{_number(value.mean, digits)} [{_number(low, digits)}, {_number(high, digits)}]"


def _range(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):.2f} to {max(values.values()):.2f}"
