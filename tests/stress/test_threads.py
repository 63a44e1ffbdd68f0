"""Many calls of training in several threads of one process; `tests/train/test_threads.py` is the short form."""

import pytest
from stress.cases import FACTOR
from train.concurrent_calls import check, make_calls

from gfgn.data.generators import dimensions


@pytest.mark.parametrize("count", [1, 2])
def test_results_are_those_of_the_calls_alone(count: int) -> None:
    check(make_calls(dimensions(100, seed=1), count), threads=4, rounds=FACTOR)
