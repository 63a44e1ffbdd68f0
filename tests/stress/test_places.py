"""The command in places where little is allowed: an unprivileged user, a read-only root, no home, a full disk."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gfgn

USER = 12345
SOURCE = Path(gfgn.__file__).parents[1]
COMPARE = "compare --models majority,mlp,gfgn-graph --splits 2 --epochs 20 --device cpu --json"
# Everything that is mounted becomes read-only, then a folder in memory is mounted at $1.
SCRIPT = """
set -e
cut -d' ' -f5 /proc/self/mountinfo | while read -r place; do
    case "$place" in /proc*|/sys*|/dev*) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
mount -t tmpfs -o size="$2" none "$1"
if touch "$3/.probe" 2>/dev/null || touch /.probe 2>/dev/null; then echo "the root could be written" >&2; exit 77; fi
cd "$1"
shift 3
exec "$@"
"""


def run_confined(scratch: Path, size: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user without privileges, name and home, in a read-only root with a small folder in memory.

    The outer namespace may mount; the inner one, whose user has no rights in the outer one, runs the command.
    """
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("needs Linux with unshare")
    outside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh", str(scratch), size]
    inside = ["unshare", "--user", f"--map-user={USER}", f"--map-group={USER}", sys.executable, "-B", "-m", "gfgn"]
    command = [*outside, str(SOURCE), *inside, *arguments]
    keep = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS", "LANG") if name in os.environ}
    variables = keep | {"PYTHONPATH": str(SOURCE), "TMPDIR": str(scratch)} | environment
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    reasons = ("unshare:", "could be written", "Operation not permitted", "must be superuser", "mount:")
    if result.returncode not in (0, 2) and any(reason in result.stderr for reason in reasons):
        pytest.skip(f"cannot confine a process here: {result.stderr.strip().splitlines()[-1]}")
    return result


def test_compare_as_an_unprivileged_user_in_a_read_only_root(tmp_path: Path) -> None:
    result = run_confined(tmp_path, "200m", *COMPARE.split(), "--out", "out")
    assert result.returncode == 0, result.stderr
    [comparison] = json.loads(result.stdout)["comparisons"]
    assert [entry["model"] for entry in comparison["models"]] == ["majority", "mlp", "gfgn-graph"]
    assert all(entry["mean"] is not None for entry in comparison["models"])
    assert "Traceback" not in result.stderr
    assert result.stderr.count("cannot keep its compiled CPU kernels") <= 1


def test_compare_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    options = COMPARE.replace("majority,mlp,gfgn-graph", "majority,logistic-regression").split()
    result = run_confined(tmp_path, "16k", *options, "--quiet", "--out", "out", GFGN_BACKEND="reference")
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "out" in result.stderr
