"""Every command answers as it did when `expected.json` was written."""

import json
from pathlib import Path
from typing import Any

import pytest
from golden.commands import EXPECTED, GRAPHS, answers, is_available, study_answers

GOLDEN = json.loads(EXPECTED.read_text(encoding="utf-8"))


def assert_same(actual: Any, expected: Any, where: str) -> None:
    """Numbers may differ by 1e-6, because processors round differently; all else must be equal."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected), where
        for name in expected:
            assert_same(actual[name], expected[name], f"{where} / {name}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{where} / {number}")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True), where
    else:
        assert actual == expected, where


@pytest.mark.parametrize("graph", GRAPHS)
def test_commands_answer_as_before(graph: str, tmp_path: Path) -> None:
    if not is_available(graph):
        pytest.skip("the files of texas are not in GFGN_DATA")
    assert_same(answers(graph, tmp_path), GOLDEN[graph], graph)


def test_a_study_answers_as_before(tmp_path: Path) -> None:
    assert_same(study_answers(tmp_path), GOLDEN["study"], "study")
