"""`GFGNClassifier`: a scikit-learn classifier of the nodes of a graph; `Nodes`: features and edges that go together."""

from gfgn.estimator.classifier import GFGNClassifier
from gfgn.estimator.inputs import Nodes

__all__ = ["GFGNClassifier", "Nodes"]
