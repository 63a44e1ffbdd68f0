"""Your own graph: two CSV files, then a comparison of models on it."""

import random
import tempfile
from pathlib import Path

import gfgn

random.seed(0)
folder = Path(tempfile.mkdtemp())
people = [(f"person{i}", random.choice(["north", "south"])) for i in range(200)]

# nodes.csv: `id`, `label` (empty where unknown), optionally `split`; every other column is a feature
lines = ["id,label,age,height"]
for name, city in people:
    age, height = random.gauss(40 if city == "north" else 48, 8), random.gauss(170, 8)
    lines.append(f"{name},{city},{age:.1f},{height:.1f}")
(folder / "nodes.csv").write_text("\n".join(lines))

# edges.csv: `source`, `target`, optionally `weight`; most people know people of their own city
lines = ["source,target"]
for name, city in people:
    for other, other_city in random.sample(people, 10):
        if name != other and random.random() < (0.6 if city == other_city else 0.1):
            lines.append(f"{name},{other}")
(folder / "edges.csv").write_text("\n".join(lines))

dataset = gfgn.data.read(folder)
print(f"{dataset.num_nodes} nodes, {dataset.graph.num_edges} edges, features: {', '.join(dataset.feature_names)}")

comparison = gfgn.runs.compare(dataset, ["mlp", "gcn", "gfgn-pair"], splits=3, max_epochs=150)
for model, score in comparison.summary().items():
    print(f"{model}: test {dataset.metric} {100 * score.mean:.1f} ± {100 * score.std:.1f}%")
print("report:", gfgn.report.write_report([comparison], folder / "report.html"))  # `gfgn compare FOLDER` does all this
