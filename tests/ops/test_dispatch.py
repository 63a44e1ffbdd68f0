"""The choice of a backend: by name, by environment, by device."""

import warnings

import pytest
import torch
from ops.backends import CUDA

from gfgn import Graph, ops
from gfgn.ops import dispatch


def test_backends_say_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    available = ops.backends()
    assert list(available) == ["reference", "numba", "triton"]
    assert available["numba"].available
    monkeypatch.setattr(dispatch, "interpreted", lambda: False)
    if not CUDA:
        missing = ops.backends()["triton"]
        assert not missing.available
        assert "CUDA" in missing.detail


def test_choice_by_name_environment_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFGN_BACKEND", raising=False)
    choose = dispatch.choose
    assert choose("cpu", torch.float32, None) == "numba"
    assert choose("cpu", torch.float32, "reference") == "reference"
    assert choose("meta", torch.float32, None) == "reference"
    assert choose("cpu", torch.float32, None, "edge_weight") == "reference"
    monkeypatch.setenv("GFGN_BACKEND", "reference")
    assert choose("cpu", torch.float32, None) == "reference"
    assert choose("cpu", torch.float32, "numba") == "numba"
    monkeypatch.setenv("GFGN_BACKEND", "cuda")
    with pytest.raises(ValueError, match=r"GFGN_BACKEND must be one of .* got 'cuda'"):
        choose("cpu", torch.float32, None)


@pytest.mark.parametrize(
    ("device_type", "dtype", "backend", "differentiable", "message"),
    [
        ("meta", torch.float32, "numba", None, "works on cpu tensors, got meta"),
        ("cpu", torch.complex64, "numba", None, "no kernel for torch.complex64"),
        ("cpu", torch.float32, "numba", "lam", "only the reference can differentiate with respect to lam"),
    ],
)
def test_requested_backend_that_cannot_run_is_an_error(
    device_type: str, dtype: torch.dtype, backend: str, differentiable: str | None, message: str
) -> None:
    with pytest.raises(RuntimeError, match=message):
        dispatch.choose(device_type, dtype, backend, differentiable)


def test_automatic_choice_falls_back_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFGN_BACKEND", raising=False)
    monkeypatch.setattr(dispatch, "_import_problem", lambda name: "numba cannot be imported (no such module)")
    dispatch._warn_once.cache_clear()
    dispatch._choose.cache_clear()
    graph, x = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3), torch.ones(3, 2)
    with pytest.warns(UserWarning, match="plain PyTorch reference.*no such module"):
        ops.propagate(x, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.propagate(x, graph)
    with pytest.raises(RuntimeError, match="backend='numba' cannot run: numba cannot be imported"):
        ops.propagate(x, graph, backend="numba")
    dispatch._choose.cache_clear()
