"""Every model on real graphs: Cora, Texas and, where it is inductive, three graphs of the stand-in for PPI."""

import dataclasses
import math
import os
from pathlib import Path

import pytest
import torch

from gfgn.data import Dataset, Split, load
from gfgn.graph import Graph
from gfgn.train import MODELS, Replica, train_replicas

BATCHED = [name for name, model in MODELS.items() if model.replicas]
REPLICAS = [Replica(split=0, seed=0), Replica(split=0, seed=1, lr=0.005, dropout=0.2)]
FEW_LAYERS = {"gcnii": (("layers", 4),)}


def real(name: str, folder: str) -> Dataset:
    root = os.environ.get("GFGN_DATA", "")
    if not root or not (Path(root) / folder).is_dir():
        pytest.skip(f"GFGN_DATA does not name a folder with {folder}")
    return load(name, root=root)


@pytest.fixture(scope="module")
def three_graphs() -> Dataset:
    """The smallest graph of each part of the stand-in for PPI."""
    data = real("ppi-relabelled", "ppi-relabelled")
    batch = data.graph.batch
    assert batch is not None
    sizes = torch.bincount(batch)
    graphs = [min(batch[mask].unique().tolist(), key=lambda graph: int(sizes[graph])) for mask in data.splits[0]]
    kept = torch.isin(batch, torch.tensor(graphs))
    place = kept.cumsum(0) - 1
    source, target = data.graph.edge_index
    edges = place[torch.stack([source, target])[:, kept[target]]]
    part = Graph.from_edge_index(edges, int(kept.sum()), batch=torch.unique(batch[kept], return_inverse=True)[1])
    split = Split(*(mask[kept] for mask in data.splits[0]))
    x = data.x if data.x.layout == torch.strided else data.x.to_dense()
    return dataclasses.replace(data, graph=part, x=x[kept], y=data.y[kept], splits=[split])


def check_training(model: str, data: Dataset, epochs: int) -> None:
    replicas = [dataclasses.replace(replica, options=FEW_LAYERS.get(model, ())) for replica in REPLICAS]
    for run in train_replicas(model, data, replicas, max_epochs=epochs, keep_state=True):
        assert all(math.isfinite(value) for values in run.history.values() for value in values)
        assert 0 <= run.test <= 1
        assert run.state is not None
        assert all(torch.isfinite(value).all() for value in run.state.values())
        assert len(set(run.history["train_loss"])) == epochs


@pytest.mark.parametrize("model", BATCHED)
def test_texas(model: str) -> None:
    check_training(model, real("texas", "texas"), 3)


@pytest.mark.parametrize("model", BATCHED)
def test_cora(model: str) -> None:
    check_training(model, real("cora", "Cora"), 2)


@pytest.mark.parametrize("model", [name for name in BATCHED if MODELS[name].inductive])
def test_graphs_of_the_stand_in_for_ppi(model: str, three_graphs: Dataset) -> None:
    assert three_graphs.inductive
    check_training(model, three_graphs, 2)


def test_what_is_not_inductive_is_refused(three_graphs: Dataset) -> None:
    for model in (name for name in BATCHED if not MODELS[name].inductive):
        with pytest.raises(ValueError, match="model must run on graphs it has not seen"):
            train_replicas(model, three_graphs, REPLICAS)
