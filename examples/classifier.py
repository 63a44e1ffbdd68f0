"""The scikit-learn estimator: an ensemble that predicts the hidden labels of a graph of handwritten digits."""

import numpy as np

from gfgn import GFGNClassifier, GraphNodes
from gfgn.data import load

data = load("digits")  # 1,797 images of 64 pixels; edges join similar images
X, edges, truth = data.x.numpy(), data.graph.edge_index.numpy(), data.y.numpy()
hidden = np.arange(len(truth)) % 2 == 0
y = np.where(hidden, -1, truth)  # −1: no label

clf = GFGNClassifier("graph", replicas=3, max_epochs=60, random_state=0)
clf.fit(X, y, edge_index=edges)
print(clf)

nodes = GraphNodes(X, edges)  # features and edges together; selecting nodes keeps the graph
p = clf.predict_proba(nodes[hidden])
sure = p.max(1) > 0.9
print(f"pixels that the network takes from neighbors most: {np.argsort(-clf.smoothing_scores_)[:5]}")
print(f"{sure.mean():.0%} of the predictions have a confidence above 0.9, accuracy of these:", end=" ")
print(f"{(p.argmax(1) == truth[hidden])[sure].mean():.3f}")
print(f"accuracy: {clf.score(nodes[hidden], truth[hidden]):.3f}")
