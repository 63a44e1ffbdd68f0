"""How p-values of comparisons combine to the verdict on a claim: "all of", "some of" and "at least so many of"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gfgn.train.statistics import Estimate


class Decision(NamedTuple):
    """Two p-values of a statement: `holds` is small where it is shown to be true, `fails` where it is shown false."""

    holds: float
    fails: float

    @property
    def p(self) -> float:
        """The two-sided p-value: either could have been shown."""
        return min(1.0, 2 * min(self))

    def __invert__(self) -> Decision:
        """The test of the opposite statement."""
        return Decision(self.fails, self.holds)


def above(estimate: Estimate, value: float = 0.0, *, shown: bool = True) -> Decision:
    """Tests whether the truth is above `value`; nothing shows that it is where the estimate is too high."""
    return Decision(estimate.p_above(value) if shown else 1.0, estimate.p_below(value))


def at_least(number: int, tests: Sequence[Decision]) -> Decision:
    """Tests whether at least `number` of `n` statements are true, however they depend on each other.

    The p-value is `n − number + 1` times the `number`-th smallest (Benjamini and Heller, 2008): the largest for all of
    them, `n` times the smallest for some of them. The opposite is that at least `n − number + 1` are false.
    """
    if not 1 <= number <= len(tests):
        raise ValueError(f"number must be 1 to {len(tests)}, got {number}")
    holds, fails = sorted(test.holds for test in tests), sorted(test.fails for test in tests)
    others = len(tests) - number + 1
    return Decision(min(1.0, others * holds[number - 1]), min(1.0, number * fails[others - 1]))


def all_of(tests: Sequence[Decision]) -> Decision:
    """Tests whether all statements are true."""
    return at_least(len(tests), tests)


def any_of(tests: Sequence[Decision]) -> Decision:
    """Tests whether one or more of the statements are true: the choice of the best is inside."""
    return at_least(1, tests)


def between(low: Decision, high: Decision) -> Decision:
    """Tests whether a value is above one bound and below another, that is whether its interval lies inside of both or
    outside. It cannot be beyond both, so that nothing is corrected."""
    return Decision(max(low.holds, high.holds), min(low.fails, high.fails))


def agree(tests: Sequence[Decision]) -> Decision:
    """Tests a statement in several settings of which one is right, but not known: all have to show the same."""
    return Decision(max(test.holds for test in tests), max(test.fails for test in tests))
