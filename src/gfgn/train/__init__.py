"""Training: replicas, the models by name, the engine and the statistics of runs."""

from gfgn.train.batch import Protocol
from gfgn.train.loop import train_replicas
from gfgn.train.models import MODELS
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
    "Protocol",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "average_ranks",
    "bootstrap_interval",
    "difference",
    "paired_test",
    "split_means",
    "summarize",
    "train_replicas",
]
