"""Verdicts on the claims of the paper: each entry of `claims.yaml` judged by what was measured.

A claim holds, does not hold, is undecided, or is not measured yet. Claims that are tests are judged together, with
Holm's correction. Stand-ins for datasets decide nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch

from gfgn.data import load
from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import node_homophily
from gfgn.data.files import read_yaml, replace_text
from gfgn.paper import facts
from gfgn.paper.evidence import Evidence, Missing, read_evidence
from gfgn.paper.inference import Binding, ClaimTest, Decision, decide
from gfgn.paper.pages import read_csv, title_of, write_csv, write_page
from gfgn.paper.studies import load_study
from gfgn.runs.record import is_gfgn
from gfgn.train.statistics import holm

HOLDS, FAILS, UNDECIDED, OPEN = "holds", "does not hold", "undecided", "not measured yet"
TEXTS = ("name", "where", "claim", "published", "rule")
ALPHA = 0.05  # the probability that any verdict on a claim that is a test is wrong
PERMUTATIONS = 20  # of classes, for the homophily of a graph whose links ignore them
GRAPHS = "graphs.csv"


class FactTest(NamedTuple):
    """A claim that is no test: a number of `gfgn.paper.facts` is at most a bound; up to another it is undecided."""

    fact: str
    most: float
    undecided: float = -np.inf
    given: Binding = MappingProxyType({})


class Claim(NamedTuple):
    """A statement of the paper that can be true or false."""

    name: str
    where: str  # where the paper makes it
    claim: str
    published: str  # the paper's figure
    rule: str  # the criterion in words
    study: str  # the study whose runs decide it, or ""; see `find_studies`
    check: FactTest | tuple[ClaimTest, ...]  # all of the tests
    agree: tuple[str, ...] = ()  # models in whose place each must show the same, as the paper does not say which it has


class Finding(NamedTuple):
    """What was found: the p-values of a test, or whether a fact is true (`None`: undecided); in words; as numbers."""

    result: Decision | bool | None
    measured: str
    values: Mapping[str, float]


class Verdict(NamedTuple):
    """`HOLDS`, `FAILS`, `UNDECIDED` or `OPEN`, with the measured figure, or what is missing, and its numbers.

    Attributes:
        p: Two-sided p-value after Holm's correction; `None` if the claim is not a test.
        plain: The verdict with the plain correction of Nadeau and Bengio for overlapping splits.
        uncapped: The verdict without the rule on baselines whose runs reach the last epoch allowed.
    """

    claim: Claim
    verdict: str
    measured: str
    values: Mapping[str, float]
    p: float | None
    plain: str
    uncapped: str


def read_claims(path: Path) -> Iterator[Claim]:
    """The claims of a file; an entry with `each` is one claim per dataset."""
    for study, entries in read_yaml(path).items():
        for entry in entries if study != "lists" else ():
            texts, check = {name: entry[name].strip() for name in TEXTS}, dict(entry["check"])
            agree = tuple(check.pop("agree", ()))
            for dataset, value in entry.get("each", {"": None}).items():
                if dataset:
                    names = {"dataset": dataset, "title": title_of(dataset), "value": value}
                    texts = {name: entry[name].strip().format(**names) for name in TEXTS}
                    check |= {"let": check["let"] | {"dataset": dataset}, "near": value}
                tests = (
                    FactTest(**check) if "fact" in check else tuple(ClaimTest(**t) for t in check.get("all", [check]))
                )
                yield Claim(**texts, study=study.removeprefix("method"), check=tests, agree=agree)


CLAIMS = tuple(read_claims(Path(__file__).with_name("claims.yaml")))


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """The verdicts on claims, which are one family of tests, and what they would be with other rules."""
    claims = [claim._replace(study=evidence.larger.get(claim.study, claim.study)) for claim in claims]
    findings = [find(claim, evidence) for claim in claims]
    others = []
    for other in (dataclasses.replace(evidence, plain=True), dataclasses.replace(evidence, capped={})):
        again = [find(c, other) if isinstance(f.result, Decision) else f for c, f in zip(claims, findings, strict=True)]
        others.append([word for word, _ in _words(again)])
    return [
        Verdict(claim, word, finding.measured, finding.values, p, *rest)
        for claim, finding, (word, p), *rest in zip(claims, findings, _words(findings), *others, strict=True)
    ]


def find(claim: Claim, evidence: Evidence) -> Finding:
    """What the evidence says about a claim; nothing but what is missing if something is."""
    try:
        if isinstance(claim.check, FactTest):
            function: Callable[..., facts.Fact] = getattr(facts, claim.check.fact)
            value, text, values = function(evidence, **claim.check.given)
            undecided = claim.check.most < value <= claim.check.undecided
            return Finding(None if undecided else value <= claim.check.most, text, values)
        return Finding(*decide(claim.check, evidence, claim.study, claim.agree))
    except Missing as missing:
        return Finding(None, f"missing: {missing}", {"missing": np.nan})


def _words(findings: Sequence[Finding]) -> list[tuple[str, float | None]]:
    """The verdicts on a family of claims, with the adjusted p-values of those that are tests."""
    adjusted = iter(holm([finding.result.p for finding in findings if isinstance(finding.result, Decision)]))
    words: list[tuple[str, float | None]] = []
    for result, _, values in findings:
        if isinstance(result, Decision):
            p = next(adjusted)
            words.append((UNDECIDED if p > ALPHA else HOLDS if result.holds < result.fails else FAILS, p))
        else:
            known = UNDECIDED if result is None else HOLDS if result else FAILS
            words.append((OPEN if "missing" in values else known, None))
    return words


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Judges every claim by the results in the folders next to `out` and writes a page, JSON and a table of graphs."""
    progress("claims: sizes and homophily of the graphs")
    graphs = {row["dataset"]: row for row in read_csv(out / GRAPHS)}
    nine = load_study("table1").datasets
    for name in nine:
        try:
            graphs[name] = {"dataset": name} | measure_graph(load(name, root, normalize=False))
        except OSError as error:
            progress(f"claims: skipping {name}: {error}")
    progress(f"claims: judging by the runs in {out.parent}")
    verdicts = judge(read_evidence(out.parent, graphs))
    rows = [list(graphs[name].values()) for name in nine if name in graphs]
    tables = [write_csv(out / GRAPHS, list(next(iter(graphs.values()))), rows)] if graphs else []
    return [replace_text(out / "claims.json", as_json(verdicts)), write(out, verdicts), *tables]


def measure_graph(data: NodeDataset) -> dict[str, str]:
    """Sizes, homophily with the classes and with permuted ones, and a hash of the features and classes."""
    draw = np.random.default_rng(0)
    orders = [torch.from_numpy(draw.permutation(data.num_nodes)) for _ in range(PERMUTATIONS)]
    nodes = hashlib.sha256(data.x.to_dense().contiguous().numpy().tobytes() + data.y.contiguous().numpy().tobytes())
    return {
        "nodes": str(data.num_nodes),
        "edges": str(data.graph.num_edges // 2),
        "features": str(data.x.size(1)),
        "classes": str(data.num_classes),
        "node_homophily": f"{node_homophily(data.graph, data.y):.6f}",
        "permuted_homophily": f"{np.mean([node_homophily(data.graph, data.y[order]) for order in orders]):.6f}",
        "nodes_sha256": nodes.hexdigest(),
    }


def as_json(verdicts: Sequence[Verdict]) -> str:
    """The content of `claims.json`: every claim with its verdict and all numbers."""
    entries = [
        {
            **{name: getattr(v.claim, name) for name in TEXTS},
            "verdict": v.verdict,
            "measured": v.measured,
            "p": None if v.p is None else float(f"{v.p:.3g}"),
            "plain": v.plain,
            "uncapped": v.uncapped,
            "values": {name: float(f"{value:.6g}") for name, value in v.values.items() if name != "missing"},
        }
        for v in verdicts
    ]
    return json.dumps({"claims": entries}, ensure_ascii=False, indent=2) + "\n"


def write(out: Path, verdicts: Sequence[Verdict]) -> Path:
    """Writes the page and returns its path."""
    failing = {v.claim.study for v in verdicts if v.verdict == FAILS and v.claim.study}
    studies = {name: load_study(name) for name in dict.fromkeys(v.claim.study for v in verdicts) if name in failing}
    counts = Counter(v.verdict for v in verdicts)
    return write_page(out / "README.md", "claims", verdicts=verdicts, counts=counts, studies=studies, is_gfgn=is_gfgn)
