"""Rules about accuracies: tables, random edges, λ and the form of the gate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from gfgn.paper.evidence import LEVELS, Draws, Evidence, Missing, mean_score
from gfgn.paper.inference import Decision, above, all_of, any_of, at_least, between
from gfgn.paper.rules.finding import (
    ASSORTATIVE,
    BASELINES,
    DISASSORTATIVE,
    LAMBDA_DATASETS,
    NINE,
    PPI_BASELINES,
    ROUNDING,
    WITHOUT_GEOM,
    Compared,
    Finding,
    all_ahead,
    all_hold,
    all_listed,
    compare_models,
    interval,
    listing,
    number,
    optional,
    pick,
    signed,
    weakest,
)
from gfgn.train.statistics import Estimate, average_ranks, best_interval, dataset_ranks, estimate, rank_intervals

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
    text = f"{signed(gaps[best].mean)}{unit} [{number(low)}, {number(high)}] ({best})"
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
        return f" (ranked together with an MLP: {listing(pick(ranked, (*LEVELS, 'mlp')))})"

    return finding._replace(measured=finding.measured + optional(with_mlp))


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

    text = f"{len(won)} of 9 by means" + f" ({', '.join(won)})" * (0 < len(won) < len(NINE)) + optional(with_mlp)
    text += f"; graph by graph, a level is shown to be the best on {ahead} and a baseline on {behind}"
    return Finding(at_least(needed, tests), text, {"best": len(won), "shown best": ahead, "shown behind": behind})


def _best_of_all(evidence: Evidence, dataset: str) -> Decision:
    """Tests whether some level is ahead of every baseline of Table 1 that was measured on a graph."""
    others = [other for other in BASELINES if other != "geom-gcn" or ("table1", dataset, other, None) in evidence.runs]
    return any_of([all_hold(compare_models(evidence, "table1", [dataset], [level], others)) for level in LEVELS])


def larger_on_disassortative(evidence: Evidence) -> Finding:
    compared = {}
    for level in LEVELS:
        gains = {name: evidence.relative_gap("table1", name, level, "gcn") for name in NINE}
        for name in DISASSORTATIVE:
            for other in ASSORTATIVE:
                gap = gains[name] - gains[other]
                shown = evidence.is_trained("table1", name, "gcn")
                compared[f"{level}, {name} against {other}"] = Compared(gap, above(gap, shown=shown))
    return all_ahead(evidence, compared, "gains differ by at least", "%")


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
            text = f"{name} {signed(best.mean)} [{number(low)}, {number(high)}]{against}"
            worst = max(worst, (-best.mean + 1e3, text + _cap(evidence, "table1", name, model=other)))
            values[f"{name}{against}"] = best.mean
        texts.append(worst[1])
    return Finding(all_of(tests), ", ".join(texts), values)


def beats_local_aggregation(evidence: Evidence) -> Finding:
    return all_ahead(evidence, compare_models(evidence, "table1", DISASSORTATIVE, LEVELS, ("gcn", "gat", "sgc")))


def graph_leads_wisconsin(evidence: Evidence) -> Finding:
    return all_listed(compare_models(evidence, "table1", ["wisconsin"], ["gfgn-graph"], LEVELS[1:]))


def pair_leads_flickr(evidence: Evidence) -> Finding:
    return all_listed(compare_models(evidence, "table1", ["flickr"], ["gfgn-pair"], LEVELS[:-1]))


def leads_arxiv(evidence: Evidence) -> Finding:
    return all_ahead(evidence, compare_models(evidence, "arxiv", ["ogbn-arxiv"], LEVELS, WITHOUT_GEOM))


def neighbor_leads_ppi(evidence: Evidence, margin: float = 0.3) -> Finding:
    compared = compare_models(evidence, "table2", ["ppi"], ["gfgn-neighbor"], PPI_BASELINES, by=margin)
    return all_ahead(evidence, compared | compare_models(evidence, "table2", ["ppi"], ["gfgn-neighbor"], LEVELS[::2]))


def competitive_on_ppi(evidence: Evidence, margin: float = 1.0) -> Finding:
    return all_ahead(evidence, compare_models(evidence, "table2", ["ppi"], LEVELS, PPI_BASELINES, by=-margin))


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


def leads_under_noise(evidence: Evidence, study: str) -> Finding:
    ratios = {name: [at for at in evidence.values(study, name, "gcn") if at > 0] for name in ASSORTATIVE}
    cells = [(name, at) for name, own in ratios.items() for at in own]
    if not cells:
        raise Missing(f"{study}: runs with random edges")
    compared: dict[str, Compared] = {}
    for name, at in cells:
        compared |= compare_models(evidence, study, [name], LEVELS, WITHOUT_GEOM, at=at)
    won = sum(each.gap.mean > 0 for each in compared.values())

    def mlp() -> str:
        means = [evidence.means(study, name, (*LEVELS, "mlp"), at) for name, at in cells]
        ahead = sum(max(mean, key=mean.__getitem__) == "mlp" for mean in means)
        return f"; an MLP is ahead of the best level in {ahead} of {len(means)} cases"

    text = f"ahead in {won} of {len(compared)} comparisons, {weakest(compared)}{optional(mlp)}"
    return Finding(all_hold(compared), text, {"won": won, "of": len(compared)})


def loses_less(evidence: Evidence, study: str) -> Finding:
    """From no random edges to as many as real ones, each level loses fewer points than each baseline."""
    compared: dict[str, Compared] = {}
    losses: dict[str, float] = {}
    for name in ASSORTATIVE:
        lost = {model: evidence.lost(study, name, model, 0.0, 1.0) for model in (*LEVELS, *WITHOUT_GEOM)}
        losses |= {f"{name} {model}": mean_score(draws) for model, draws in lost.items()}
        for level in LEVELS:
            for other in WITHOUT_GEOM:
                gap = evidence.paired(name, lost[other], lost[level])
                shown = evidence.is_trained(study, name, other, 1.0)
                compared[f"{level} against {other} on {name}"] = Compared(gap, above(gap, shown=shown))
    fewer = sum(each.gap.mean > 0 for each in compared.values())
    gcn = [each.gap.mean > 0 for name, each in compared.items() if "against gcn" in name]
    text = f"fewer in {fewer} of {len(compared)} comparisons ({sum(gcn)} of {len(gcn)} with GCN), {weakest(compared)}"
    return Finding(all_hold(compared), text, losses)


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
            texts.append((mean, f"{signed(mean)} [{number(low)}, {number(high)}] ({level} on {name})"))
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


def _lost(evidence: Evidence, name: str, level: str) -> list[Draws]:
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
        texts.append(f"{name} {level.removeprefix('gfgn-')} {mean:.1f} [{number(low)}, {number(high)}]")
    return f"points lost: {', '.join(texts)}", values


# --- the form of the gate ---------------------------------------------------------------------------------------------


def better_form(evidence: Evidence, study: str, level: str, form: str, than: str, margin: float = 0.5) -> Finding:
    """On most of the nine graphs, one form of a level's gate is ahead of another by more than half a point."""
    model, compared = f"gfgn-{level}", dict[str, Compared]()
    for name in NINE:
        gap = evidence.paired(name, *(evidence.cell(study, name, model, each) for each in (form, than)))
        own, other = (evidence.capped.get((study, name, model, each), 0.0) for each in (form, than))
        shown = other <= own or evidence.is_trained(study, name, model, than)
        compared[name] = Compared(gap, above(gap, margin, shown=shown))
    text = ", ".join(f"{name} {interval(each.gap)}" for name, each in compared.items())
    test = at_least(len(NINE) // 2 + 1, [each.test for each in compared.values()])
    return Finding(test, text, {name: each.gap.mean for name, each in compared.items()})
