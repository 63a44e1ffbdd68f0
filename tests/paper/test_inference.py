"""How p-values combine, against plain counting and simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfgn.paper.inference import Decision, above, agree, all_of, any_of, at_least, between
from gfgn.train.statistics import Estimate

decisions = st.lists(st.builds(Decision, st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6)


@given(decisions)
def test_all_and_any_are_opposites(tests: list[Decision]) -> None:
    assert ~all_of(tests) == any_of([~test for test in tests])
    for number in range(1, len(tests) + 1):
        assert ~at_least(number, tests) == at_least(len(tests) - number + 1, [~test for test in tests])


def test_by_hand() -> None:
    tests = [Decision(0.01, 0.99), Decision(0.02, 0.98), Decision(0.6, 0.4)]
    assert all_of(tests) == Decision(0.6, 1.0)
    assert any_of(tests) == Decision(0.03, 0.99)
    assert at_least(2, tests) == Decision(0.04, 1.0)
    assert agree(tests) == Decision(0.6, 0.99)
    assert between(tests[0], tests[2]) == Decision(0.6, 0.4)
    assert tests[0].p == 0.02
    with pytest.raises(ValueError, match="number must be 1 to 3, got 4"):
        at_least(4, tests)


def test_a_bound_is_not_shown_to_be_exceeded() -> None:
    gap = Estimate(5.0, 0.1, 10)
    assert above(gap).holds < 0.001
    assert above(gap, shown=False) == Decision(1.0, above(gap).fails)


@pytest.mark.parametrize("true", [0, 1, 2])
def test_at_least_two_of_three_is_wrong_in_few_cases(true: int) -> None:
    """With fewer than two true statements, at least two are shown in at most 5% of cases; and the other way round."""
    draw, times = np.random.default_rng(true), 2000
    means = np.array([4.0] * true + [0.0] * (3 - true))  # standard errors above 0, of which a statement is that it is
    wrong = 0
    for _ in range(times):
        values = draw.normal(size=(8, 3)) * np.sqrt(8) + means
        tests = [
            above(Estimate(float(column.mean()), float(column.std(ddof=1)) / np.sqrt(8), 8)) for column in values.T
        ]
        result = at_least(2, tests)
        wrong += (result.fails if true == 2 else result.holds) < 0.05
    assert wrong / times <= 0.06
