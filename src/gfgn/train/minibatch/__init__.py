"""Mini-batch training on samples of the graph: the levels of GFGN, `graphsage`, `graphsaint` and `vr-gcn`."""

from gfgn.train.minibatch.graphsage import NeighborBatches
from gfgn.train.minibatch.graphsaint import SaintBatches
from gfgn.train.minibatch.levels import LevelBatches
from gfgn.train.minibatch.loop import METHODS, SAMPLING, check_sampled, is_sampled, train_minibatch
from gfgn.train.minibatch.vr_gcn import ControlVariateBatches

__all__ = [
    "METHODS",
    "SAMPLING",
    "ControlVariateBatches",
    "LevelBatches",
    "NeighborBatches",
    "SaintBatches",
    "check_sampled",
    "is_sampled",
    "train_minibatch",
]
