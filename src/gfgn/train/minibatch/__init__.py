"""Mini-batch training of the baselines that sample the graph: `graphsage`, `graphsaint` and `vr-gcn`."""

from gfgn.train.minibatch.graphsage import NeighborBatches
from gfgn.train.minibatch.graphsaint import SaintBatches
from gfgn.train.minibatch.loop import METHODS, SAMPLING, check_sampled, is_sampled, train_minibatch
from gfgn.train.minibatch.vr_gcn import ControlVariateBatches

__all__ = [
    "METHODS",
    "SAMPLING",
    "ControlVariateBatches",
    "NeighborBatches",
    "SaintBatches",
    "check_sampled",
    "is_sampled",
    "train_minibatch",
]
