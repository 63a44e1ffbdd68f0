"""Verdicts on the claims of the paper: each claim of `claims.yaml` judged by what was measured.

A claim holds, does not hold, or is not measured yet. Stand-ins for datasets decide nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gfgn.paper import rules
from gfgn.paper.evidence import Evidence, Missing, read_evidence
from gfgn.paper.outputs import markdown_table, write_text
from gfgn.paper.titles import title_of

HOLDS, FAILS, OPEN = "holds", "does not hold", "not measured yet"
TEXTS = ("name", "where", "claim", "published", "rule")


class Claim(NamedTuple):
    """A statement of the paper that can be true or false."""

    name: str
    where: str  # where the paper makes it
    claim: str
    published: str  # the paper's own figure
    rule: str  # the criterion in words
    check: str  # the function of `gfgn.paper.rules` that applies it
    arguments: Mapping[str, Any]
    study: str  # the study whose runs decide it, or ""


class Verdict(NamedTuple):
    """`HOLDS`, `FAILS` or `OPEN`, with the measured figure, or what is missing, and its numbers."""

    claim: Claim
    verdict: str
    measured: str
    values: Mapping[str, float]


def _read(path: Path) -> Iterator[Claim]:
    for study, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for entry in entries:
            check = entry["check"]
            ((function, arguments),) = check.items() if isinstance(check, dict) else [(check, {})]
            rest = {"check": function, "study": "" if study == "method" else study}
            texts = {name: entry[name] for name in TEXTS}
            if "each" not in entry:
                yield Claim(**texts, **rest, arguments=arguments)
            for dataset, value in entry.get("each", {}).items():
                filled = {k: v.format(dataset=dataset, title=title_of(dataset), value=value) for k, v in texts.items()}
                yield Claim(**filled, **rest, arguments=arguments | {"dataset": dataset, "published": value})


CLAIMS = tuple(_read(Path(__file__).with_name("claims.yaml")))


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Returns the verdict on a claim."""
    try:
        finding = getattr(rules, claim.check)(evidence, **claim.arguments)
    except Missing as missing:
        return Verdict(claim, OPEN, f"missing: {missing}", {})
    return Verdict(claim, HOLDS if finding.holds else FAILS, finding.measured, finding.values)


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Judges every claim by the results in the folders next to `out` and writes a page and JSON."""
    progress("claims: homophily of the graphs")
    progress(f"claims: runs of the studies in {out.parent}")
    evidence = read_evidence(out.parent, homophily(root, progress))
    progress("claims: judging")
    return write(out, [judge(claim, evidence) for claim in CLAIMS])


def homophily(root: Path | None, progress: Callable[[str], None]) -> dict[str, float]:
    """Returns the node homophily of those of the nine graphs that can be loaded."""
    from gfgn.data import load
    from gfgn.data.diagnosis import node_homophily

    values = {}
    for name in rules.NINE:
        try:
            data = load(name, root)
        except OSError as error:
            progress(f"claims: skipping {name}: {error}")
            continue
        values[name] = node_homophily(data.graph, data.y)
    return values


def write(out: Path, verdicts: Sequence[Verdict]) -> list[Path]:
    """Writes `claims.json` and `README.md`."""
    entries = [
        {
            **{name: getattr(v.claim, name) for name in TEXTS},
            "verdict": v.verdict,
            "measured": v.measured,
            "values": {name: round(value, 6) for name, value in v.values.items()},
        }
        for v in verdicts
    ]
    text = json.dumps(entries, ensure_ascii=False, indent=2)
    return [write_text(out / "claims.json", text), write_text(out / "README.md", page(verdicts))]


def page(verdicts: Sequence[Verdict]) -> str:
    """Returns the table of claims in Markdown."""
    counts = Counter(v.verdict for v in verdicts)
    shown = {HOLDS: HOLDS, FAILS: f"**{FAILS}**", OPEN: OPEN}
    rows = [(v.claim.claim, v.claim.where, v.claim.published, v.measured, shown[v.verdict]) for v in verdicts]
    numbers = f"{counts[HOLDS]} hold, {counts[FAILS]} do not hold and {counts[OPEN]} are not measured yet"
    criteria = "\n".join(f"- {v.claim.claim} *{v.claim.rule}*" for v in verdicts)
    return f"""# The claims of the paper

Written by `gfgn reproduce claims` from the runs in the folders next to this one.
Of {len(verdicts)} claims, {numbers}.

Scores and their differences are in percentage points; intervals are 95% intervals over splits. Baselines are those
measured here, tuned like the GFGN levels, not the published ones. Stand-ins for datasets decide nothing.

{markdown_table(["claim", "where", "published", "measured", "verdict"], rows)}
{_efforts(verdicts)}
## Criteria

{criteria}

[claims.json](claims.json) has the same content with all numbers.
"""


def _efforts(verdicts: Sequence[Verdict]) -> str:
    """Returns a section on the studies behind claims that do not hold; nothing if there are none."""
    failing: dict[str, list[str]] = {}
    for v in verdicts:
        if v.verdict == FAILS and v.claim.study:
            failing.setdefault(v.claim.study, []).append(v.claim.name)
    lines = [f"- [{name}](../{name}/README.md) ({', '.join(own)}): {effort(name)}." for name, own in failing.items()]
    return "\n## What was tried where a claim does not hold\n\n" + "\n".join(lines) + "\n" if lines else ""


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
