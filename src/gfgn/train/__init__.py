"""Training: replicas, the models by name, the engine and the statistics of runs."""

from gfgn.train.batch import Protocol
from gfgn.train.loop import train_replicas
from gfgn.train.models import MODELS
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.statistics import Summary, bootstrap_interval, difference, summarize

__all__ = [
    "MODELS",
    "Protocol",
    "Replica",
    "Run",
    "Status",
    "Summary",
    "bootstrap_interval",
    "difference",
    "summarize",
    "train_replicas",
]
