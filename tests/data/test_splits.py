"""Random splits: disjoint, covering, and the same everywhere."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfgn.data import random_splits


@given(num_nodes=st.integers(5, 400), count=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_parts_are_disjoint_and_cover(num_nodes: int, count: int, seed: int) -> None:
    splits = random_splits(num_nodes, count, seed)
    assert len(splits) == count
    for split in splits:
        assert torch.equal(torch.stack(list(split)).sum(0), torch.ones(num_nodes, dtype=torch.int64))
        assert split.train.sum() == round(0.48 * num_nodes)
        assert split.train.sum() + split.val.sum() == round(0.8 * num_nodes)


def test_the_draw_is_pinned() -> None:
    """These nodes are part of every published number: if this fails, results of other releases do not compare."""
    split = random_splits(12, 2, seed=7)[1]
    assert split.train.nonzero().view(-1).tolist() == [1, 2, 3, 7, 10, 11]
    assert split.test.nonzero().view(-1).tolist() == [0, 6]


def test_more_splits_do_not_change_the_first() -> None:
    few, many = random_splits(100, 2, seed=3), random_splits(100, 5, seed=3)
    for one, other in zip(few, many, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_splits_and_seeds_differ() -> None:
    masks = [split.train for seed in (0, 1) for split in random_splits(200, 3, seed)]
    assert len({tuple(mask.tolist()) for mask in masks}) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be 1 or larger, got 0"),
        ({"train": 0.7, "val": 0.3}, "sum below 1, got 0.7 and 0.3"),
        ({"num_nodes": 2}, "num_nodes must be large enough .* got 2"),
        ({"seed": -1}, "seed must be made of non-negative integers"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_splits(**{"num_nodes": 50, **arguments})  # type: ignore[arg-type]
