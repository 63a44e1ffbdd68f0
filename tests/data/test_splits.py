"""Random splits: disjoint, complete, and the same on every machine."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gfgn.data import DATASETS, random_splits
from gfgn.data.fingerprint import fingerprint_of_split


@given(num_nodes=st.integers(5, 400), count=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_parts_are_disjoint_and_cover(num_nodes: int, count: int, seed: int) -> None:
    splits = random_splits(num_nodes, count, seed)
    assert len(splits) == count
    for split in splits:
        assert torch.equal(torch.stack(list(split)).sum(0), torch.ones(num_nodes, dtype=torch.int64))
        assert split.train.sum() == round(0.48 * num_nodes)
        assert split.train.sum() + split.val.sum() == round(0.8 * num_nodes)


def test_the_draw_is_pinned() -> None:
    """All published scores depend on these nodes: if this fails, results of releases cannot be compared."""
    split = random_splits(12, 2, seed=7)[1]
    assert split.train.nonzero().view(-1).tolist() == [1, 2, 3, 7, 10, 11]
    assert split.test.nonzero().view(-1).tolist() == [0, 6]


@pytest.mark.parametrize("stratify", [None, torch.arange(100) % 3])
def test_more_splits_do_not_change_the_first(stratify: Tensor | None) -> None:
    few, many = (random_splits(100, count, seed=3, stratify=stratify) for count in (2, 5))
    for one, other in zip(few, many, strict=False):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert len({tuple(split.train.tolist()) for split in many}) == 5


def test_splits_and_seeds_differ() -> None:
    masks = [split.train for seed in (0, 1) for split in random_splits(200, 3, seed)]
    assert len({tuple(mask.tolist()) for mask in masks}) == 6


# --- stratified ------------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5).filter(lambda sizes: max(sizes) >= 3),
    unknown=st.integers(0, 5),
    seed=st.integers(0, 2**31),
)
def test_stratified_parts_have_the_fractions_in_every_class(sizes: list[int], unknown: int, seed: int) -> None:
    y = torch.cat([torch.full((size,), k) for k, size in enumerate(sizes)] + [torch.full((unknown,), -1)])
    y = y[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed))]
    for split in random_splits(y.numel(), 2, seed, stratify=y):
        assert torch.equal(torch.stack(list(split)).sum(0), (y >= 0).long())
        for k, size in enumerate(sizes):
            assert abs(int((split.train & (y == k)).sum()) - 0.48 * size) <= 0.5
            assert abs(int((split.test & (y == k)).sum()) - 0.2 * size) <= 0.5


def test_the_stratified_draw_is_pinned() -> None:
    split = random_splits(12, 2, seed=7, stratify=torch.arange(12) % 2)[1]
    assert split.train.nonzero().view(-1).tolist() == [1, 2, 3, 8, 10, 11]
    assert split.test.nonzero().view(-1).tolist() == [6, 9]


# --- pinned hashes ---------------------------------------------------------------------------------------------------

PINNED = {
    "blogcatalog": (
        5_196,
        "d6f9e48ac814bc321e563878e1b31fda daaf3a775178a58e67b77d48652f325b ae679163693896934da622750e96f2bf "
        "c52e555eb2b77bcf331d1aba839e5784 e9f84de79e83a50c7e2e0a01766633b0 f8cfe22ed16e13d663bc757ee21bcda9 "
        "69c5cb63f40a1a22f3fc22701797d7ac 4dc2048ad540111ce500958d5d6f1218 95089fd4445c4e9edf18ae53588706c5 "
        "557d26d5c7ed22ac3cccf2b0df866a68",
    ),
    "flickr": (
        7_575,
        "8e8d4a3c4fd071bbb8a0a3f5fbbed28c 1e280ffd153d638e0be484e7eccbea8f f05c8194ffca729ce95a94f2173a0a51 "
        "7f74067618342a3422c1c9dc4a15ab13 b66249b68ac80856617f2ff910836e53 3f852670b070442f38d2151fef264dbf "
        "61e8139e09bc2a397021036436cb6d53 3ca1fca4f76113b9070d1bcf00d95a48 62e857c6360d61a96cbb87c63e7782ac "
        "35c2ed6bbbcb4dc81afe5fb5c1489c9c",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_the_ten_random_splits_are_pinned(name: str) -> None:
    """All published scores on these graphs are on these splits."""
    num_nodes, expected = PINNED[name]
    assert DATASETS[name].statistics.nodes == num_nodes
    assert [fingerprint_of_split(split) for split in random_splits(num_nodes)] == expected.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be 1 or larger, got 0"),
        ({"train": 0.7, "val": 0.4}, "sum to at most 1, got 0.7 and 0.4"),
        ({"num_nodes": 2}, "num_nodes must be large enough .* got 2"),
        ({"seed": -1}, "seed must be made of non-negative integers"),
        ({"stratify": torch.zeros(49, dtype=torch.int64)}, r"stratify must be \[50\] of int64, got \[49\]"),
        ({"stratify": torch.zeros(50)}, r"stratify must be \[50\] of int64, got \[50\] of float32"),
        ({"stratify": torch.zeros(50, 2, dtype=torch.bool)}, r"stratify must be \[50\] of int64, got \[50, 2\]"),
        ({"stratify": torch.full((50,), -2)}, "stratify must hold classes from 0, or −1 .* got -2"),
        ({"stratify": torch.full((50,), -1)}, "stratify must be large enough"),
        ({"stratify": torch.arange(50)}, "stratify must be large enough"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_splits(**{"num_nodes": 50, **arguments})
