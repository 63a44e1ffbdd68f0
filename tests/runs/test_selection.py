"""Grids, and the choice of a configuration by validation scores."""

from types import SimpleNamespace
from typing import Any

import pytest
from runs.stores import row

from gfgn.runs import grid, make_replicas, select
from gfgn.train import Replica


def test_grids_and_replicas() -> None:
    assert grid(lr=(0.1, 0.2), lam=1.0, hidden=[8, 16]) == [
        {"lr": 0.1, "lam": 1.0, "hidden": 8},
        {"lr": 0.1, "lam": 1.0, "hidden": 16},
        {"lr": 0.2, "lam": 1.0, "hidden": 8},
        {"lr": 0.2, "lam": 1.0, "hidden": 16},
    ]
    assert grid() == [{}]
    assert make_replicas("gfgn-graph", grid(lr=0.1, hidden=8), [2, 1], [0, 5]) == [
        Replica(split, seed, lr=0.1, options=(("hidden", 8),)) for split in (2, 1) for seed in (0, 5)
    ]
    with pytest.raises(ValueError, match=r"lr must be one or more distinct values, got \(0.1, 0.1\)"):
        grid(lr=(0.1, 0.1))
    with pytest.raises(ValueError, match=r"lr must be one or more distinct values, got \(\)"):
        grid(lr=())
    with pytest.raises(ValueError, match="choices must be hyperparameters or options of a model, got 'split'"):
        grid(split=(0, 1))


def test_the_best_mean_validation_score_wins() -> None:
    rows = [row(split, lr=0.1, val=val, test=1.0) for split, val in enumerate((0.5, 0.9, 0.5))]
    rows += [row(split, lr=0.2, val=val, test=0.0) for split, val in enumerate((0.7, 0.7, 0.7))]
    selection = select(rows)
    assert selection.best["lr"] == 0.2
    first, second = selection.candidates
    assert first == (Replica(lr=0.2).configuration, pytest.approx(0.7), pytest.approx(0.0, abs=1e-12), 3, False)
    assert second.val == pytest.approx(1.9 / 3)
    assert second.std == pytest.approx(0.23094, abs=1e-5)
    assert select(rows[::-1]) == selection


def test_seeds_of_a_split_are_averaged_first() -> None:
    rows = [row(split, seed, val=0.2 * split + 0.1 * seed) for split in range(2) for seed in range(2)]
    (candidate,) = select(rows).candidates
    assert candidate.val == pytest.approx(0.15)
    assert candidate.std == pytest.approx(0.2 / 2**0.5)


def test_selection_never_reads_the_test_score() -> None:
    class Sealed(SimpleNamespace):
        @property
        def test(self) -> float:
            raise AssertionError("the test score was read")

    runs = [Sealed(replica=Replica(0, lr=lr), val=lr, dropped=False) for lr in (0.1, 0.3, 0.2)]
    assert select(runs).best["lr"] == 0.3


@pytest.mark.parametrize(
    ("name", "values", "winner"),
    [
        *(("lr", (0.1, 0.01), 0.01), ("weight_decay", (0.1, 0.01), 0.1), ("dropout", (0.1, 0.2), 0.2)),
        *(("lam", (2.0, 1.0), 1.0), ("options", ((("hidden", 16),), (("hidden", 32),)), 16)),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_ties_go_to_the_more_conservative_configuration(name: str, values: Any, winner: Any, reverse: bool) -> None:
    """In any order of runs, and although 0.1 + 0.2 is not exactly 0.3."""
    vals = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)]
    rows = [
        row(k, val=val, **{name: value})
        for value, group in zip(values, vals, strict=True)
        for k, val in enumerate(group)
    ]
    best = select(rows[::-1] if reverse else rows).best
    assert best["hidden" if name == "options" else name] == winner


def test_stopped_and_diverged_runs_come_last() -> None:
    rows = [row(lr=0.1, val=0.9, search="abc"), row(lr=0.2, val=0.1), row(lr=0.3, val=float("nan"))]
    assert [candidate.configuration["lr"] for candidate in select(rows).candidates] == [0.2, 0.3, 0.1]


def test_configurations_must_be_comparable() -> None:
    with pytest.raises(
        ValueError, match=r"runs must be on the same splits and seeds .*, got 1 to 2 runs per configuration"
    ):
        select([row(0, lr=0.1), row(1, lr=0.1), row(0, lr=0.2)])
    with pytest.raises(ValueError, match="each split and seed of a configuration once"):
        select([row(0), row(0)])
    with pytest.raises(ValueError, match="runs must hold at least one run"):
        select([])
