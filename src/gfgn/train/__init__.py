"""Training: many replicas at once, mini-batches, and the statistics of runs."""

from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_replicas, train_runs
from gfgn.train.minibatch import train_minibatch
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.settings import keep_freed_memory
from gfgn.train.statistics import (
    PairedTest,
    Summary,
    average_ranks,
    bootstrap_interval,
    difference,
    paired_test,
    split_means,
    summarize,
)

__all__ = [
    "PairedTest",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "TrainConfig",
    "average_ranks",
    "bootstrap_interval",
    "difference",
    "keep_freed_memory",
    "paired_test",
    "split_means",
    "summarize",
    "train_minibatch",
    "train_replicas",
    "train_runs",
]
