"""The derivations agree with the paper's formulas in plain loops, and would not if a formula were another one."""

import pytest
import torch

from gfgn.nn import GFGNConv
from gfgn.paper import derivations
from gfgn.paper.derivations import filter_difference, gcn_difference, mlp_difference, step_difference


def test_what_the_paper_proves() -> None:
    differences = [gcn_difference(), filter_difference(), step_difference("graph"), step_difference("neighbor")]
    differences += [mlp_difference(level) for level in ("graph", "neighbor", "pair")]
    assert max(differences) < 1e-9


def test_pair_level_is_a_step_only_if_scores_are_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    assert step_difference("pair") > 0.01

    class Symmetric(GFGNConv):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            with torch.no_grad():  # the same weights for both ends of an edge
                self.gate[:, self.gate.size(1) // 2 :] = self.gate[:, : self.gate.size(1) // 2]

    monkeypatch.setattr(derivations, "GFGNConv", Symmetric)
    assert step_difference("pair") < 1e-9


def test_another_step_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = derivations._gradient
    monkeypatch.setattr(derivations, "_gradient", lambda *args: 1.01 * right(*args))
    assert step_difference("graph") > 1e-3
