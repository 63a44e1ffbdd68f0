"""Training: replicas, the models by name, the loop and the statistics of runs."""

from gfgn.train.loop import train_replicas
from gfgn.train.models import MODELS
from gfgn.train.replica import Replica, Run
from gfgn.train.statistics import Summary, bootstrap_interval, difference, summarize

__all__ = [
    "MODELS",
    "Replica",
    "Run",
    "Summary",
    "bootstrap_interval",
    "difference",
    "summarize",
    "train_replicas",
]
