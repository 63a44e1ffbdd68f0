"""Every baseline: gradients, sparse features, permutation equivariance, `edge_index` or `Graph`, replicas, kernels."""

import pytest
import torch
from nn.baselines.tiny import CLASSES, FEATURES, NODES, device_for, edges, features, graph, randomize
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from gfgn import Graph, ops
from gfgn.nn.registry import MODELS

BASELINES = {name: entry for name, entry in MODELS.items() if not entry.gated and name != "mlp"}
every_model = pytest.mark.parametrize("name", BASELINES)
replicated = pytest.mark.parametrize("name", [name for name, entry in BASELINES.items() if entry.batchable])
inductive = pytest.mark.parametrize("name", [name for name, entry in BASELINES.items() if entry.inductive])
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FACTS = {"num_nodes": NODES}
SMALL = {"hidden": 8, "layers": 2, "heads": 2, "steps": 3, "key": 4, "value": 4, "pool": 4}


def make(name: str, seed: int = 0, dropout: float | Tensor = 0.0, **options: object) -> nn.Module:
    """A small model in float64."""
    torch.manual_seed(seed)
    entry = BASELINES[name]
    settings = {option: value for option, value in SMALL.items() if option in entry.parameters}
    settings |= {need: FACTS[need] for need in entry.needs}
    return entry.build(FEATURES, CLASSES, dropout, 1.0, settings | options).double()


@every_model
def test_logits_and_gradients_are_finite(name: str) -> None:
    """With the default options, in training."""
    defaults = {option: parameter.default for option, parameter in BASELINES[name].parameters.items()}
    model = make(name, dropout=0.5, **defaults).train()
    logits = model(features(), graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@every_model
def test_gradients_are_finite_differences(name: str) -> None:
    """Along a random direction of all parameters, the gradient is the central difference."""
    model = randomize(make(name), seed=3).eval()  # a bias of 0 would put empty sums on the kink of ReLU
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
def test_sparse_features(name: str) -> None:
    model = make(name).eval()
    x, g = features(), graph()
    torch.testing.assert_close(model(x.to_sparse_csr(), g), model(x, g))


@every_model
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_index_is_a_graph(name: str, weighted: bool) -> None:
    model, x, e = make(name).eval(), features(), edges(directed=True)
    weight = torch.rand(e.size(1), dtype=torch.float64) + 0.1 if weighted else None
    expected = model(x, Graph.from_edge_index(e, NODES, weight, dtype=torch.float64))
    torch.testing.assert_close(model(x, e, weight), expected)
    if weighted:
        adjacency = torch.sparse_coo_tensor(e.flip(0), weight, (NODES, NODES)).to_sparse_csr()
        torch.testing.assert_close(model(x, adjacency), expected)


def test_bad_edges_are_named() -> None:
    model = make("gcn")
    with pytest.raises(ValueError, match="x has 12 rows, but the Graph has 13 nodes"):
        model(features(), Graph.from_edge_index(edges(), NODES + 1))
    with pytest.raises(ValueError, match=r"edge_weight cannot be .* a Graph"):
        model(features(), graph(), torch.ones(edges().size(1)))
    with pytest.raises(TypeError, match="got list"):
        model(features(), [[0], [1]])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("name", ["sgc", "gat"])
def test_compiled_models_take_edges_and_graphs(name: str, device: str) -> None:
    torch._dynamo.reset()
    model, x, e, g = make(name).eval().to(device), features().to(device), edges().to(device), graph().to(device)
    expected, compiled = model(x, g), torch.compile(model, backend="eager")
    for given in (g, e):
        torch.testing.assert_close(compiled(x, given), expected)


@inductive
def test_permutation_equivariance(name: str) -> None:
    model = make(name).eval()
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    permuted = Graph.from_edge_index(order.argsort()[edges()], NODES, dtype=torch.float64)
    torch.testing.assert_close(model(features()[order], permuted), model(features(), graph())[order])


@every_model
def test_directed_and_empty_graphs(name: str) -> None:
    model = make(name).eval()
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES, dtype=torch.float64)
    for g in (graph(directed=True), none):
        assert torch.isfinite(model(features(), g)).all()


@inductive
def test_graphs_of_a_batch_are_independent(name: str) -> None:
    model = make(name).eval()
    first, second = edges(0), edges(5)
    batch = torch.arange(2).repeat_interleave(NODES)
    both = Graph.from_edge_index(torch.cat([first, NODES + second], 1), 2 * NODES, batch=batch, dtype=torch.float64)
    separate = [model(features(k), e) for k, e in enumerate((first, second))]
    torch.testing.assert_close(model(torch.cat([features(0), features(1)]), both), torch.cat(separate))


@replicated
def test_dropout_of_a_replica_does_not_depend_on_the_others(name: str) -> None:
    """With their own keys and rates, replicas in a batch drop the same values as alone."""
    model = make(name).train()
    x, g = features(), graph()
    parameters, buffers = stack_module_state([make(name, seed) for seed in range(2)])
    rates, keys = torch.tensor([0.2, 0.8], dtype=torch.float64), torch.tensor([7, 9])

    def forward(p: dict[str, Tensor], b: dict[str, Tensor], rate: Tensor, key: Tensor) -> Tensor:
        for module in model.modules():
            for attribute in ("dropout", "input_dropout"):
                if hasattr(module, attribute):
                    setattr(module, attribute, rate)
        with ops.keyed(key):
            return functional_call(model, (p, b), (x, g))

    together = vmap(forward)(parameters, buffers, rates, keys)
    for k in range(2):
        one = [{name: value[k : k + 1] for name, value in part.items()} for part in (parameters, buffers)]
        alone = vmap(forward)(*one, rates[k : k + 1], keys[k : k + 1])[0]
        torch.testing.assert_close(together[k], alone)
    assert not torch.allclose(together[0], make(name, 0).eval()(x, g))


@every_model
@pytest.mark.parametrize("backend", ["numba", "triton"])
def test_kernels_agree_with_the_reference(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's kernels run on a GPU if there is one, otherwise in its interpreter."""
    device = device_for(backend)
    model = make(name).float().to(device)
    x, g = features(dtype=torch.float32).to(device), graph(directed=True, dtype=torch.float32).to(device)
    results = []
    for which in (backend, "reference"):
        monkeypatch.setenv("GFGN_BACKEND", which)
        model.zero_grad()
        logits = model(x, g)
        logits.square().sum().backward()
        results.append([logits.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


@every_model
def test_every_value_of_the_grid_builds(name: str) -> None:
    x, g = features(), graph()
    for option, parameter in BASELINES[name].parameters.items():
        for value in parameter.values:
            logits = make(name, **{option: value}).eval()(x, g)
            assert logits.shape == (NODES, CLASSES), (option, value)
            assert torch.isfinite(logits).all(), (option, value)


@every_model
def test_reset_parameters(name: str) -> None:
    """With the same seed it draws what a new model draws."""
    model, new = randomize(make(name), seed=5), make(name, seed=9)
    torch.manual_seed(9)
    new.reset_parameters()
    torch.manual_seed(9)
    model.reset_parameters()
    for (parameter_name, parameter), other in zip(model.named_parameters(), new.parameters(), strict=True):
        assert torch.equal(parameter, other), parameter_name
