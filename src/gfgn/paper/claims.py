"""The sentences of the paper that can be true or false, each as a rule over what was measured.

A claim says where the paper makes it, what it publishes and how it is judged; `judge` gives its verdict. A claim that
does not hold is reported so, and one whose runs are missing as not measured yet. Stand-ins decide nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gfgn.paper import rules
from gfgn.paper.evidence import Evidence, Missing, read_evidence
from gfgn.paper.outputs import markdown_table, write_text
from gfgn.paper.rules import NINE, Finding
from gfgn.paper.titles import title_of

HOLDS, FAILS, OPEN = "holds", "does not hold", "not measured yet"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be true or false.

    Attributes:
        name: Short name.
        place: Where the paper makes it.
        sentence: What it says, in our words.
        published: The paper's own figure.
        rule: How it is judged, in words.
        judge: How it is judged; raises `Missing` where something has not been measured.
        study: The study whose runs it is judged by, if any.
    """

    name: str
    place: str
    sentence: str
    published: str
    rule: str
    judge: Callable[[Evidence], Finding]
    study: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim with what came of it: `verdict` is `"holds"`, `"does not hold"` or `"not measured yet"`; `measured` is
    the figure, or what is missing."""

    claim: Claim
    verdict: str
    measured: str
    values: dict[str, float]


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim."""
    try:
        found = claim.judge(evidence)
    except Missing as missing:
        return Verdict(claim, OPEN, f"missing: {missing}", {})
    return Verdict(claim, HOLDS if found.holds else FAILS, found.measured, found.values)


# --- the list ---------------------------------------------------------------------------------------------------------

GAINS = {
    "blogcatalog": 21.7,
    "flickr": 37.9,
    "texas": 30.2,
    "wisconsin": 38.6,
    "cornell": 42.0,
    "actor": 14.5,
    "cora": 0.0,
    "citeseer": 0.5,
    "pubmed": 1.4,
}
"""Table 1, last row."""
NOISE_GAINS = {"cora": 3.5, "citeseer": 4.8, "pubmed": 8.1}
REACHES = "The 95% interval of the measured gain, best level less GCN on the same splits and seeds, reaches the figure."


def _method_claims() -> list[Claim]:
    return [
        Claim(
            "social-dimensions",
            "Section 1, Figure 1",
            "A user of BlogCatalog has very different similarities with its neighbours in different dimensions.",
            "one user with 18 neighbours",
            "Over all users, the median rank correlation of similarities in two principal components is within ±0.3.",
            rules.dimensions_differ,
        ),
        Claim(
            "spectral-smoothness",
            "Section 1, Appendix A.1",
            "The smoothness of a dimension of a spectral embedding is its eigenvalue.",
            "proof",
            "On Cora, summed edge by edge, they differ by less than 1e-6 in every dimension.",
            rules.smoothness_is_eigenvalue,
        ),
        Claim(
            "gcn-is-a-case",
            "Section 3.2",
            "With every score at 1 and self-loops in the graph, the layer is that of GCN.",
            "proof",
            "Outputs on a random graph differ by less than 1e-9 from PyG's GCNConv.",
            rules.is_gcn,
        ),
        Claim(
            "lambda-zero",
            "Section 4.4",
            "With λ = 0, GFGN is an MLP.",
            "by definition",
            "Outputs with the same weights differ by less than 1e-9 at every level.",
            rules.zero_is_mlp,
        ),
        Claim(
            "few-parameters",
            "Section 3.6",
            "With √D heads the gates' parameters are negligible: two layers, 8 heads of 8 units.",
            "negligible",
            "Gates add at most 5% to GCN's parameters on each of the nine graphs.",
            partial(rules.gates_are_small, deep=False),
        ),
        Claim(
            "few-parameters-deep",
            "Section 3.6",
            "With √D heads the gates' parameters are negligible: the deep networks for ogbn-arxiv and PPI.",
            "negligible",
            "Gates add at most 5% to GCN's parameters on both.",
            partial(rules.gates_are_small, deep=True),
        ),
        Claim(
            "homophily",
            "Section 4.1",
            "BlogCatalog, Flickr, Texas, Wisconsin, Cornell and Actor have a low node homophily, the rest a high one.",
            "no figures",
            "Each of the six has a lower node homophily than each of Cora, Citeseer and Pubmed.",
            rules.homophily_divides,
        ),
    ]


def _arithmetic_claims() -> list[Claim]:
    """What the paper's own numbers decide."""
    return [
        Claim(
            "arithmetic-of-ranks",
            "Table 1, last column",
            "The average ranks are those of the scores in the table.",
            "ten ranks",
            "Ranked anew from the published scores, ties sharing the better rank, all agree to one decimal.",
            rules.published_ranks,
        ),
        Claim(
            "arithmetic-of-gains",
            "Table 1, last row",
            "The improvements over GCN are those of the scores in the table.",
            "nine gains",
            "Worked out anew from the published scores, all agree to one decimal.",
            rules.published_gains,
        ),
    ]


def _table_claims() -> list[Claim]:
    rows = [
        Claim(
            f"gain-{name}",
            "Table 1, last row",
            f"GFGN improves GCN by {value:g}% on {title_of(name)}."
            if value
            else f"GFGN is level with GCN on {title_of(name)}.",
            f"+{value:g}%",
            REACHES,
            partial(rules.relative_gain, name, value),
        )
        for name, value in GAINS.items()
    ]
    rows += [
        Claim(
            f"margin-{name}",
            "Section 4.2, observation (1)",
            f"GFGN is {value:g} points ahead of GCN on {title_of(name)}.",
            f"+{value:g}",
            REACHES,
            partial(rules.margin, name, value),
        )
        for name, value in (("flickr", 25.24), ("cornell", 24.35))
    ]
    return [
        Claim(
            "ranks",
            "Table 1; Section 4.2, observation (1)",
            "The three levels have the best average ranks.",
            "graph 2.8, neighbor 2.4, pair 2.7; then geom-gcn 5.0",
            "Each level's average rank over the nine graphs is better than each baseline's, all of them measured here.",
            rules.levels_lead_ranks,
        ),
        Claim(
            "rank-of-neighbor",
            "Table 1",
            "GFGN-neighbor has the best average rank of all.",
            "2.4",
            "Its average rank over the nine graphs is the best of the three levels'.",
            rules.neighbor_ranks_first,
        ),
        Claim(
            "best-on-most",
            "Section 4.2, observation (1)",
            "A level is the best on 8 of the 10 graphs.",
            "7 of the 9 without ogbn-arxiv",
            "A level is the best, or level with the best baseline, on at least 7 of the nine.",
            rules.best_on_most,
        ),
        *rows,
        Claim(
            "larger-on-disassortative",
            "Section 4.2, observation (2)",
            "Gains over GCN are much larger on disassortative graphs.",
            "at least 14.5% against at most 1.4%",
            "The smallest gain on the six is larger than the largest on Cora, Citeseer and Pubmed.",
            rules.larger_on_disassortative,
        ),
        Claim(
            "beats-local-aggregation",
            "Section 4.2, observation (2)",
            "GCN, GAT and SGC fall behind on disassortative graphs.",
            "by at least 4.3 points (actor)",
            "Each level's mean is above each of theirs on each of the six.",
            rules.beats_local_aggregation,
        ),
        Claim(
            "does-not-hurt",
            "Section 4.2, observation (2)",
            "On assortative graphs gating does not hurt.",
            "cora 0.00, citeseer +0.41, pubmed +1.21",
            "The 95% interval of the best level less GCN does not lie below 0 on any of the three.",
            rules.does_not_hurt,
        ),
        Claim(
            "graph-on-wisconsin",
            "Section 4.2, observation (3)",
            "GFGN-graph is significantly ahead of both other levels on Wisconsin.",
            "+1.00 over gfgn-neighbor, +1.66 over gfgn-pair",
            "The 95% intervals of both differences lie above 0.",
            rules.graph_leads_wisconsin,
        ),
        Claim(
            "pair-on-flickr",
            "Section 4.2, observation (3)",
            "GFGN-pair is the best level on Flickr.",
            "graph 90.97, neighbor 90.85, pair 91.89",
            "Its mean is the highest of the three.",
            rules.pair_leads_flickr,
        ),
        Claim(
            "arxiv",
            "Table 1",
            "All levels are ahead of all baselines on ogbn-arxiv.",
            "graph 72.20, neighbor 72.21, pair 72.43; best baseline appnp 71.84",
            "Each level's mean is above each baseline's, on the real data.",
            rules.leads_arxiv,
            "arxiv",
        ),
        Claim(
            "ppi-neighbor",
            "Section 4.2, Table 2",
            "GFGN-neighbor outperforms the other methods on PPI.",
            "99.32 against 98.71 (gaan)",
            "Its mean micro-F1 is the highest, on the real data.",
            rules.neighbor_leads_ppi,
            "table2",
        ),
        Claim(
            "ppi-competitive",
            "Section 4.2, Table 2",
            "All three levels are competitive on PPI.",
            "graph 99.27, neighbor 99.32, pair 98.40; best baseline 98.71",
            "No level is more than a point behind the best baseline, on the real data.",
            rules.competitive_on_ppi,
            "table2",
        ),
    ]


def _noise_claims() -> list[Claim]:
    return [
        *(
            Claim(
                f"noise-{name}",
                "Section 4.3",
                f"With as many random edges as real ones, GFGN is {value:g} points ahead of GCN on {title_of(name)}.",
                f"+{value:g}",
                REACHES,
                partial(rules.noise_gain, name, value),
            )
            for name, value in NOISE_GAINS.items()
        ),
        Claim(
            "noise-all",
            "Section 4.3, Figure 3",
            "All levels are ahead of all baselines at every share of random edges.",
            "always (yet without noise, Table 1 has GGNN ahead on Pubmed)",
            "Each level's mean is above each baseline's at every share above 0 on all three graphs.",
            rules.leads_under_noise,
        ),
        Claim(
            "noise-robust",
            "Section 4.3",
            "GFGN is more robust to random edges than GCN.",
            "no figures",
            "From none to as many as real ones, each level loses fewer points than GCN on all three graphs.",
            rules.loses_less_than_gcn,
        ),
    ]


def _score_claims() -> list[Claim]:
    near = "Both ends, averaged over ten splits, are within 0.1 of the published ones."
    return [
        Claim(
            "scores-vary",
            "Section 4.4, observation (1)",
            "The scores of GFGN-graph differ between dimensions on all graphs.",
            "a range each",
            "The range of scores is at least 0.05 wide on each of the eight graphs.",
            rules.scores_vary,
        ),
        Claim(
            "scores-range-blogcatalog",
            "Section 4.4, observation (1)",
            "On BlogCatalog scores span [0.06, 1.66].",
            "[0.06, 1.66]",
            near,
            partial(rules.score_range, "blogcatalog", 0.06, 1.66),
        ),
        Claim(
            "scores-range-cora",
            "Section 4.4, observation (1)",
            "On Cora scores span [0.55, 0.87].",
            "[0.55, 0.87]",
            near,
            partial(rules.score_range, "cora", 0.55, 0.87),
        ),
        Claim(
            "scores-variance",
            "Section 4.4, observation (1)",
            "Scores vary much more on disassortative graphs than on assortative ones.",
            "range 1.60 wide on BlogCatalog, 0.32 on Cora",
            "The standard deviation over dimensions is larger on each of the five disassortative graphs than on each "
            "of the three others.",
            rules.vary_more_on_disassortative,
        ),
        Claim(
            "scores-below-blogcatalog",
            "Section 4.4, observation (2)",
            "On BlogCatalog 64.1% of the scores are below 0.55.",
            "64.1%",
            "The share, averaged over ten splits, is within 10 points of it.",
            partial(rules.share_below, "blogcatalog", 64.1),
        ),
        Claim(
            "scores-above-cora",
            "Section 4.4, observation (2)",
            "On Cora all scores are above 0.55.",
            "0% below",
            "None is below, on any of ten splits.",
            partial(rules.all_above, "cora"),
        ),
        Claim(
            "scores-smaller",
            "Section 4.4, observation (2)",
            "Scores tend to be smaller on disassortative graphs.",
            "no figures",
            "The mean score, averaged over the five disassortative graphs, is below that of the three others.",
            rules.smaller_on_disassortative,
        ),
        Claim(
            "scores-adapt",
            "Appendix A.4",
            "At neighbour and pair level, scores differ between nodes and between pairs.",
            "boxes of various heights",
            "The mean distance between quartiles within a dimension is at least 0.01 on every graph of the figures.",
            rules.scores_adapt,
        ),
        Claim(
            "scores-boxes",
            "Appendix A.4",
            "Within a dimension, scores vary less on BlogCatalog and Flickr than on Texas, Cora and Citeseer.",
            "no figures",
            "The mean distance between quartiles is smaller on each of the two than on each of the others.",
            rules.boxes_by_features,
        ),
    ]


def _lambda_claims() -> list[Claim]:
    return [
        Claim(
            "lambda-mlp",
            "Section 4.4, observation (1)",
            "With an appropriate λ every level is ahead of an MLP.",
            "no figures",
            "On both graphs each level's best mean over λ above 0 is above the MLP's.",
            rules.ahead_of_mlp,
        ),
        Claim(
            "lambda-large",
            "Section 4.4, observation (1)",
            "A large λ can hurt.",
            "no figures",
            "On each graph some level's loss from its best λ to the largest has a 95% interval above 0.",
            rules.large_lambda_hurts,
        ),
        Claim(
            "lambda-stable",
            "Section 4.4, observation (2)",
            "GFGN-neighbor is the most stable level as λ grows.",
            "no figures",
            "It loses the fewest points of the three from its best λ to the largest, on both graphs.",
            rules.neighbor_most_stable,
        ),
    ]


def _of(study: str, claims: Sequence[Claim]) -> list[Claim]:
    return [replace(claim, study=claim.study or study) for claim in claims]


CLAIMS: tuple[Claim, ...] = (
    *_method_claims(),
    *_arithmetic_claims(),
    *_of("table1", _table_claims()),
    *_of("noise", _noise_claims()),
    *_of("scores", _score_claims()),
    *_of("lambda", _lambda_claims()),
)


# --- files ------------------------------------------------------------------------------------------------------------


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Judges every claim by what the folders beside `out` have and writes a table and JSON; see
    `gfgn.paper.analyses` for the arguments."""
    progress("claims: homophily of the graphs")
    evidence = read_evidence(out.parent, homophily(root, progress))
    progress("claims: judging")
    return write(out, [judge(claim, evidence) for claim in CLAIMS])


def homophily(root: Path | None, progress: Callable[[str], None]) -> dict[str, float]:
    """Node homophily of those of the nine graphs that can be loaded."""
    from gfgn.data import load
    from gfgn.data.diagnosis import node_homophily

    found = {}
    for name in NINE:
        try:
            data = load(name, root)
        except OSError as error:
            progress(f"claims: left out {name}: {error}")
            continue
        found[name] = node_homophily(data.graph, data.y)
    return found


def write(out: Path, verdicts: Sequence[Verdict]) -> list[Path]:
    """Writes `claims.json` and `README.md`."""
    entries = [
        {
            "name": v.claim.name,
            "place": v.claim.place,
            "claim": v.claim.sentence,
            "published": v.claim.published,
            "rule": v.claim.rule,
            "verdict": v.verdict,
            "measured": v.measured,
            "values": {name: round(value, 6) for name, value in v.values.items()},
        }
        for v in verdicts
    ]
    text = json.dumps(entries, ensure_ascii=False, indent=2)
    return [write_text(out / "claims.json", text), write_text(out / "README.md", page(verdicts))]


def page(verdicts: Sequence[Verdict]) -> str:
    """The table of claims, in Markdown."""
    counts = Counter(v.verdict for v in verdicts)
    told = f"{counts[HOLDS]} hold, {counts[FAILS]} do not, {counts[OPEN]} are not measured yet"
    rows = [(v.claim.sentence, v.claim.place, v.claim.published, v.measured, _bold(v.verdict)) for v in verdicts]
    rules_in_words = "\n".join(f"- {v.claim.sentence} *{v.claim.rule}*" for v in verdicts)
    return f"""# The paper's claims, one by one

Written by `gfgn reproduce claims` from the runs in the folders beside this one. Of {len(verdicts)} claims, {told}.
Scores and differences of scores are in points of per cent, intervals are 95% intervals over splits. Baselines are those
measured here, tuned as the gated levels are, not the published ones. Stand-ins for datasets decide nothing.

{markdown_table(["claim", "where", "published", "measured", "verdict"], rows)}
{_what_was_tried(verdicts)}
## How each is judged

{rules_in_words}

[claims.json](claims.json) has the same with all numbers.
"""


def _bold(verdict: str) -> str:
    return f"**{verdict}**" if verdict == FAILS else verdict


def _what_was_tried(verdicts: Sequence[Verdict]) -> str:
    """A section on the claims that do not hold; nothing if there is none."""
    failing = [v for v in verdicts if v.verdict == FAILS]
    studies = list(dict.fromkeys(v.claim.study for v in failing if v.claim.study))
    if not studies:
        return ""
    lines = []
    for name in studies:
        names = ", ".join(v.claim.name for v in failing if v.claim.study == name)
        lines.append(f"- [{name}](../{name}/README.md) ({names}): {effort(name)}.")
    return "\n## What was tried where a claim does not hold\n\n" + "\n".join(lines) + "\n"


def effort(study: str) -> str:
    """What a study trains, in words."""
    from gfgn.paper.studies import load_study

    found = load_study(study)
    levels = {model: len(some) for model, some in found.models.items() if model.startswith("gfgn-")}
    others = {model: len(some) for model, some in found.models.items() if model not in levels}
    counts = f"{max(levels.values())} configurations of every level"
    fewest, most = min(others.values(), default=0), max(others.values(), default=0)
    counts += f" and {fewest if fewest == most else f'{fewest} to {most}'} of every other model" if others else ""
    return (
        f"{counts}, chosen by validation for each graph; {found.splits} splits with {found.seeds} "
        f"seed{'s' if found.seeds > 1 else ''} each, at most {found.config.max_epochs} epochs"
    )
