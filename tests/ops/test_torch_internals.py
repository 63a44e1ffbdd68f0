"""Every private name of PyTorch that `gfgn.ops.torch_internals` wraps: a failure says what broke.

If a test here fails after an update of PyTorch, adapt that function; `torch` in `pyproject.toml` bounds the versions.
"""

import ast
import importlib.metadata
import tomllib
from collections.abc import Callable
from pathlib import Path

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
