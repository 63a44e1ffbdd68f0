"""The rules that claims of the paper are judged by: each looks at the evidence and says whether the claim holds, and
which figure was measured. What a rule needs and has not been measured is `Missing`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from gfgn.paper.evidence import LEVELS, RAW, Evidence, Missing, paired
from gfgn.train.statistics import Summary, average_ranks

DISASSORTATIVE = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "actor")
ASSORTATIVE = ("cora", "citeseer", "pubmed")
NINE = (*DISASSORTATIVE, *ASSORTATIVE)
BASELINES = ("gcn", "gat", "sgc", "arma", "ggnn", "appnp", "geom-gcn")
NOISY = BASELINES[:-1]
"""The baselines that the study of noise has."""
PPI_BASELINES = ("graphsage", "vr-gcn", "gaan", "gat", "geniepath", "graphsaint")
SCORED_DISASSORTATIVE = DISASSORTATIVE[:-1]
"""Those of the paper's figures of scores."""

ROUNDING = 0.05
"""What a figure published with one decimal may be off by."""


@dataclass(frozen=True)
class Finding:
    """What a rule found: whether the claim holds, the measured figure in words, and its numbers."""

    holds: bool
    measured: str
    values: dict[str, float] = field(default_factory=dict)


# --- Table 1 ----------------------------------------------------------------------------------------------------------


def _reaches(gain: Summary, published: float, unit: str) -> Finding:
    """Whether the interval of what was measured reaches what was published."""
    values = {"mean": gain.mean, "low": gain.low, "high": gain.high, "published": published}
    return Finding(gain.high >= published - ROUNDING, f"{_signed(gain.mean)}{unit} {_interval(gain)}", values)


def relative_gain(dataset: str, published: float, evidence: Evidence) -> Finding:
    """Whether the best level's gain over GCN, in per cent of GCN, reaches the published one."""
    return _reaches(evidence.relative_gain(dataset), published, "%")


def margin(dataset: str, published: float, evidence: Evidence) -> Finding:
    """Whether the best level's gain over GCN, in points, reaches the published one."""
    return _reaches(evidence.gain("table1", dataset), published, "")


def ranks(evidence: Evidence, models: Sequence[str] = (*BASELINES, *LEVELS)) -> dict[str, float]:
    """Average ranks over the nine graphs, ties sharing the better rank, as the paper computes them. Geom-GCN's paper
    has no scores on BlogCatalog and Flickr; it is ranked where there are any."""
    scores: dict[str, dict[str, float]] = {}
    for model in models:
        here = [name for name in NINE if model != "geom-gcn" or ("table1", name, model, None) in evidence.runs]
        if not here:
            raise Missing(f"table1: {model}")
        scores[model] = {name: round(evidence.mean("table1", name, model), 2) for name in here}
    return average_ranks(scores, ties="min")


def levels_lead_ranks(evidence: Evidence) -> Finding:
    """Whether every level has a better average rank than every baseline of the paper."""
    found = ranks(evidence)
    base = min(BASELINES, key=lambda model: found[model])
    words = ", ".join(f"{level.removeprefix('gfgn-')} {found[level]:.1f}" for level in LEVELS)
    worst = max(found[level] for level in LEVELS)
    return Finding(worst < found[base], f"{words}; then {base} {found[base]:.1f}{_with_mlp(evidence)}", found)


def _with_mlp(evidence: Evidence) -> str:
    """The ranks with an MLP in the table, which the paper does not have; nothing where it was not measured."""
    try:
        found = ranks(evidence, (*BASELINES, *LEVELS, "mlp"))
    except Missing:
        return ""
    levels = ", ".join(f"{level.removeprefix('gfgn-')} {found[level]:.1f}" for level in LEVELS)
    return f" (with an MLP among them: {levels}, mlp {found['mlp']:.1f})"


def neighbor_ranks_first(evidence: Evidence) -> Finding:
    """Whether GFGN-neighbor has the best average rank of the three levels."""
    found = {level: rank for level, rank in ranks(evidence).items() if level in LEVELS}
    words = ", ".join(f"{level.removeprefix('gfgn-')} {rank:.1f}" for level, rank in found.items())
    return Finding(found["gfgn-neighbor"] == min(found.values()), words, found)


def best_on_most(evidence: Evidence, needed: int = 7) -> Finding:
    """On how many of the nine graphs a level is the best, or level with the best baseline to two decimals."""
    led = []
    for name in NINE:
        there = [model for model in BASELINES if model != "geom-gcn" or ("table1", name, model, None) in evidence.runs]
        top = max(round(evidence.mean("table1", name, model), 2) for model in there)
        if round(evidence.mean("table1", name, evidence.best_level("table1", name)), 2) >= top:
            led.append(name)
    lost = ", ".join(name for name in NINE if name not in led)
    return Finding(len(led) >= needed, f"{len(led)} of 9" + f" (not {lost})" * bool(lost), {"datasets": len(led)})


def larger_on_disassortative(evidence: Evidence) -> Finding:
    """Whether the smallest relative gain on a disassortative graph exceeds the largest on an assortative one."""
    low = {name: evidence.relative_gain(name).mean for name in DISASSORTATIVE}
    high = {name: evidence.relative_gain(name).mean for name in ASSORTATIVE}
    least, most = min(low, key=lambda name: low[name]), max(high, key=lambda name: high[name])
    words = f"at least {_signed(low[least])}% ({least}) against at most {_signed(high[most])}% ({most})"
    return Finding(low[least] > high[most], words, low | high)


def does_not_hurt(evidence: Evidence) -> Finding:
    """Whether the best level is not significantly behind GCN on any assortative graph."""
    gaps = {name: evidence.gain("table1", name) for name in ASSORTATIVE}
    words = ", ".join(f"{name} {_signed(gap.mean)} {_interval(gap)}" for name, gap in gaps.items())
    return Finding(all(gap.high >= 0 for gap in gaps.values()), words, {name: gap.mean for name, gap in gaps.items()})


def beats_local_aggregation(evidence: Evidence) -> Finding:
    """Whether every level is ahead of GCN, GAT and SGC on every disassortative graph."""
    gaps = {
        name: min(evidence.mean("table1", name, level) for level in LEVELS)
        - max(evidence.mean("table1", name, model) for model in ("gcn", "gat", "sgc"))
        for name in DISASSORTATIVE
    }
    least = min(gaps, key=lambda name: gaps[name])
    return Finding(gaps[least] > 0, f"by at least {_signed(gaps[least])} points ({least})", gaps)


def graph_leads_wisconsin(evidence: Evidence) -> Finding:
    """Whether GFGN-graph is significantly ahead of both other levels on Wisconsin."""
    gaps = {level: evidence.gap("table1", "wisconsin", "gfgn-graph", level) for level in LEVELS[1:]}
    words = ", ".join(f"{_signed(gap.mean)} {_interval(gap)} over {level}" for level, gap in gaps.items())
    return Finding(all(gap.low > 0 for gap in gaps.values()), words, {level: gap.mean for level, gap in gaps.items()})


def pair_leads_flickr(evidence: Evidence) -> Finding:
    """Whether GFGN-pair has the best mean of the three levels on Flickr."""
    means = {level: evidence.mean("table1", "flickr", level) for level in LEVELS}
    words = ", ".join(f"{level.removeprefix('gfgn-')} {mean:.2f}" for level, mean in means.items())
    return Finding(means["gfgn-pair"] == max(means.values()), words, means)


def leads_arxiv(evidence: Evidence) -> Finding:
    """Whether every level is ahead of every baseline on ogbn-arxiv."""
    levels = {level: evidence.mean("arxiv", "ogbn-arxiv", level) for level in LEVELS}
    others = {model: evidence.mean("arxiv", "ogbn-arxiv", model) for model in BASELINES[:-1]}
    top = max(others, key=lambda model: others[model])
    words = ", ".join(f"{level.removeprefix('gfgn-')} {mean:.2f}" for level, mean in levels.items())
    return Finding(min(levels.values()) > others[top], f"{words}; best baseline {top} {others[top]:.2f}", levels)


def published_ranks(evidence: Evidence) -> Finding:
    """Whether the published average ranks are those of the published scores, to one decimal."""
    from gfgn.paper.studies import load_study

    published = load_study("table1").published
    found = average_ranks(published.scores, ties="min")
    wrong = [model for model, rank in published.ranks.items() if abs(found[model] - rank) > ROUNDING + 1e-9]
    words = ", ".join(f"{model} {found[model]:.1f} (published {published.ranks[model]:.1f})" for model in wrong)
    return Finding(not wrong, f"from the scores: {words}" if wrong else "all agree", found)


def published_gains(evidence: Evidence) -> Finding:
    """Whether the published improvements over GCN are those of the published scores, to one decimal."""
    from gfgn.paper.studies import load_study

    published = load_study("table1").published
    found = {}
    for fact in published.facts:
        base, levels = published.scores["gcn"][fact.dataset], [published.scores[m][fact.dataset] for m in LEVELS]
        found[fact.dataset] = 100 * (max(levels) - base) / base
    wrong = [fact for fact in published.facts if abs(found[fact.dataset] - fact.value) > ROUNDING + 1e-9]
    words = ", ".join(f"{fact.dataset} {found[fact.dataset]:.1f}% (published {fact.value:g}%)" for fact in wrong)
    return Finding(not wrong, f"from the scores: {words}" if wrong else "all agree", found)


# --- Table 2 ----------------------------------------------------------------------------------------------------------


def neighbor_leads_ppi(evidence: Evidence) -> Finding:
    """Whether GFGN-neighbor is ahead of every other method on PPI."""
    own = evidence.mean("table2", "ppi", "gfgn-neighbor")
    others = {model: evidence.mean("table2", "ppi", model) for model in (*PPI_BASELINES, "gfgn-graph", "gfgn-pair")}
    top = max(others, key=lambda model: others[model])
    return Finding(own > others[top], f"{own:.2f} against {others[top]:.2f} ({top})", {"gfgn-neighbor": own} | others)


def competitive_on_ppi(evidence: Evidence, margin: float = 1.0) -> Finding:
    """Whether no level is more than a point behind the best baseline on PPI."""
    top = max(evidence.mean("table2", "ppi", model) for model in PPI_BASELINES)
    means = {level: evidence.mean("table2", "ppi", level) for level in LEVELS}
    words = ", ".join(f"{level.removeprefix('gfgn-')} {mean:.2f}" for level, mean in means.items())
    return Finding(min(means.values()) >= top - margin, f"{words}; best baseline {top:.2f}", means)


# --- noise ------------------------------------------------------------------------------------------------------------


def noise_gain(dataset: str, published: float, evidence: Evidence) -> Finding:
    """Whether the best level's gain over GCN with as many random edges as real ones reaches the published one."""
    return _reaches(evidence.gain("noise", dataset, 1.0), published, "")


def leads_under_noise(evidence: Evidence, models: Sequence[str] = LEVELS) -> Finding:
    """Whether every level is ahead of every baseline wherever there is noise."""
    won = total = 0
    lost: Counter[str] = Counter()
    for name in ASSORTATIVE:
        for at in evidence.values("noise", name, "gcn"):
            for other in NOISY if at > 0 else ():
                base = evidence.mean("noise", name, other, at)
                for level in models:
                    ahead = evidence.mean("noise", name, level, at) > base
                    won, total = won + ahead, total + 1
                    lost.update([f"{other} on {name}"] * (not ahead))
    if not total:
        raise Missing("noise: runs with random edges")
    most = f", most often not ahead of {lost.most_common(1)[0][0]}" if lost else ""
    words = f"ahead in {won} of {total} comparisons{most}{_mlp_under_noise(evidence)}"
    return Finding(won == total, words, {"won": won, "of": total})


def _mlp_under_noise(evidence: Evidence) -> str:
    """How often an MLP, which sees no edges, is ahead of the best level; nothing where it was not measured."""
    try:
        places = [(name, at) for name in ASSORTATIVE for at in evidence.values("noise", name, "mlp") if at > 0]
        ahead = [
            evidence.mean("noise", name, "mlp", at)
            > evidence.mean("noise", name, evidence.best_level("noise", name, at), at)
            for name, at in places
        ]
    except Missing:
        return ""
    return f"; an MLP is ahead of the best level in {sum(ahead)} of {len(ahead)} places"


def loses_less_than_gcn(evidence: Evidence) -> Finding:
    """Whether every level loses less than GCN from no random edges to as many as real ones."""
    losses: dict[str, float] = {}
    for name in ASSORTATIVE:
        for model in (*LEVELS, "gcn"):
            clean, noisy = (evidence.mean("noise", name, model, at) for at in (0.0, 1.0))
            losses[f"{name} {model}"] = clean - noisy
    words = ", ".join(
        f"{name} {min(losses[f'{name} {level}'] for level in LEVELS):.1f} to "
        f"{max(losses[f'{name} {level}'] for level in LEVELS):.1f} (gcn {losses[f'{name} gcn']:.1f})"
        for name in ASSORTATIVE
    )
    holds = all(losses[f"{name} {level}"] < losses[f"{name} gcn"] for name in ASSORTATIVE for level in LEVELS)
    return Finding(holds, f"points lost: {words}", losses)


# --- smoothing scores -------------------------------------------------------------------------------------------------


def score_range(dataset: str, low: float, high: float, evidence: Evidence, tolerance: float = 0.1) -> Finding:
    """Whether both ends of the range of scores, averaged over splits, are near the published ones."""
    found = evidence.gate("min", dataset), evidence.gate("max", dataset)
    near = abs(found[0] - low) <= tolerance and abs(found[1] - high) <= tolerance
    words = f"[{found[0]:.2f}, {found[1]:.2f}]"
    try:
        low, high = (evidence.gate(end, dataset, f"gfgn-graph{RAW}") for end in ("min", "max"))
        words += f"; with features as they come [{low:.2f}, {high:.2f}]"
    except Missing:
        pass
    return Finding(near, words, {"min": found[0], "max": found[1]})


def share_below(dataset: str, published: float, evidence: Evidence, tolerance: float = 10.0) -> Finding:
    """Whether the share of scores below 0.55, in %, is near the published one."""
    found = 100 * evidence.gate("below_055", dataset)
    return Finding(
        abs(found - published) <= tolerance, f"{found:.1f}%{_raw_below(dataset, evidence)}", {"below": found}
    )


def all_above(dataset: str, evidence: Evidence) -> Finding:
    """Whether all scores are at least 0.55."""
    found = 100 * evidence.gate("below_055", dataset)
    return Finding(found == 0, f"{found:.1f}% below{_raw_below(dataset, evidence)}", {"below": found})


def _raw_below(dataset: str, evidence: Evidence) -> str:
    """The share below 0.55 where features are taken as they come; nothing where it was not measured."""
    try:
        found = 100 * evidence.gate("below_055", dataset, f"gfgn-graph{RAW}")
    except Missing:
        return ""
    return f"; with features as they come {found:.1f}%"


def scores_vary(evidence: Evidence, least: float = 0.05) -> Finding:
    """Whether the scores of different dimensions differ on every graph of the paper's figure."""
    names = (*SCORED_DISASSORTATIVE, *ASSORTATIVE)
    widths = {name: evidence.gate("max", name) - evidence.gate("min", name) for name in names}
    narrow = min(widths, key=lambda name: widths[name])
    return Finding(widths[narrow] >= least, f"the narrowest range is {widths[narrow]:.2f} wide ({narrow})", widths)


def vary_more_on_disassortative(evidence: Evidence) -> Finding:
    """Whether the spread of scores is larger on every disassortative graph than on every assortative one."""
    wide = {name: evidence.gate("spread", name) for name in SCORED_DISASSORTATIVE}
    narrow = {name: evidence.gate("spread", name) for name in ASSORTATIVE}
    pairs = [wide[one] > narrow[other] for one in wide for other in narrow]
    words = f"standard deviation {_range(wide)} against {_range(narrow)}; larger in {sum(pairs)} of {len(pairs)} pairs"
    return Finding(all(pairs), words, wide | narrow)


def smaller_on_disassortative(evidence: Evidence) -> Finding:
    """Whether the mean score, averaged over graphs, is smaller on disassortative ones."""
    low = {name: evidence.gate("mean", name) for name in SCORED_DISASSORTATIVE}
    high = {name: evidence.gate("mean", name) for name in ASSORTATIVE}
    first, second = fmean(low.values()), fmean(high.values())
    return Finding(first < second, f"mean score {first:.2f} against {second:.2f}", low | high)


def scores_adapt(evidence: Evidence, least: float = 0.01) -> Finding:
    """Whether scores of one dimension differ between nodes and between pairs on every graph of the figures."""
    boxes = {f"neighbor {n}": evidence.gate("box", n, "gfgn-neighbor") for n in (*SCORED_DISASSORTATIVE, *ASSORTATIVE)}
    boxes |= {f"pair {n}": evidence.gate("box", n, "gfgn-pair") for n in ("blogcatalog", "flickr", "texas", "cora")}
    flat = min(boxes, key=lambda name: boxes[name])
    return Finding(boxes[flat] >= least, f"the flattest boxes are {boxes[flat]:.3f} high on average ({flat})", boxes)


def boxes_by_features(evidence: Evidence) -> Finding:
    """Whether boxes are flatter where features are users' interests than where they are words."""
    found: dict[str, float] = {}
    flatter = []
    for level, words in (("neighbor", ("texas", "cora", "citeseer")), ("pair", ("texas", "cora"))):
        model = f"gfgn-{level}"
        low = {f"{level} {name}": evidence.gate("box", name, model) for name in ("blogcatalog", "flickr")}
        high = {f"{level} {name}": evidence.gate("box", name, model) for name in words}
        flatter += [low[one] < high[other] for one in low for other in high]
        found |= low | high
    text = f"flatter in {sum(flatter)} of {len(flatter)} pairs of graphs"
    return Finding(all(flatter), text, found)


# --- λ ----------------------------------------------------------------------------------------------------------------

LAMBDA_DATASETS = ("blogcatalog", "cora")


def zero_is_mlp(evidence: Evidence) -> Finding:
    """Whether a GFGN with λ = 0 is, weight for weight, an MLP; beside it, what the study of λ has measured."""
    gap = mlp_difference()
    words = f"outputs {_apart(gap)}"
    try:
        gaps = [
            abs(evidence.mean("lambda", name, level, 0.0) - evidence.mean("lambda", name, "mlp"))
            for name in LAMBDA_DATASETS
            for level in LEVELS
        ]
        words += f"; trained apart, accuracies differ by at most {max(gaps):.1f} points"
    except Missing:
        pass
    return Finding(gap < 1e-9, words, {"difference": gap})


def mlp_difference(nodes: int = 40, features: int = 12) -> float:
    """Largest difference between the outputs of GFGNs with λ = 0 and MLPs with their weights, over the levels."""
    import torch

    from gfgn.nn import GFGN

    source = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, features, generator=source, dtype=torch.float64)
    edges = torch.randint(nodes, (2, 5 * nodes), generator=source)
    worst = 0.0
    for level in LEVELS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model: Any = GFGN(features, 4, 2, 3, level=level.removeprefix("gfgn-"), heads=2, lam=0.0)
        model = model.double().eval()
        first, last = model.convs
        hidden = (x @ first.lin.weight.t() + first.bias).relu()
        worst = max(worst, float((model(x, edges) - (hidden @ last.lin.weight.t() + last.bias)).abs().max().detach()))
    return worst


def ahead_of_mlp(evidence: Evidence) -> Finding:
    """Whether every level is ahead of the MLP at its best λ above 0, on both graphs."""
    gaps: dict[str, float] = {}
    for name in LAMBDA_DATASETS:
        base = evidence.mean("lambda", name, "mlp")
        for level in LEVELS:
            tried = [at for at in evidence.values("lambda", name, level) if at > 0]
            gaps[f"{name} {level}"] = max(evidence.mean("lambda", name, level, at) for at in tried) - base
    least = min(gaps, key=lambda name: gaps[name])
    return Finding(gaps[least] > 0, f"by at least {_signed(gaps[least])} points ({least})", gaps)


def drops(evidence: Evidence) -> dict[str, dict[str, Summary]]:
    """By graph and level, how many points are lost from the best λ to the largest."""
    found: dict[str, dict[str, Summary]] = {}
    for name in LAMBDA_DATASETS:
        for level in LEVELS:
            tried = evidence.values("lambda", name, level)
            means = {at: evidence.mean("lambda", name, level, at) for at in tried}
            best = max(means, key=means.__getitem__)
            cells = (evidence.of("lambda", name, level, at) for at in (best, tried[-1]))
            found.setdefault(name, {})[level] = paired(*cells)
    return found


def large_lambda_hurts(evidence: Evidence) -> Finding:
    """Whether on each graph some level loses significantly from its best λ to the largest."""
    lost = drops(evidence)
    holds = all(any(drop.low > 0 for drop in levels.values()) for levels in lost.values())
    return Finding(holds, _drops(lost), {f"{n} {m}": d.mean for n, some in lost.items() for m, d in some.items()})


def neighbor_most_stable(evidence: Evidence) -> Finding:
    """Whether GFGN-neighbor loses the least of the three levels from its best λ to the largest, on both graphs."""
    lost = drops(evidence)
    holds = all(
        levels["gfgn-neighbor"].mean < min(levels[level].mean for level in LEVELS if level != "gfgn-neighbor")
        for levels in lost.values()
    )
    return Finding(holds, _drops(lost), {f"{n} {m}": d.mean for n, some in lost.items() for m, d in some.items()})


def _drops(lost: dict[str, dict[str, Summary]]) -> str:
    words = []
    for name, levels in lost.items():
        of_level = ", ".join(f"{level.removeprefix('gfgn-')} {drop.mean:.1f}" for level, drop in levels.items())
        words.append(f"{name} {of_level}")
    return f"points lost: {'; '.join(words)}"


# --- the method -------------------------------------------------------------------------------------------------------


def is_gcn(evidence: Evidence) -> Finding:
    """Whether a layer with all scores at 1, on a graph with self-loops, is a GCN layer."""
    import torch
    from torch_geometric.nn import GCNConv

    from gfgn.graph import Graph
    from gfgn.nn import GFGNConv

    source = torch.Generator().manual_seed(0)
    x = torch.randn(30, 5, generator=source, dtype=torch.float64)
    half = torch.randint(30, (2, 60), generator=source)
    edges = torch.unique(torch.cat([half, half.flip(0)], dim=1), dim=1)
    edges = edges[:, edges[0] != edges[1]]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer: Any = GFGNConv(5, 4, level="graph", heads=1, lam=2.0, bias=False).double()
        gcn: Any = GCNConv(5, 4, bias=False).double()
    with torch.no_grad():
        layer.gate.zero_()  # σ(0) = ½, so that with λ = 2 every score is 1
        gcn.lin.weight.copy_(layer.lin.weight)
        graph = Graph.from_edge_index(edges, 30, self_loops="add", dtype=torch.float64)
        gap = float((layer(x, graph) - gcn(x, edges)).abs().max())
    return Finding(gap < 1e-9, f"outputs {_apart(gap)}", {"difference": gap})


def gates_are_small(evidence: Evidence, deep: bool, most: float = 5.0) -> Finding:
    """Whether gates add at most 5% to the parameters of the paper's networks, of two layers or deeper."""
    from gfgn.paper.parameters import USUAL, count_all

    shares = {f"{c.dataset} {c.level}": 100 * c.added for c in count_all() if (c.shape != USUAL) == deep}
    top = max(shares, key=lambda name: shares[name])
    return Finding(shares[top] <= most, f"at most +{shares[top]:.1f}% ({top})", shares)


def smoothness_is_eigenvalue(evidence: Evidence) -> Finding:
    """Whether the smoothness of every dimension of Cora's spectral embedding is its eigenvalue."""
    gap = evidence.number("motivation: smoothness less eigenvalue")
    return Finding(gap < 1e-6, f"they {_apart(gap)}", {"difference": gap})


def dimensions_differ(evidence: Evidence, most: float = 0.3) -> Finding:
    """Whether similarities to neighbours in two dimensions hardly go together for the median user."""
    found = evidence.number("motivation: rank correlation, median")
    return Finding(abs(found) <= most, f"median rank correlation {found:.2f}", {"correlation": found})


def homophily_divides(evidence: Evidence) -> Finding:
    """Whether every disassortative graph has a lower node homophily than every assortative one."""
    found = {name: evidence.homophily[name] for name in NINE if name in evidence.homophily}
    for name in NINE:
        if name not in found:
            raise Missing(f"the data of {name}")
    low, high = ({name: found[name] for name in some} for some in (DISASSORTATIVE, ASSORTATIVE))
    return Finding(max(low.values()) < min(high.values()), f"{_range(low)} against {_range(high)}", found)


# --- words ------------------------------------------------------------------------------------------------------------


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _apart(gap: float) -> str:
    return f"differ by at most {gap:.0e}" if gap else "do not differ"


def _interval(summary: Summary) -> str:
    return f"[{summary.low:.1f}, {summary.high:.1f}]".replace("-", "−")


def _range(values: dict[str, float]) -> str:
    return f"{min(values.values()):.2f} to {max(values.values()):.2f}"
