"""What every model shares beyond learning rate and decay: dropout of the features, and their normalization."""

from dataclasses import replace

import pytest
import torch

from gfgn.data import NodeDataset, dimensions
from gfgn.nn.registry import MODELS
from gfgn.ops.features import row_normalize, sparse_if_smaller
from gfgn.train import Replica, TrainConfig, train_replicas
from gfgn.train.loop import train_runs
from gfgn.train.task import with_features

SMALL = {"hidden": 16, "layers": 2, "heads": 2, "key": 4, "value": 4, "pool": 4}
TRAINED = [name for name, entry in MODELS.items() if entry.batchable]


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(48, degree=4, splits=2, seed=1)


def small(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((option, value) for option, value in SMALL.items() if option in MODELS[name].parameters)


@pytest.mark.parametrize("name", TRAINED)
def test_the_rate_of_the_layers_is_the_default(name: str, data: NodeDataset) -> None:
    """Without a rate of its own, the input is dropped as before there was one: bit for bit."""
    replicas = [Replica(seed=1, dropout=0.4, options=small(name), input_dropout=rate) for rate in (None, 0.4, 0.1)]
    first, same, other = (run.history["val_loss"] for run in train_replicas(name, data, replicas, max_epochs=3))
    assert first == same != other


@pytest.mark.parametrize("name", MODELS)
def test_input_dropout_drops_features_and_nothing_else_does(name: str, data: NodeDataset) -> None:
    """A dropped feature has no gradient; dropout of the layers leaves every gradient as it is, up to its size."""
    entry, dropped = MODELS[name], {}
    settings = dict(small(name)) | dict.fromkeys(entry.needs, data.num_nodes)
    for rates in ((0.0, 0.0), (0.0, 0.6), (0.5, 0.0)):
        torch.manual_seed(0)
        module = entry.build(data.num_features, data.num_classes, rates[1], 1.0, settings, rates[0]).train()
        x = data.x.clone().requires_grad_()
        module(x, data.graph).square().sum().backward()
        assert x.grad is not None
        reached = x.grad[(x.grad != 0).any(1)]  # the others are nodes whose hidden units are all 0
        assert len(reached) > 40
        dropped[rates] = float((reached == 0).double().mean())
    assert dropped[0.0, 0.0] == dropped[0.0, 0.6] == 0
    assert 0.1 < dropped[0.5, 0.0] < 0.6  # a quarter where two maps drop their input independently


@pytest.mark.parametrize("model", ["mlp", "gcn", "gat", "gfgn-pair", "linkx"])
@pytest.mark.parametrize("sparse", [False, True])
def test_normalized_features_are_those_of_a_normalized_dataset(model: str, sparse: bool, data: NodeDataset) -> None:
    """The option gives the same bits as a dataset whose rows were normalized before; both kinds train in one call."""
    kept = torch.rand(data.x.shape, generator=torch.Generator().manual_seed(0)) > 0.9
    given = replace(data, x=data.x * kept) if sparse else data
    x = given.x
    assert (sparse_if_smaller(x).layout == torch.sparse_csr) == sparse
    before = replace(given, x=row_normalize(sparse_if_smaller(x)).to_dense())
    options = (("features", "normalized"),)
    replicas = [Replica(seed=seed, options=own) for seed in (0, 1) for own in (options, (), (("features", "given"),))]
    runs = train_replicas(model, given, replicas, max_epochs=3, batch_size=4)
    for seed in (0, 1):
        normalized, plain, same = runs[3 * seed : 3 * seed + 3]
        [expected] = train_replicas(model, before, [Replica(seed=seed)], max_epochs=3)
        assert normalized.history == expected.history
        assert normalized.test == expected.test
        assert plain.history == same.history != normalized.history


def test_normalized_rows_sum_to_one(data: NodeDataset) -> None:
    x = with_features(data, "normalized").x
    torch.testing.assert_close(x.abs().sum(1), torch.ones(len(x)))
    torch.testing.assert_close(x * data.x.abs().sum(1, keepdim=True), data.x)
    assert with_features(data, "given") is data


def test_models_that_train_on_samples_have_both(data: NodeDataset) -> None:
    options = (("batch_size", 16),)
    replicas = [
        Replica(options=options),
        Replica(options=options, input_dropout=0.5),
        Replica(options=options, input_dropout=0.1),
        Replica(options=(*options, ("features", "normalized"))),
    ]
    runs = train_runs("graphsage", data, replicas, TrainConfig(3, 3), history=True)
    losses = [tuple(run.history["val_loss"]) for run in runs]
    assert losses[0] == losses[1]
    assert len(set(losses)) == 3


@pytest.mark.parametrize(
    ("replica", "message"),
    [
        (lambda: Replica(input_dropout=1.0), "input_dropout must be at least 0 and below 1, got 1.0"),
        (
            lambda: Replica(options=(("features", "scaled"),)),
            "'features' of gcn must be 'given' or 'normalized'",
        ),
        (lambda: Replica(options=(("features", 1),)), "option 'features' of gcn must be of type str, got 1"),
    ],
)
def test_errors_name_the_value(replica: object, message: str, data: NodeDataset) -> None:
    with pytest.raises(ValueError, match=message):
        train_replicas("gcn", data, [replica()], max_epochs=1)  # type: ignore[operator]
