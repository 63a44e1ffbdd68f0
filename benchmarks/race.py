"""Contenders on one problem, ours and their peers: time, memory, the best peer, and the distance to a byte floor.

Contenders run in one process, one after another in every round, so that noise affects all of them equally; times are
medians over rounds. On a CPU, only ratios between contenders are meaningful. A contender runs in up to four forms:

    eager                as it is
    compiled             `torch.compile`
    captured             the kernels of a whole call as one CUDA graph, replayed
    compiled, captured   both, which is what `torch.compile(mode="reduce-overhead")` does
"""

from __future__ import annotations

import statistics
import time
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import common
import torch
from torch import Tensor, nn

EAGER, COMPILED, CAPTURED = "eager", "compiled", "captured"
FORMS = (EAGER, COMPILED, CAPTURED, f"{COMPILED}, {CAPTURED}")
SAMPLE = 0.01
"""Seconds that one sample should take: calls faster than that repeat back to back, as in a training loop."""
SLOW = 0.5
"""Seconds above which a contender runs in three rounds only."""


@dataclass
class Contender:
    """One way to do the work of a problem; `run` does all of it once."""

    name: str
    run: Callable[[], object]
    ours: bool = False
    form: str = EAGER
    leaves: Sequence[Tensor] = ()
    """Tensors with gradients to forget before memory is measured."""


@dataclass
class Row:
    """One contender on one problem; only its name and what went wrong if it could not run."""

    contender: str
    form: str
    ours: bool
    total_ms: float | None = None
    spread: float | None = None
    """Interquartile range of the rounds relative to the median."""
    host_ms: float | None = None
    """Time until the host is free again; CUDA only."""
    peak_mib: float | None = None
    rounds: int = 0
    ratio: float | None = None
    """Time relative to the fastest peer in any form."""
    ratio_in_form: float | None = None
    """Time relative to the fastest peer in the same form."""
    to_floor: float | None = None
    """Time relative to the byte floor of the problem."""
    error: str | None = None

    @property
    def label(self) -> str:
        return self.contender if self.form == EAGER else f"{self.contender}, {self.form}"


def backprop(
    name: str,
    forward: Callable[[], Tensor],
    inputs: Iterable[Tensor | nn.Module],
    *,
    ours: bool = False,
    forms: Sequence[str] = (EAGER,),
) -> list[Contender]:
    """A forward and a backward pass in each of the forms; `inputs` are the tensors and modules that get gradients."""
    leaves = [leaf for item in inputs for leaf in (item.parameters() if isinstance(item, nn.Module) else (item,))]
    plain = _Pass(forward, leaves)
    fused = _Pass(compiled(forward), leaves) if any(COMPILED in form for form in forms) else plain
    return [Contender(name, fused if COMPILED in form else plain, ours, form, leaves) for form in forms]


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    """`torch.compile` of a copy with its own code: functions that share their code share one list of guards."""
    code = function.__code__.replace()
    own = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return torch.compile(own, dynamic=False)


class _Pass:
    """A forward pass and a backward pass from a fixed random gradient."""

    def __init__(self, forward: Callable[[], Tensor], leaves: list[Tensor]) -> None:
        self.forward, self.leaves = forward, leaves
        self.gradient: Tensor | None = None

    def __call__(self) -> None:
        _clear(self.leaves)
        out = self.forward()
        if self.gradient is None:
            self.gradient = torch.randn_like(out)
        out.backward(self.gradient)


def _clear(leaves: Iterable[Tensor]) -> None:
    for leaf in leaves:
        leaf.grad = None


def problem(
    title: str, contenders: list[Contender], device: str, rounds: int, floor_bytes: float | None = None, **facts: object
) -> dict[str, object]:
    """Measures one problem, prints its table and returns its JSON record.

    `floor_bytes` is what any program must move: every input read once and every result written once. At the bandwidth
    of a copy it takes `floor_ms`.
    """
    print(f"{title}: " + ", ".join(f"{key} {value}" for key, value in facts.items()))
    rows = measure(contenders, device, rounds)
    floor = None if floor_bytes is None else 1e3 * floor_bytes / common.copy_bandwidth(device)
    best = compare(rows, floor)
    for row in rows:
        print("  " + describe(row), flush=True)
    return {"title": title, **facts, "floor_ms": floor, "best_peer": best, "rows": [asdict(row) for row in rows]}


def compare(rows: list[Row], floor: float | None = None) -> str | None:
    """Sets the ratios of all rows, and returns the label of the fastest peer."""
    peers = [row for row in rows if not row.ours and row.total_ms is not None]
    best = min(peers, key=lambda row: row.total_ms, default=None)
    for row in rows:
        if row.total_ms is None:
            continue
        same = min((peer.total_ms for peer in peers if peer.form == row.form), default=None)
        row.ratio = None if best is None else row.total_ms / best.total_ms
        row.ratio_in_form = None if same is None else row.total_ms / same
        row.to_floor = None if floor is None else row.total_ms / floor
    return None if best is None else best.label


def describe(row: Row) -> str:
    name = f"{row.label:<36}"
    if row.error is not None:
        return f"{name} {row.error}"
    ratio = "" if row.ratio is None else f"{row.ratio:7.2f}x the best peer"
    floor = "" if row.to_floor is None else f"{row.to_floor:7.1f}x the floor"
    return f"{name} {row.total_ms:10.3f} ms ±{100 * row.spread:3.0f}%  {ratio}{floor}  {row.peak_mib:9.1f} MiB"


def measure(contenders: list[Contender], device: str, rounds: int) -> list[Row]:
    """Times all contenders in alternation."""
    rows = [Row(contender.name, contender.form, contender.ours) for contender in contenders]
    running = [_start(contender, row, device) for contender, row in zip(contenders, rows, strict=True)]
    samples: list[list[tuple[float, float]]] = [[] for _ in rows]
    for k in range(rounds):
        for row, started, collected in zip(rows, running, samples, strict=True):
            if started is not None and (k < 3 or row.total_ms < 1e3 * SLOW):
                collected.append(_sample(started, row, device))
    for row, collected in zip(rows, samples, strict=True):
        if collected:
            totals = [total for total, _ in collected]
            low, row.total_ms, high = statistics.quantiles(totals, n=4) if len(totals) > 1 else 3 * totals
            row.spread = (high - low) / row.total_ms
            row.host_ms = statistics.median(host for _, host in collected) if device == "cuda" else None
            row.rounds = len(collected)
    torch.compiler.reset()
    return rows


def _start(contender: Contender, row: Row, device: str) -> Callable[[], object] | None:
    """Warms up, measures memory and one call, and captures; notes in the row why a contender cannot run."""
    run = contender.run
    try:
        for _ in range(3):  # compilation and caches are not measured
            run()
        _clear(contender.leaves)
        with common.PeakMemory(device) as peak:
            run = _capture(run) if CAPTURED in contender.form else run
            run()
        row.peak_mib = peak.mib
        row.total_ms = 1e3 * common.seconds(run, device, rounds=1)
    except torch.OutOfMemoryError:
        row.error = "out of memory"
    except Exception as error:  # a contender that cannot run must not end the others
        row.error = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    _clear(contender.leaves)
    if device == "cuda":
        torch.cuda.empty_cache()
    return run if row.error is None else None


def _capture(run: Callable[[], object]) -> Callable[[], object]:
    """One CUDA graph of a call that has warmed up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def _sample(run: Callable[[], object], row: Row, device: str) -> tuple[float, float]:
    """Milliseconds of one call, and until the host is free."""
    repeats = max(1, min(100, int(1e3 * SAMPLE / row.total_ms)))
    common.synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    issued = time.perf_counter()
    common.synchronize(device)
    return 1e3 * (time.perf_counter() - start) / repeats, 1e3 * (issued - start) / repeats
