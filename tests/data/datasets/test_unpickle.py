"""Pickled arrays: those of NumPy and SciPy are read, anything else is refused before it is called."""

import ast
import pickle
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gfgn
from gfgn.data import DataError
from gfgn.data.datasets.unpickle import unpickle


def written(path: Path, value: Any) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=2))
    return path


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i1", "<i8", "u2", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype: str, order: Any, tmp_path: Path) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]], order=order).astype(dtype, order=order)
    read = unpickle(written(tmp_path / "a", array))
    assert read.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(read, array)


def test_sparse_matrices_and_containers(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(np.array([[0, 1.5], [2, 0], [0, 0]]))
    assert np.array_equal(unpickle(written(tmp_path / "a", matrix)).toarray(), matrix.toarray())
    graph = defaultdict(list, {0: [1, 2], 1: [0], 2: []})
    assert unpickle(written(tmp_path / "b", graph)) == graph
    assert unpickle(written(tmp_path / "c", {"a": (1, 2.5, None, True), "b": [2**70]})) == {
        "a": (1, 2.5, None, True),
        "b": [2**70],
    }


class Call:
    """A pickle that calls `function` when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


def test_nothing_is_executed(tmp_path: Path) -> None:
    """The pickles are attacks that work: Python's own unpickler creates the file."""
    import os
    import subprocess

    trace = tmp_path / "trace"
    attacks = {
        "mkdir": Call(os.mkdir, str(trace)),
        "run": Call(subprocess.call, ["mkdir", str(trace)]),
        "eval": Call(eval, f"__import__('os').mkdir({str(trace)!r})"),
        "getattr": Call(getattr, trace, "mkdir"),
        "ordered": OrderedDict(),
    }
    for name, attack in attacks.items():
        path = written(tmp_path / f"ind.cora.{name}", {"x": [attack]})
        with pytest.raises(
            DataError, match=rf"ind\.cora\.{name} is not a pickle of arrays: it calls \w+\.\w+, expected"
        ):
            unpickle(path)
        assert not trace.exists()
    pickle.loads((tmp_path / "ind.cora.mkdir").read_bytes())
    assert trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is not a pickle of arrays: EOFError"),
        (b"not a pickle", "is unknown"),
        (b"\x80\x02r\xff\xff\xff\xff.", "not a pickle of arrays"),  # memory for 2³² entries in CPython's C version
        (b"\x80\x05\x96" + (2**60).to_bytes(8, "little") + b".", "opcode 150 is unknown"),
        (b"\x80\x02cnumpy\nndarray\n}U\x05valueK\x01sb.", "gives a state to a type"),
        (b"\x80\x02]}b.", "gives a state to a list"),
        (b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "of type 'O', expected numbers"),
        (b"\x80\x02cnumpy\ndtype\nU\x04f4,O\x85R.", "expected numbers"),
    ],
)
def test_damaged_pickles(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        unpickle(path)


def test_a_matrix_with_entries_outside_is_refused(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_matrix(np.eye(3))
    matrix.indices[1] = 1_000_000
    with pytest.raises(DataError, match="not a pickle of arrays"):
        unpickle(written(tmp_path / "a", matrix))


def test_no_other_module_unpickles() -> None:
    """`pickle` is imported once, and nothing loads objects through NumPy, PyTorch or pandas."""
    for path in Path(gfgn.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import) and path.name != "unpickle.py":
                assert not {"pickle", "joblib", "dill", "shelve", "marshal"} & {alias.name for alias in node.names}, (
                    path
                )
            if not isinstance(node, ast.Call):
                continue
            name, options = ast.unparse(node.func), {key.arg: ast.unparse(key.value) for key in node.keywords}
            assert options.get("allow_pickle", "False") == "False", path
            assert name != "torch.load" or options.get("weights_only") == "True", path
            assert name != "np.load" or options.get("allow_pickle") == "False", path
            assert name not in ("pd.read_pickle", "pandas.read_pickle", "yaml.load", "eval", "exec"), path
