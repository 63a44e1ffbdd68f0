"""`GFGNClassifier`: a scikit-learn classifier of the nodes of a graph; `GraphNodes`: features with their edges."""

from gfgn.estimator.classifier import GFGNClassifier
from gfgn.estimator.inputs import GraphNodes

__all__ = ["GFGNClassifier", "GraphNodes"]
