"""Rules about the method and the graphs: what follows from arithmetic, a proof or the data files."""

from __future__ import annotations

from collections.abc import Sequence

from gfgn.paper.evidence import LEVELS, Evidence
from gfgn.paper.rules.finding import (
    ASSORTATIVE,
    DISASSORTATIVE,
    LAMBDA_DATASETS,
    NINE,
    Finding,
    listing,
    optional,
    span,
)


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

    return _exact(max(mlp_difference(level.removeprefix("gfgn-")) for level in LEVELS), optional(trained))


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
    return Finding(result, f"at most +{percent[top]:.1f}% ({top})" + f"; {listing(percent)}" * deep, percent)


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
    return Finding(max(low.values()) < min(high.values()), f"{span(low)} against {span(high)}", low | high)


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
    from gfgn.data.named.catalog import DATASETS

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
