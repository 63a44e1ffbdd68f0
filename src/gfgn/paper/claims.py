"""Verdicts on the claims of the paper: each claim of `claims.yaml` judged by what was measured.

A claim holds, does not hold, is undecided, or is not measured yet. Claims that are tests are judged together, with
Holm's correction. Stand-ins for datasets decide nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gfgn.data.dataset import NodeDataset
from gfgn.paper import rules
from gfgn.paper.evidence import RUNS, TABLES, Evidence, Missing, find_studies, read_evidence, read_graphs
from gfgn.paper.inference import Decision
from gfgn.paper.outputs import markdown_table, write_csv, write_text
from gfgn.paper.titles import title_of
from gfgn.train.statistics import holm

HOLDS, FAILS, UNDECIDED, OPEN = "holds", "does not hold", "undecided", "not measured yet"
TEXTS = ("name", "where", "claim", "published", "rule")
ALPHA = 0.05  # the probability that any verdict on a claim that is a test is wrong
PERMUTATIONS = 20  # of classes, for the homophily of a graph whose links ignore them
GRAPHS = "graphs.csv"


class Claim(NamedTuple):
    """A statement of the paper that can be true or false."""

    name: str
    where: str  # where the paper makes it
    claim: str
    published: str  # the paper's own figure
    rule: str  # the criterion in words
    check: str  # the rule of `gfgn.paper.rules` that applies it
    arguments: Mapping[str, Any]
    study: str  # the study whose runs decide it, or ""; see `find_studies`


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


def _read(path: Path) -> Iterator[Claim]:
    for study, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for entry in entries:
            check = entry["check"]
            ((function, arguments),) = check.items() if isinstance(check, dict) else [(check, {})]
            rest = {"check": function, "study": "" if study == "method" else study}
            texts = {name: entry[name].strip() for name in TEXTS}
            if "each" not in entry:
                yield Claim(**texts, **rest, arguments=arguments)
            for dataset, value in entry.get("each", {}).items():
                filled = {k: v.format(dataset=dataset, title=title_of(dataset), value=value) for k, v in texts.items()}
                yield Claim(**filled, **rest, arguments=arguments | {"dataset": dataset, "published": value})


CLAIMS = tuple(_read(Path(__file__).with_name("claims.yaml")))


def judge(evidence: Evidence, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    """Returns the verdicts on claims, which are one family of tests, and what they would be with other rules."""
    claims = [claim._replace(study=evidence.larger.get(claim.study, claim.study)) for claim in claims]
    findings = [_find(claim, evidence) for claim in claims]
    plain, uncapped = (
        [word for word, _ in _words([_find_again(*each, other) for each in zip(claims, findings, strict=True)])]
        for other in (dataclasses.replace(evidence, plain=True), dataclasses.replace(evidence, capped={}))
    )
    verdicts = []
    for claim, finding, (word, p), *others in zip(claims, findings, _words(findings), plain, uncapped, strict=True):
        if isinstance(finding, Missing):
            finding = rules.Finding(None, f"missing: {finding}", {})
        verdicts.append(Verdict(claim, word, finding.measured, finding.values, p, *others))
    return verdicts


def _find_again(claim: Claim, finding: rules.Finding | Missing, evidence: Evidence) -> rules.Finding | Missing:
    """Returns what a rule finds by other evidence on runs, on which only tests depend."""
    if isinstance(finding, Missing) or not isinstance(finding.result, Decision):
        return finding
    return _find(claim, evidence)


def _words(findings: Sequence[rules.Finding | Missing]) -> list[tuple[str, float | None]]:
    """Returns the verdicts on a family of claims, with the adjusted p-values of those that are tests."""
    results = [OPEN if isinstance(finding, Missing) else finding.result for finding in findings]
    adjusted = iter(holm([result.p for result in results if isinstance(result, Decision)]))
    words: list[tuple[str, float | None]] = []
    for result in results:
        if isinstance(result, Decision):
            p = next(adjusted)
            words.append((UNDECIDED if p > ALPHA else HOLDS if result.holds < result.fails else FAILS, p))
        elif result == OPEN:
            words.append((OPEN, None))
        else:
            words.append((UNDECIDED if result is None else HOLDS if result else FAILS, None))
    return words


def _find(claim: Claim, evidence: Evidence) -> rules.Finding | Missing:
    try:
        return rules.apply(claim.check, claim.study, evidence, claim.arguments)
    except Missing as missing:
        return missing


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Judges every claim by the results in the folders next to `out` and writes a page, JSON and a table of graphs."""
    progress("claims: sizes and homophily of the graphs")
    graphs = read_graphs(out / GRAPHS) | measure_graphs(root, progress)
    progress(f"claims: runs of the studies in {out.parent}")
    evidence = read_evidence(out.parent, graphs)
    progress("claims: judging")
    rows = [list(graphs[name].values()) for name in rules.NINE if name in graphs]
    tables = [write_csv(out / GRAPHS, list(next(iter(graphs.values()))), rows)] if graphs else []
    return [*write(out, judge(evidence)), *tables]


def measure_graphs(root: Path | None, progress: Callable[[str], None]) -> dict[str, dict[str, str]]:
    """Returns a row of `graphs.csv` for those of the nine graphs that can be loaded."""
    from gfgn.data import load

    rows = {}
    for name in rules.NINE:
        try:
            rows[name] = {"dataset": name} | measure_graph(load(name, root, normalize=False))
        except OSError as error:
            progress(f"claims: skipping {name}: {error}")
    return rows


def measure_graph(data: NodeDataset) -> dict[str, str]:
    """Returns sizes, homophily with the classes and with permuted ones, and a hash of the features and classes."""
    import numpy as np
    import torch

    from gfgn.data.diagnosis import node_homophily

    draw = np.random.default_rng(0)
    permuted = [
        node_homophily(data.graph, data.y[torch.from_numpy(draw.permutation(data.num_nodes))])
        for _ in range(PERMUTATIONS)
    ]
    x = data.x if data.x.layout == torch.strided else data.x.to_dense()
    nodes = hashlib.sha256(x.contiguous().numpy().tobytes() + data.y.contiguous().numpy().tobytes())
    return {
        "nodes": str(data.num_nodes),
        "edges": str(data.graph.num_edges // 2),
        "features": str(data.x.size(1)),
        "classes": str(data.num_classes),
        "node_homophily": f"{node_homophily(data.graph, data.y):.6f}",
        "permuted_homophily": f"{np.mean(permuted):.6f}",
        "nodes_sha256": nodes.hexdigest(),
    }


def write(out: Path, verdicts: Sequence[Verdict]) -> list[Path]:
    """Writes `claims.json` and `README.md`."""
    text = as_json(verdicts, sources(out.parent))
    return [write_text(out / "claims.json", text), write_text(out / "README.md", page(verdicts))]


def sources(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file of a folder of results that the verdicts rest on."""
    names = [*(f"{study}/{RUNS}" for study in find_studies(folder)), *TABLES]
    paths = {name: folder / name for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.is_file()}


def as_json(verdicts: Sequence[Verdict], files: Mapping[str, str]) -> str:
    """Returns the content of `claims.json`: the files behind it, and every claim with its verdict."""
    entries = [
        {
            **{name: getattr(v.claim, name) for name in TEXTS},
            "verdict": v.verdict,
            "measured": v.measured,
            "p": None if v.p is None else float(f"{v.p:.3g}"),
            "plain": v.plain,
            "uncapped": v.uncapped,
            "values": {name: float(f"{value:.6g}") for name, value in v.values.items()},
        }
        for v in verdicts
    ]
    return json.dumps({"files": files, "claims": entries}, ensure_ascii=False, indent=2) + "\n"


# --- the page ---------------------------------------------------------------------------------------------------------


def page(verdicts: Sequence[Verdict]) -> str:
    """Returns the page in Markdown."""
    tests = sum(v.p is not None for v in verdicts)
    groups: dict[str, list[Verdict]] = {}
    for v in verdicts:
        groups.setdefault(v.claim.study, []).append(v)
    tables = "\n".join(_group(study, own) for study, own in groups.items())
    return f"""# The claims of the paper

Written by `gfgn reproduce claims` from the runs in the folders next to this one. Of {len(verdicts)} claims,
{tally(v.verdict for v in verdicts)}.

## How to read it

- **Tests.** The {tests} claims with a p-value are tests. One holds if the data rule out that it is false, does not hold
  if they rule out that it is true, and is undecided otherwise. The p-values are two-sided and corrected for the {tests}
  tests (Holm), so that the probability that any of these verdicts is wrong is at most {100 * ALPHA:.0f}%. The intervals
  are 95% intervals of single quantities: one can lie on one side of a bound and the verdict still be undecided.
- **Several comparisons in one claim.** "All of" is shown if each comparison is. That one of `n` fails is shown by a
  p-value of a single one that is `n` times smaller. Where a claim is about the best level or λ, the choice is inside
  the interval and the test; the figure in front of such an interval is that of the best mean, which errs upwards.
- **Figures** have a tolerance on both sides: a gain larger than the published one does not confirm it.
- **Baselines** are those measured here, tuned by the same procedure, not the published ones. A baseline whose chosen
  runs reach the last epoch allowed in more than 1% of cases could be trained further. A gain over it is an upper bound,
  which shows neither that a gain is large enough nor that it is too large: such a claim is at best undecided. Runs of
  the GFGN levels reach the last epoch too. Where a level is behind, that is a finding about the protocol of the paper.
- **Intervals** are in percentage points unless marked %, over splits, and corrected for their overlap, see
  [Metrics and statistics](../../docs/statistics.md#intervals); ranks have bootstrap intervals over graphs. Claims
  without a p-value follow from arithmetic, a proof or the data files: their numbers are exact.
- Stand-ins for datasets decide nothing.

{tables}
{_changes(verdicts)}
{_sensitivity(verdicts)}
{_efforts(verdicts)}
## Rules

{_rules(verdicts)}

[claims.json](claims.json) has the same content with all numbers; [{GRAPHS}]({GRAPHS}) has the properties of the graphs.
"""


def tally(words: Iterable[str]) -> str:
    """Returns the number of claims by verdict, in words."""
    counts = Counter(words)
    return (
        f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold, {counts[UNDECIDED]} are undecided and {counts[OPEN]} are "
        "not measured yet"
    )


def _group(study: str, verdicts: Sequence[Verdict]) -> str:
    """Returns the table of the claims that one study decides."""
    title = f"Decided by [{study}](../{study}/README.md)" if study else "The method and the graphs"
    shown = {FAILS: f"**{FAILS}**"}
    rows = [
        (
            f"`{v.claim.name}`: {v.claim.claim} ({v.claim.where})",
            v.claim.published,
            v.measured,
            "" if v.p is None else _p(v.p),
            shown.get(v.verdict, v.verdict),
        )
        for v in verdicts
    ]
    return f"## {title}\n\n{markdown_table(['claim', 'published', 'measured', 'p', 'verdict'], rows)}\n"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < ALPHA else f"{p:.2f}"


def _rules(verdicts: Sequence[Verdict]) -> str:
    """Returns every rule once, with the claims that it decides."""
    names: dict[str, list[str]] = {}
    for v in verdicts:
        names.setdefault(v.claim.rule, []).append(f"`{v.claim.name}`")
    return "\n".join(f"- {', '.join(own)}: {rule}" for rule, own in names.items())


def first_edition() -> dict[str, dict[str, str]]:
    """Returns the verdicts of the first edition by claim, and why they are other ones now."""
    text = Path(__file__).with_name("first_edition.yaml").read_text(encoding="utf-8")
    verdicts: dict[str, dict[str, str]] = yaml.safe_load(text)
    return verdicts


def _changes(verdicts: Sequence[Verdict]) -> str:
    """Returns the section on verdicts that are not those of the first edition."""
    old, groups = first_edition(), dict[tuple[str, str, str], list[str]]()
    for v in verdicts:
        before = old.get(v.claim.name)
        if before and before["verdict"] != v.verdict:
            groups.setdefault((before["verdict"], v.verdict, before.get("why", "").strip()), []).append(
                f"`{v.claim.name}`"
            )
    rows = [(", ".join(names), *texts) for texts, names in groups.items()]
    new = [f"`{v.claim.name}` ({v.verdict})" for v in verdicts if v.claim.name not in old]
    return f"""## What changed since the first edition

The first edition had {len(old)} claims, and a claim held or did not. Of these, {sum(map(len, groups.values()))} have
another verdict now:

{markdown_table(["claims", "first edition", "now", "why"], rows)}

New: {", ".join(new)}.
"""


def _sensitivity(verdicts: Sequence[Verdict]) -> str:
    """Returns the section on verdicts that depend on how intervals are corrected and on the rule on the last epoch."""
    changed = [
        (f"`{v.claim.name}`", v.verdict, v.plain, v.uncapped) for v in verdicts if {v.plain, v.uncapped} != {v.verdict}
    ]
    header = ["claim", "verdict", "plain Nadeau–Bengio", "without the rule on the last epoch"]
    listed = markdown_table(header, changed) if changed else "No verdict depends on either."
    return f"""## Verdicts that depend on the rules

Nadeau and Bengio (2003) replace the factor `1 / J` of the variance by `1 / J + n_test / n_train`, here 20/48, whatever
is compared. For differences of similar models this is conservative: with ten splits, its 95% intervals contain the
truth in 98 to 100% of cases ([measured](../../docs/statistics.md#do-they-contain-the-truth)). The other column takes
baselines as they are, however many of their runs reach the last epoch allowed.

{listed}
"""


def _efforts(verdicts: Sequence[Verdict]) -> str:
    """Returns a section on the studies behind claims that do not hold; nothing if there are none."""
    failing: dict[str, list[str]] = {}
    for v in verdicts:
        if v.verdict == FAILS and v.claim.study:
            failing.setdefault(v.claim.study, []).append(v.claim.name)
    lines = [f"- [{name}](../{name}/README.md) ({', '.join(own)}): {effort(name)}." for name, own in failing.items()]
    return "## What was tried where a claim does not hold\n\n" + "\n".join(lines) + "\n" if lines else ""


def effort(name: str) -> str:
    """Describes what a study trains."""
    from gfgn.paper.studies import load_study
    from gfgn.runs.record import is_gfgn

    study = load_study(name)
    levels = max(len(grid) for model, grid in study.models.items() if is_gfgn(model))
    others = sorted({len(grid) for model, grid in study.models.items() if not is_gfgn(model)})
    baselines = f" and {' to '.join(map(str, [*others[:1], *others[1:][-1:]]))} per baseline" if others else ""
    seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''}"
    return (
        f"{levels} configurations per level{baselines}, selected by validation for each graph; {study.splits} splits "
        f"with {seeds} each, at most {study.config.max_epochs} epochs"
    )
