"""Training: many replicas at once, mini-batches, and the statistics of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gfgn.lazy import lazy_names

if TYPE_CHECKING:
    from gfgn.train.config import TrainConfig
    from gfgn.train.distributed import Processes, processes, train_distributed
    from gfgn.train.evaluation import ClassReport, evaluate_classes
    from gfgn.train.layerwise import infer_layerwise
    from gfgn.train.loop import train_replicas, train_runs
    from gfgn.train.minibatch import train_minibatch
    from gfgn.train.replica import Replica, Run, Status
    from gfgn.train.settings import keep_freed_memory
    from gfgn.train.statistics import (
        Estimate,
        PairedTest,
        Summary,
        average_ranks,
        best_interval,
        dataset_ranks,
        difference,
        estimate,
        estimate_difference,
        holm,
        paired_test,
        rank_intervals,
        split_means,
        summarize,
    )

__all__ = [
    "ClassReport",
    "Estimate",
    "PairedTest",
    "Processes",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "TrainConfig",
    "average_ranks",
    "best_interval",
    "dataset_ranks",
    "difference",
    "estimate",
    "estimate_difference",
    "evaluate_classes",
    "holm",
    "infer_layerwise",
    "keep_freed_memory",
    "paired_test",
    "processes",
    "rank_intervals",
    "split_means",
    "summarize",
    "train_distributed",
    "train_minibatch",
    "train_replicas",
    "train_runs",
]

__getattr__ = lazy_names(
    __name__,
    {
        "gfgn.train.config": "TrainConfig",
        "gfgn.train.distributed": "Processes processes train_distributed",
        "gfgn.train.evaluation": "ClassReport evaluate_classes",
        "gfgn.train.layerwise": "infer_layerwise",
        "gfgn.train.loop": "train_replicas train_runs",
        "gfgn.train.minibatch": "train_minibatch",
        "gfgn.train.replica": "Replica Run Status",
        "gfgn.train.settings": "keep_freed_memory",
        "gfgn.train.statistics": (
            "Estimate PairedTest Summary average_ranks best_interval dataset_ranks difference estimate "
            "estimate_difference holm paired_test rank_intervals split_means summarize"
        ),
    },
)
