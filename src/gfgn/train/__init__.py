"""Training: replicas, the models by name, the engine and the statistics of runs."""

from gfgn.nn.registry import MODELS
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Replica, Run, Status
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
    "MODELS",
    "PairedTest",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "TrainConfig",
    "average_ranks",
    "bootstrap_interval",
    "difference",
    "paired_test",
    "split_means",
    "summarize",
    "train_replicas",
]
