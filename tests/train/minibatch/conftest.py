"""One thread: the operations of these tests are too short to divide."""

from collections.abc import Iterator

import pytest

from gfgn.train.settings import num_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with num_threads(1):
        yield
