"""`num_threads`: of the calling thread, whatever other threads do."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from gfgn.ops.thread_count import num_threads


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_new_thread(function: Callable[[], object]) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_other_threads_keep_theirs() -> None:
    with num_threads(1):
        assert torch.get_num_threads() == 1
        assert in_new_thread(torch.get_num_threads) == 3
        with num_threads(2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    assert in_new_thread(torch.get_num_threads) == 3


def test_blocks_of_threads_that_overlap() -> None:
    """The one that began first ends first: nothing of it is left, whichever is the last."""
    inside, leave = threading.Event(), threading.Event()
    seen: list[int] = []

    def second() -> None:
        seen.append(torch.get_num_threads())
        with num_threads(2):
            inside.set()
            leave.wait()
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=second)
    with num_threads(1):
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    assert seen == [3, 2, 3]
    assert torch.get_num_threads() == 3
    assert in_new_thread(torch.get_num_threads) == 3
