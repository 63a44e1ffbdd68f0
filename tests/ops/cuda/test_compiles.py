"""The Triton kernels compile for an H200, also on a machine without one."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compile_triton.py")
SMALLEST = 99 * 1024
"""Bytes of shared memory that a program may use on every NVIDIA GPU since Ampere; an H200 has 227 KiB."""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_every_kernel_compiles_and_fits(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["kernel"] for one in compiled} == {
        *("_gather", "_join", "_edge_dot", "_softmax", "_softmax_backward"),
        *("_additive", "_join_additive", "_additive_rows", "_additive_backward", "_join_additive_backward"),
        *("_dropout", "_gated_neighbor", "_gated_neighbor_backward", "_two_hops", "_adam", "_copy_where"),
        *("_make_keys", "_mark_entries", "_write_rows", "_find_opposites", "_transpose_rows", "_list_hubs"),
        *("_add_weights", "_normalize"),
        *("_product", "_weight_gradient", "_row_sums", "_halves", "_halves_backward", "_halves_gradient"),
        *("_graph_gate", "_graph_gate_backward"),
    }
    operators = {one["OP"] for one in compiled if one["kernel"] == "_gather"}
    assert operators >= {"pair_forward", "pair_backward", "gated_forward", "gated_backward", "sparse_linear", "attend"}
    assert [one for one in compiled if one["shared"] > SMALLEST] == []
    slow = [one for one in compiled if one.get("ALIGNED") and one.get("BLOCK_D", 64) >= 32 and not one["vectors"]]
    slow += [one for one in compiled if one["kernel"].startswith("_additive") and not one["vectors"]]
    assert slow == []  # columns that are a multiple of 16 are read and written with 16 bytes per thread
