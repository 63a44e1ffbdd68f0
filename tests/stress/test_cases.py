"""The seeded cases themselves: the same for the same seed, and different from the original."""

import pytest
from stress.cases import Cases, cases, damaged, damaged_text, gfgn


def test_a_case_is_a_function_of_its_seed() -> None:
    content, text = bytes(range(256)) * 4, "a: 1\nb: [2, 3]\n"
    assert all(damaged(content, seed) == damaged(content, seed) for seed in range(20))
    assert sum(damaged(content, seed) != content for seed in range(50)) > 40
    assert len({damaged_text(text, seed) for seed in range(50)}) > 25


def test_every_test_of_this_folder_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("stress") is not None


def test_the_command_runs_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert gfgn(capsys, "--version").code == 0
    assert gfgn(capsys, "compare", "--seeds", "x").code == 2


def test_cases_are_counted() -> None:
    before = Cases.run
    assert len(list(cases(3))) == len(cases(3))
    assert Cases.run - before == len(cases(3))
    Cases.run = before  # they are none
