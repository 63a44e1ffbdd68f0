"""The rules that the claims are judged by; `claims.yaml` states what each rule requires.

A rule takes the evidence and the arguments of the claim, and the claim's study where it has a parameter `study`. It
raises `Missing` if something has not been measured.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from gfgn.paper.evidence import Evidence
from gfgn.paper.rules import accuracy, gates, method
from gfgn.paper.rules.finding import NINE, Finding

__all__ = ["NINE", "Finding", "apply"]


def apply(name: str, study: str, evidence: Evidence, arguments: Mapping[str, Any]) -> Finding:
    """What the rule with a name finds."""
    (rule,) = (vars(module)[name] for module in (accuracy, gates, method) if name in vars(module))
    own = {"study": study} if "study" in inspect.signature(rule).parameters else {}
    finding: Finding = rule(evidence, **own, **arguments)
    return finding
