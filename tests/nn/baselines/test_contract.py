"""What every baseline must do: finite gradients, sparse features, equivariance, replicas that ignore each other."""

import pytest
import torch
from nn.baselines.tiny import CLASSES, FEATURES, NODES, device_for, edges, features, graph, randomize
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from gfgn import Graph, ops
from gfgn.nn.baselines import BASELINES

every_model = pytest.mark.parametrize("name", BASELINES)
replicated = pytest.mark.parametrize("name", [name for name, entry in BASELINES.items() if entry.replicas])
inductive = pytest.mark.parametrize("name", [name for name, entry in BASELINES.items() if entry.inductive])
FACTS = {"num_nodes": NODES}


def make(name: str, seed: int = 0, dropout: float | Tensor = 0.0, **options: object) -> nn.Module:
    torch.manual_seed(seed)
    facts = {need: FACTS[need] for need in BASELINES[name].needs}
    return BASELINES[name].build(FEATURES, CLASSES, dropout, {**facts, **options}).double()


@every_model
def test_logits_and_gradients_are_finite(name: str) -> None:
    model = make(name, dropout=0.5).train()
    logits = model(features(), graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@every_model
def test_gradients_are_those_of_the_function(name: str) -> None:
    """Along a random direction of all parameters, the gradient is the central difference."""
    model = randomize(make(name), seed=3).eval()  # a bias of 0 would put empty sums on ReLU's kink
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    pick = torch.randn(NODES, CLASSES, generator=generator, dtype=torch.float64)
    x, g = features(), graph()
    (model(x, g) * pick).sum().backward()
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction, strict=True))
    values, step = [], 1e-6
    with torch.no_grad():
        for sign in (1, -2):
            for p, d in zip(parameters, direction, strict=True):
                p += sign * step * d
            values.append((model(x, g) * pick).sum())
    torch.testing.assert_close(slope, (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-6)


@every_model
def test_sparse_features_are_dense_ones(name: str) -> None:
    model = make(name).eval()
    x, g = features(), graph()
    torch.testing.assert_close(model(x.to_sparse_csr(), g), model(x, g))


@inductive
def test_nodes_may_be_renamed(name: str) -> None:
    model = make(name).eval()
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    place = order.argsort()
    renamed = Graph.from_edge_index(place[edges()], NODES, dtype=torch.float64)
    torch.testing.assert_close(model(features()[order], renamed), model(features(), graph())[order])


@every_model
def test_a_directed_graph_and_one_without_edges(name: str) -> None:
    model = make(name).eval()
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES, dtype=torch.float64)
    for g in (graph(directed=True), none):
        assert torch.isfinite(model(features(), g)).all()


@inductive
def test_graphs_side_by_side_do_not_meet(name: str) -> None:
    model = make(name).eval()
    first, second = edges(0), edges(5)
    batch = torch.arange(2).repeat_interleave(NODES)
    both = Graph.from_edge_index(torch.cat([first, NODES + second], 1), 2 * NODES, batch=batch, dtype=torch.float64)
    apart = [
        model(features(k), Graph.from_edge_index(e, NODES, dtype=torch.float64)) for k, e in enumerate((first, second))
    ]
    torch.testing.assert_close(model(torch.cat([features(0), features(1)]), both), torch.cat(apart))


@replicated
@pytest.mark.parametrize("sparse", [False, True])
def test_stacked_replicas_are_single_models(name: str, sparse: bool) -> None:
    """`vmap` over stacked parameters: the same logits and gradients as one model at a time."""
    models = [make(name, seed) for seed in range(3)]
    x, g = features(), graph()
    x = x.to_sparse_csr() if sparse else x
    parameters, buffers = stack_module_state(models)
    logits = vmap(lambda p, b: functional_call(models[0], (p, b), (x, g)))(parameters, buffers)
    logits.square().sum().backward()
    for k, model in enumerate(models):
        alone = model(x, g)
        torch.testing.assert_close(logits[k], alone)
        alone.square().sum().backward()
        for parameter_name, parameter in model.named_parameters():
            torch.testing.assert_close(parameters[parameter_name].grad[k], parameter.grad, msg=parameter_name)


@replicated
def test_dropout_of_a_replica_does_not_depend_on_the_others(name: str) -> None:
    """With keys and rates of their own, replicas in a batch drop what each drops alone."""
    model = make(name).train()
    x, g = features(), graph()
    parameters, buffers = stack_module_state([make(name, seed) for seed in range(3)])
    rates, keys = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64), torch.tensor([7, 8, 9])

    def forward(p: dict[str, Tensor], b: dict[str, Tensor], rate: Tensor, key: Tensor) -> Tensor:
        model.dropout = rate
        with ops.keyed(key):
            return functional_call(model, (p, b), (x, g))

    together = vmap(forward)(parameters, buffers, rates, keys)
    for k in range(3):
        one = [{name: value[k : k + 1] for name, value in part.items()} for part in (parameters, buffers)]
        alone = vmap(forward)(*one, rates[k : k + 1], keys[k : k + 1])[0]
        torch.testing.assert_close(together[k], alone)
    assert not torch.allclose(together[0], make(name, 0).eval()(x, g))


@every_model
@pytest.mark.parametrize("backend", ["numba", "triton"])
def test_kernels_agree_with_the_reference(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's on a GPU where there is one, else through its interpreter."""
    device = device_for(backend)
    smaller = {"layers": 3} if name == "gcnii" else {}
    model = make(name, **smaller).float().to(device)
    x, g = features(dtype=torch.float32).to(device), graph(directed=True, dtype=torch.float32).to(device)
    found = []
    for which in (backend, "reference"):
        monkeypatch.setenv("GFGN_BACKEND", which)
        model.zero_grad()
        logits = model(x, g)
        logits.square().sum().backward()
        found.append([logits.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@every_model
def test_every_value_of_the_grid_builds(name: str) -> None:
    for option, parameter in BASELINES[name].parameters.items():
        for value in parameter.values:
            logits = make(name, **{option: value}).eval()(features(), graph())
            assert logits.shape == (NODES, CLASSES), (option, value)
            assert torch.isfinite(logits).all(), (option, value)
        assert parameter.meaning


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"options must be among hidden, layers, got 'depth'"):
        BASELINES["gcn"].build(4, 2, 0.5, {"depth": 3})
    with pytest.raises(ValueError, match="layers must be 1 or larger, got 0"):
        BASELINES["gcn"].build(4, 2, 0.5, {"layers": 0})


def test_groups_and_claims() -> None:
    """Every row of the paper's tables is there; what cannot claim a thing does not."""
    groups = {
        group: {name for name, entry in BASELINES.items() if entry.group == group} for group in ("paper", "beyond")
    }
    assert groups["paper"] == {
        *("gcn", "gat", "sgc", "arma", "ggnn", "appnp", "geom-gcn"),
        *("graphsage", "vr-gcn", "gaan", "geniepath", "graphsaint"),
    }
    assert groups["beyond"] == {"gcnii", "gprgnn", "h2gcn", "acm-gcn", "linkx", "resgated", "gatv2"}
    assert {name for name, entry in BASELINES.items() if not entry.inductive} == {"geom-gcn", "linkx"}
    assert {name for name, entry in BASELINES.items() if entry.minibatch} == {"graphsage", "vr-gcn", "graphsaint"}
    assert {name for name, entry in BASELINES.items() if not entry.replicas} == {"vr-gcn", "graphsaint"}
