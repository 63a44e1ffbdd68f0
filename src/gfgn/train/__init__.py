"""Training: many replicas at once, mini-batches, and the statistics of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gfgn.lazy import lazy_names

if TYPE_CHECKING:
    from gfgn.train.config import TrainConfig
    from gfgn.train.evaluation import ClassReport, evaluate_classes
    from gfgn.train.loop import train_replicas, train_runs
    from gfgn.train.minibatch import train_minibatch
    from gfgn.train.replica import Replica, Run, Status
    from gfgn.train.settings import keep_freed_memory
    from gfgn.train.statistics import (
        PairedTest,
        Summary,
        average_ranks,
        difference,
        paired_test,
        split_means,
        summarize,
    )

__all__ = [
    "ClassReport",
    "PairedTest",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "TrainConfig",
    "average_ranks",
    "difference",
    "evaluate_classes",
    "keep_freed_memory",
    "paired_test",
    "split_means",
    "summarize",
    "train_minibatch",
    "train_replicas",
    "train_runs",
]

__getattr__ = lazy_names(
    __name__,
    {
        "gfgn.train.config": "TrainConfig",
        "gfgn.train.evaluation": "ClassReport evaluate_classes",
        "gfgn.train.loop": "train_replicas train_runs",
        "gfgn.train.minibatch": "train_minibatch",
        "gfgn.train.replica": "Replica Run Status",
        "gfgn.train.settings": "keep_freed_memory",
        "gfgn.train.statistics": "PairedTest Summary average_ranks difference paired_test split_means summarize",
    },
)
