"""The rules that the claims are judged by; `claims.yaml` states what each rule requires.

A rule takes the evidence and the arguments of the claim. It raises `Missing` if something has not been measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch

from gfgn.ops.seeded import seeded
from gfgn.paper.evidence import LEVELS, RAW, Evidence, Missing, paired
from gfgn.train.statistics import Summary, average_ranks

DISASSORTATIVE = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "actor")
ASSORTATIVE = ("cora", "citeseer", "pubmed")
NINE = (*DISASSORTATIVE, *ASSORTATIVE)
SCORED = DISASSORTATIVE[:-1]  # the disassortative graphs in the paper's figures of scores
LAMBDA_DATASETS = ("blogcatalog", "cora")
BASELINES = ("gcn", "gat", "sgc", "arma", "ggnn", "appnp", "geom-gcn")
WITHOUT_GEOM = BASELINES[:-1]  # the baselines of the studies of noise and ogbn-arxiv
PPI_BASELINES = ("graphsage", "vr-gcn", "gaan", "gat", "geniepath", "graphsaint")
WITHOUT_NORM = "; without row normalization"
ROUNDING = 0.05  # largest rounding error of a figure published with one decimal


class Finding(NamedTuple):
    """Whether a claim holds, the measured figure as text, and its numbers."""

    holds: bool
    measured: str
    values: Mapping[str, float]


# --- tables -----------------------------------------------------------------------------------------------------------


def gain(
    evidence: Evidence, study: str, dataset: str, published: float, at: float | None = None, relative: bool = False
) -> Finding:
    """The interval of the gain of the best level over GCN reaches the published gain."""
    gain = evidence.gain(study, dataset, at, relative)
    values = {"mean": gain.mean, "low": gain.low, "high": gain.high, "published": published}
    return Finding(gain.high >= published - ROUNDING, _gap(gain, "%" if relative else ""), values)


def ranks(evidence: Evidence, models: Sequence[str] = (*BASELINES, *LEVELS)) -> dict[str, float]:
    """Returns average ranks over the nine graphs, ties sharing the better rank as in the paper."""
    scores = {model: _rounded(evidence, model) for model in models}
    if not all(scores.values()):
        raise Missing("table1: geom-gcn")
    return average_ranks(scores, ties="min")


def _rounded(evidence: Evidence, model: str) -> dict[str, float]:
    """Returns the scores of Table 1, of Geom-GCN only where it was measured: two published scores are missing."""
    names = [name for name in NINE if model != "geom-gcn" or ("table1", name, model, None) in evidence.runs]
    return {name: round(evidence.mean("table1", name, model), 2) for name in names}


def levels_lead_ranks(evidence: Evidence) -> Finding:
    measured = ranks(evidence)
    best, levels = min(BASELINES, key=measured.__getitem__), _pick(measured, LEVELS)

    def with_mlp() -> str:
        ranked = ranks(evidence, (*BASELINES, *LEVELS, "mlp"))
        return f" (ranked together with an MLP: {_list(_pick(ranked, (*LEVELS, 'mlp')))})"

    text = f"{_list(levels)}; then {best} {measured[best]:.1f}{_optional(with_mlp)}"
    return Finding(max(levels.values()) < measured[best], text, measured)


def neighbor_ranks_first(evidence: Evidence) -> Finding:
    levels = _pick(ranks(evidence), LEVELS)
    return Finding(levels["gfgn-neighbor"] == min(levels.values()), _list(levels), levels)


def best_on_most(evidence: Evidence, needed: int = 7) -> Finding:
    levels, others = ([_rounded(evidence, model) for model in models] for models in (LEVELS, BASELINES))
    best = {name: max(scores[name] for scores in levels) for name in NINE}
    lost = [name for name in NINE if best[name] < max(scores.get(name, 0.0) for scores in others)]
    won = len(NINE) - len(lost)
    return Finding(won >= needed, f"{won} of 9" + f" (not {', '.join(lost)})" * bool(lost), {"datasets": won})


def larger_on_disassortative(evidence: Evidence) -> Finding:
    gains = {name: evidence.gain("table1", name, relative=True).mean for name in NINE}
    least, most = min(DISASSORTATIVE, key=gains.__getitem__), max(ASSORTATIVE, key=gains.__getitem__)
    text = f"at least {_signed(gains[least])}% ({least}) against at most {_signed(gains[most])}% ({most})"
    return Finding(gains[least] > gains[most], text, gains)


def does_not_hurt(evidence: Evidence) -> Finding:
    gaps = {name: evidence.gain("table1", name) for name in ASSORTATIVE}
    text = ", ".join(f"{name} {_gap(gap)}" for name, gap in gaps.items())
    return Finding(all(gap.high >= 0 for gap in gaps.values()), text, {name: gap.mean for name, gap in gaps.items()})


def beats_local_aggregation(evidence: Evidence) -> Finding:
    gaps = {}
    for name in DISASSORTATIVE:
        levels, others = (evidence.means("table1", name, models) for models in (LEVELS, ("gcn", "gat", "sgc")))
        gaps[name] = min(levels.values()) - max(others.values())
    return _all_ahead(gaps)


def graph_leads_wisconsin(evidence: Evidence) -> Finding:
    gaps = {level: evidence.gap("table1", "wisconsin", "gfgn-graph", level) for level in LEVELS[1:]}
    text = ", ".join(f"{_gap(gap)} over {level}" for level, gap in gaps.items())
    return Finding(all(gap.low > 0 for gap in gaps.values()), text, {level: gap.mean for level, gap in gaps.items()})


def pair_leads_flickr(evidence: Evidence) -> Finding:
    means = evidence.means("table1", "flickr", LEVELS)
    return Finding(means["gfgn-pair"] == max(means.values()), _list(means, 2), means)


def leads_arxiv(evidence: Evidence) -> Finding:
    levels, others = (evidence.means("arxiv", "ogbn-arxiv", models) for models in (LEVELS, WITHOUT_GEOM))
    best = max(others, key=others.__getitem__)
    text = f"{_list(levels, 2)}; best baseline {best} {others[best]:.2f}"
    return Finding(min(levels.values()) > others[best], text, levels)


def published_arithmetic(evidence: Evidence, of: str) -> Finding:
    """The published ranks or gains follow from the published scores."""
    from gfgn.paper.studies import load_study

    published = load_study("table1").published
    if of == "ranks":
        return _recomputed(average_ranks(published.scores, ties="min"), published.ranks, "")
    gains = {}
    for fact in published.facts:
        base, *levels = (published.scores[model][fact.dataset] for model in ("gcn", *LEVELS))
        gains[fact.dataset] = 100 * (max(levels) - base) / base
    return _recomputed(gains, {fact.dataset: fact.value for fact in published.facts}, "%")


def _recomputed(values: dict[str, float], published: Mapping[str, float], unit: str) -> Finding:
    wrong = [name for name, value in published.items() if abs(values[name] - value) > ROUNDING + 1e-9]
    text = ", ".join(f"{name} {values[name]:.1f}{unit} (published {published[name]:.1f}{unit})" for name in wrong)
    return Finding(not wrong, f"recomputed: {text}" if wrong else "all agree", values)


def neighbor_leads_ppi(evidence: Evidence) -> Finding:
    means = evidence.means("table2", "ppi", ("gfgn-neighbor", *PPI_BASELINES, "gfgn-graph", "gfgn-pair"))
    own, best = means["gfgn-neighbor"], max(list(means)[1:], key=means.__getitem__)
    return Finding(own > means[best], f"{own:.2f} against {means[best]:.2f} ({best})", means)


def competitive_on_ppi(evidence: Evidence, margin: float = 1.0) -> Finding:
    best = max(evidence.means("table2", "ppi", PPI_BASELINES).values())
    levels = evidence.means("table2", "ppi", LEVELS)
    return Finding(min(levels.values()) >= best - margin, f"{_list(levels, 2)}; best baseline {best:.2f}", levels)


# --- noise and λ ------------------------------------------------------------------------------------------------------


def leads_under_noise(evidence: Evidence) -> Finding:
    def noisy(model: str) -> list[tuple[str, float]]:
        return [(name, at) for name in ASSORTATIVE for at in evidence.values("noise", name, model) if at > 0]

    def mlp() -> str:
        means = [evidence.means("noise", name, (*LEVELS, "mlp"), at) for name, at in noisy("mlp")]
        ahead = sum(max(mean, key=mean.__getitem__) == "mlp" for mean in means)
        return f"; an MLP is ahead of the best level in {ahead} of {len(means)} cases"

    total, lost = 0, Counter[str]()
    for name, at in noisy("gcn"):
        levels = evidence.means("noise", name, LEVELS, at).values()
        for baseline, mean in evidence.means("noise", name, WITHOUT_GEOM, at).items():
            total += len(levels)
            lost[f"{baseline} on {name}"] += sum(level <= mean for level in levels)
    if not total:
        raise Missing("noise: runs with random edges")
    (most, times), won = lost.most_common(1)[0], total - lost.total()
    text = f"ahead in {won} of {total} comparisons" + f", least often of {most}" * bool(times)
    return Finding(won == total, text + _optional(mlp), {"won": won, "of": total})


def loses_less_than_gcn(evidence: Evidence) -> Finding:
    losses, holds, texts = {}, True, []
    for name in ASSORTATIVE:
        clean, noisy = (evidence.means("noise", name, (*LEVELS, "gcn"), at) for at in (0.0, 1.0))
        lost = losses[name] = {model: clean[model] - noisy[model] for model in clean}
        least, *_, most = sorted(lost[level] for level in LEVELS)
        holds = holds and most < lost["gcn"]
        texts.append(f"{name} {least:.1f} to {most:.1f} (gcn {lost['gcn']:.1f})")
    return Finding(holds, f"points lost: {', '.join(texts)}", _flat(losses))


def zero_is_mlp(evidence: Evidence) -> Finding:
    def trained() -> str:
        gaps = [
            abs(evidence.mean("lambda", name, level, 0.0) - evidence.mean("lambda", name, "mlp"))
            for name in LAMBDA_DATASETS
            for level in LEVELS
        ]
        return f"; trained separately, accuracies differ by at most {max(gaps):.1f} points"

    gap = max(_mlp_difference(level) for level in LEVELS)
    return Finding(gap < 1e-9, f"outputs {_differ(gap)}{_optional(trained)}", {"difference": gap})


def ahead_of_mlp(evidence: Evidence) -> Finding:
    gaps: dict[str, float] = {}
    for name in LAMBDA_DATASETS:
        base = evidence.mean("lambda", name, "mlp")
        for level in LEVELS:
            positive = [at for at in evidence.values("lambda", name, level) if at > 0]
            gaps[f"{name} {level}"] = max(evidence.mean("lambda", name, level, at) for at in positive) - base
    return _all_ahead(gaps)


def large_lambda_hurts(evidence: Evidence) -> Finding:
    return _drops(evidence, lambda levels: any(drop.low > 0 for drop in levels.values()))


def neighbor_most_stable(evidence: Evidence) -> Finding:
    others = ("gfgn-graph", "gfgn-pair")
    return _drops(evidence, lambda levels: levels["gfgn-neighbor"].mean < min(levels[other].mean for other in others))


def _drops(evidence: Evidence, holds: Callable[[dict[str, Summary]], bool]) -> Finding:
    """Judges every graph by the points that each level loses from its best λ to the largest."""
    drops: dict[str, dict[str, Summary]] = {name: {} for name in LAMBDA_DATASETS}
    for name, levels in drops.items():
        for level in LEVELS:
            values = evidence.values("lambda", name, level)
            best = max(values, key=lambda at: evidence.mean("lambda", name, level, at))
            levels[level] = paired(name, *(evidence.cell("lambda", name, level, at) for at in (best, values[-1])))
    means = {name: {level: drop.mean for level, drop in levels.items()} for name, levels in drops.items()}
    text = "; ".join(f"{name} {_list(levels)}" for name, levels in means.items())
    return Finding(all(map(holds, drops.values())), f"points lost: {text}", _flat(means))


# --- smoothing scores -------------------------------------------------------------------------------------------------


def score_range(evidence: Evidence, dataset: str, low: float, high: float, tolerance: float = 0.1) -> Finding:
    """Both ends of the range of scores are near the published ones."""

    def ends(model: str) -> list[float]:
        return [evidence.gate(end, dataset, model) for end in ("min", "max")]

    least, most = ends("gfgn-graph")
    near = abs(least - low) <= tolerance and abs(most - high) <= tolerance
    raw = _optional(lambda: "{} [{:.2f}, {:.2f}]".format(WITHOUT_NORM, *ends(f"gfgn-graph{RAW}")))
    return Finding(near, f"[{least:.2f}, {most:.2f}]{raw}", {"min": least, "max": most})


def low_scores(evidence: Evidence, dataset: str, published: float, tolerance: float) -> Finding:
    """The percentage of scores below 0.55 is near the published one."""
    below = 100 * evidence.gate("below_055", dataset)
    raw = _optional(lambda: f"{WITHOUT_NORM} {100 * evidence.gate('below_055', dataset, f'gfgn-graph{RAW}'):.1f}%")
    return Finding(abs(below - published) <= tolerance, f"{below:.1f}% below{raw}", {"below": below})


def scores_vary(evidence: Evidence, least: float = 0.05) -> Finding:
    widths = {name: evidence.gate("max", name) - evidence.gate("min", name) for name in (*SCORED, *ASSORTATIVE)}
    narrow = min(widths, key=widths.__getitem__)
    return Finding(widths[narrow] >= least, f"the narrowest range is {widths[narrow]:.2f} wide ({narrow})", widths)


def vary_more_on_disassortative(evidence: Evidence) -> Finding:
    wide, narrow = ({name: evidence.gate("spread", name) for name in names} for names in (SCORED, ASSORTATIVE))
    larger = _compare(wide, narrow)
    text = f"standard deviation {_range(wide)} against {_range(narrow)}; larger in {sum(larger)} of {len(larger)} pairs"
    return Finding(all(larger), text, wide | narrow)


def smaller_on_disassortative(evidence: Evidence) -> Finding:
    low, high = ({name: evidence.gate("mean", name) for name in names} for names in (SCORED, ASSORTATIVE))
    first, second = fmean(low.values()), fmean(high.values())
    return Finding(first < second, f"mean score {first:.2f} against {second:.2f}", low | high)


def scores_adapt(evidence: Evidence, least: float = 0.01) -> Finding:
    boxes = _boxes(evidence, "neighbor", *SCORED, *ASSORTATIVE)
    boxes |= _boxes(evidence, "pair", "blogcatalog", "flickr", "texas", "cora")
    flat = min(boxes, key=boxes.__getitem__)
    return Finding(boxes[flat] >= least, f"the smallest range is {boxes[flat]:.3f} on average ({flat})", boxes)


def boxes_by_features(evidence: Evidence) -> Finding:
    boxes: dict[str, float] = {}
    smaller: list[bool] = []
    for level, others in (("neighbor", ("texas", "cora", "citeseer")), ("pair", ("texas", "cora"))):
        low, high = _boxes(evidence, level, "blogcatalog", "flickr"), _boxes(evidence, level, *others)
        smaller += _compare(high, low)
        boxes |= low | high
    return Finding(all(smaller), f"smaller in {sum(smaller)} of {len(smaller)} pairs of graphs", boxes)


def _boxes(evidence: Evidence, level: str, *datasets: str) -> dict[str, float]:
    return {f"{level} {name}": evidence.gate("box", name, f"gfgn-{level}") for name in datasets}


# --- the method -------------------------------------------------------------------------------------------------------


def is_gcn(evidence: Evidence) -> Finding:
    from torch_geometric.nn import GCNConv

    from gfgn.graph import Graph
    from gfgn.nn import GFGNConv

    x, half = _random_graph(30, 5, 60)
    edges = torch.unique(torch.cat([half, half.flip(0)], dim=1), dim=1)
    edges = edges[:, edges[0] != edges[1]]
    with seeded(0), torch.no_grad():
        layer: Any = GFGNConv(5, 4, level="graph", heads=1, lam=2.0, bias=False).double()
        gcn: Any = GCNConv(5, 4, bias=False).double()
        layer.gate.zero_()  # σ(0) = ½, so that with λ = 2 every score is 1
        gcn.lin.weight.copy_(layer.lin.weight)
        graph = Graph.from_edge_index(edges, 30, self_loops="add", dtype=torch.float64)
        gap = float((layer(x, graph) - gcn(x, edges)).abs().max())
    return Finding(gap < 1e-9, f"outputs {_differ(gap)}", {"difference": gap})


def _mlp_difference(level: str) -> float:
    """Returns the largest difference between the outputs of a GFGN with λ = 0 and of an MLP with the same weights."""
    from gfgn.nn import GFGN

    x, edges = _random_graph(40, 12, 200)
    with seeded(0), torch.no_grad():
        model: Any = GFGN(12, 8, 2, 3, level=level.removeprefix("gfgn-"), heads=2, lam=0.0).double().eval()
        first, last = model.convs
        hidden = (x @ first.lin.weight.t() + first.bias).relu()
        return float((model(x, edges) - (hidden @ last.lin.weight.t() + last.bias)).abs().max())


def _random_graph(nodes: int, features: int, edges: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, features, generator=source, dtype=torch.float64)
    return x, torch.randint(nodes, (2, edges), generator=source)


def gates_are_small(evidence: Evidence, deep: bool, most: float = 5.0) -> Finding:
    """Gates add at most 5% to the parameters of the paper's networks, those of two layers or the deeper ones."""
    from gfgn.paper.parameters import USUAL, count_all

    percent = {f"{c.dataset} {c.level}": 100 * c.added for c in count_all() if (c.shape != USUAL) == deep}
    top = max(percent, key=percent.__getitem__)
    return Finding(percent[top] <= most, f"at most +{percent[top]:.1f}% ({top})", percent)


def smoothness_is_eigenvalue(evidence: Evidence) -> Finding:
    gap = evidence.number("motivation: smoothness minus eigenvalue")
    return Finding(gap < 1e-6, f"they {_differ(gap)}", {"difference": gap})


def dimensions_differ(evidence: Evidence, most: float = 0.3) -> Finding:
    median = evidence.number("motivation: rank correlation, median")
    return Finding(abs(median) <= most, f"median rank correlation {median:.2f}", {"correlation": median})


def homophily_divides(evidence: Evidence) -> Finding:
    for name in NINE:
        if name not in evidence.homophily:
            raise Missing(f"the data of {name}")
    low, high = (_pick(evidence.homophily, names) for names in (DISASSORTATIVE, ASSORTATIVE))
    return Finding(max(low.values()) < min(high.values()), f"{_range(low)} against {_range(high)}", low | high)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _all_ahead(gaps: dict[str, float]) -> Finding:
    least = min(gaps, key=gaps.__getitem__)
    return Finding(gaps[least] > 0, f"by at least {_signed(gaps[least])} points ({least})", gaps)


def _compare(larger: Mapping[str, float], smaller: Mapping[str, float]) -> list[bool]:
    """Returns for every pair whether the first is larger than the second."""
    return [one > other for one in larger.values() for other in smaller.values()]


def _optional(remark: Callable[[], str]) -> str:
    """Returns a remark, or nothing if what it reports has not been measured."""
    try:
        return remark()
    except Missing:
        return ""


def _pick(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names}


def _flat(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{name} {model}": value for name, own in values.items() for model, value in own.items()}


def _list(values: Mapping[str, float], digits: int = 1) -> str:
    return ", ".join(f"{name.removeprefix('gfgn-')} {value:.{digits}f}" for name, value in values.items())


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _differ(gap: float) -> str:
    return f"differ by at most {gap:.0e}" if gap else "do not differ"


def _gap(gap: Summary, unit: str = "") -> str:
    return f"{gap.mean:+.1f}{unit} [{gap.low:.1f}, {gap.high:.1f}]".replace("-", "−")


def _range(values: Mapping[str, float]) -> str:
    return f"{min(values.values()):.2f} to {max(values.values()):.2f}"
