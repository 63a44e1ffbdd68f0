"""Every private name of PyTorch that `gfgn.ops.torch_internals` wraps: a failure says what broke.

If a test here fails after an update of PyTorch, adapt that function; `torch` in `pyproject.toml` bounds the versions.
"""

import ast
import importlib.metadata
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

import gfgn
from gfgn.ops import torch_internals as internals

SOURCE = Path(gfgn.__file__).parent
PROJECT = SOURCE.parents[1] / "pyproject.toml"
NAMES = {
    "is_batched": "torch._C._functorch.is_batchedtensor",
    "is_wrapped": "torch._C._functorch.is_functorch_wrapped_tensor",
    "unwrapped": "torch._C._functorch.get_unwrapped",
    "batch_dim": "torch._C._functorch.maybe_get_bdim",
    "add_batch_dim": "torch._C._functorch._add_batch_dim",
    "has_transforms": "torch._C._functorch.peek_interpreter_stack",
    "only_vmap_level": "torch._C._functorch.get_interpreter_stack",
    "only_vmap_level, the kind of a transform": "torch._C._functorch.TransformType.Vmap",
    "has_derivatives, in forward mode": "torch.autograd.forward_ad._current_level",
    "has_derivatives, in reverse mode": "torch._C._functorch.TransformType.Grad",
    "has_derivatives, both in forward mode": "torch._C._functorch.TransformType.Jvp",
    "outside_of_transforms": "torch._functorch.pyfunctorch.temporarily_pop_interpreter_stack",
    "as_plain_tensors": "torch._C.DisableTorchFunctionSubclass",
    "has_dispatch_modes": "torch._C._len_torch_dispatch_stack",
    "graph_is_retained": "torch._C._autograd._get_current_graph_task_keep_graph",
    "parse_to": "torch._C._nn._parse_to",
    "coo_entries": "torch.Tensor._indices",
    "in_place_version": "torch.Tensor._version",
    "without_function_modes": "torch._C.DisableTorchFunction",
    "tree_map_only": "torch.utils._pytree.tree_map_only",
    "WeakIdKeyDictionary": "torch.utils.weak.WeakIdKeyDictionary",
    "TorchDispatchMode": "torch.utils._python_dispatch.TorchDispatchMode",
    "schema_arguments": "torch.ops.aten.rand.generator._schema.arguments",
    "call_on_cpu": "torch.ops.aten.rand.generator.redispatch",
    "call_on_cpu, the kernel": "torch._C.DispatchKey.CPU",
    "call_on_cpu, the kernels": "torch._C.DispatchKeySet",
    "default_generator, of a CPU": "torch.default_generator",
    "default_generator, of MPS": "torch.mps._get_default_mps_generator",
}


@pytest.mark.parametrize("function", NAMES)
def test_name_exists(function: str) -> None:
    path = NAMES[function]
    value: object = torch
    for name in path.split(".")[1:]:
        value = getattr(value, name, None)
        assert value is not None, f"torch {torch.__version__} has no {path}: adapt torch_internals.{function}"


def under_vmap(function: Callable[[torch.Tensor], object]) -> object:
    results: list[object] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        results.append(function(x))
        return x

    torch.vmap(body, in_dims=1)(torch.ones(2, 3))
    return results[0]


def test_functorch() -> None:
    x = torch.ones(2)
    assert not internals.is_batched(x)
    assert not internals.is_batched("x")
    assert not internals.is_wrapped(x)
    assert not internals.has_transforms()
    assert internals.only_vmap_level() is None
    assert under_vmap(internals.is_batched)
    assert under_vmap(internals.is_wrapped)
    assert under_vmap(lambda _: internals.has_transforms())
    assert under_vmap(lambda _: internals.only_vmap_level()) == 1
    assert under_vmap(lambda x: (internals.unwrapped(x).shape, internals.batch_dim(x))) == ((2, 3), 1)
    added = torch.vmap(lambda _: internals.add_batch_dim(torch.arange(3), 0, internals.only_vmap_level()))(
        torch.ones(3)
    )
    assert added.tolist() == [0, 1, 2]

    def suspended(_: torch.Tensor) -> bool:
        with internals.outside_of_transforms():
            return internals.has_transforms()

    assert not under_vmap(suspended)


def test_derivatives() -> None:
    seen: list[tuple[bool, bool]] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        seen.append((internals.has_derivatives(), internals.is_batched(x)))
        return x.sum()

    x = torch.ones(2, 2)
    torch.vmap(note)(x)
    torch.func.grad(note)(x)
    torch.vmap(torch.func.grad(note))(x)
    torch.func.grad(lambda x: torch.vmap(note)(x).sum())(x)
    torch.func.jvp(note, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        note(x)
    note(x)
    assert seen == [(False, True), *[(True, False)] * 5, (False, False)]


def test_dispatch_modes() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    assert not internals.has_dispatch_modes()
    with TorchDispatchMode():
        assert internals.has_dispatch_modes()


def test_overload_of_a_custom_operator() -> None:
    operator = torch.library.custom_op(
        "gfgn_test::double", lambda x: 2 * x, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    assert internals.overload(operator)(torch.ones(1)).item() == 2


def test_constant_under_compile() -> None:
    calls: list[int] = []

    @internals.constant_under_compile
    def constant() -> int:
        calls.append(1)
        return 3

    compiled = torch.compile(lambda x: x + constant(), backend="eager", fullgraph=True)
    assert [compiled(torch.zeros(1)).item() for _ in range(2)] == [3, 3]
    assert len(calls) == 1


def test_graph_is_retained() -> None:
    seen: list[bool] = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            seen.append(internals.graph_is_retained())
            return grad

    out = Identity.apply(torch.ones(1, requires_grad=True))
    out.backward(retain_graph=True)
    out.backward()
    assert seen == [True, False]
    assert internals.graph_is_retained()


def test_tensors() -> None:
    x = torch.zeros(1)
    before = internals.in_place_version(x)
    x.add_(1)
    assert internals.in_place_version(x) == before + 1
    assert internals.parse_to("meta", torch.float64) == (torch.device("meta"), torch.float64, False)
    assert internals.parse_to(torch.float16, non_blocking=True) == (None, torch.float16, True)
    repeated = torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]), (2, 2), check_invariants=True
    )
    indices, values = internals.coo_entries(repeated)
    assert indices.tolist() == [[0, 0], [1, 1]]
    assert values.tolist() == [1, 2]


def test_no_other_module_uses_private_names_of_pytorch() -> None:
    """Attributes with a leading underscore of `torch` and its submodules."""
    offenders = []
    for path in SOURCE.rglob("*.py"):
        if path.name == "torch_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("torch._"):
                offenders.append(f"{path.name}:{node.lineno} {node.module}")
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                text = ast.unparse(node)
                if text.startswith("torch.") or node.attr in ("_opoverload", "_version", "_indices", "_values"):
                    offenders.append(f"{path.name}:{node.lineno} {text}")
    assert offenders == []


@pytest.mark.skipif(not PROJECT.exists(), reason="not a checkout of the repository")
@pytest.mark.parametrize("name", ["torch", "llvmlite"])
def test_installed_version_is_in_the_supported_range(name: str) -> None:
    dependencies = map(Requirement, tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"])
    (requirement,) = (one for one in dependencies if one.name == name)
    assert any(one.operator == "<" for one in requirement.specifier), f"{name} needs an upper bound in pyproject.toml"
    installed = importlib.metadata.version(name)
    assert requirement.specifier.contains(installed, prereleases=True), f"{name} {installed} is outside {requirement}"


def test_backward_and_hooks() -> None:
    from torch.overrides import TorchFunctionMode

    x, seen = torch.ones(2, requires_grad=True), []

    class Noting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    assert not internals.hooks_of(x)
    handle = x.register_hook(lambda grad: torch.mul(grad, 3))
    assert internals.hooks_of(x)
    with Noting():
        internals.backward((2 * x).sum())
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6]
    assert torch.mul in seen
    handle.remove()
    x.register_post_accumulate_grad_hook(lambda _: None)
    assert internals.hooks_of(x)
