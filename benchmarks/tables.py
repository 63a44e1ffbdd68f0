"""Fills the tables of `results/README.md` and docs/*.md from the JSON files in `results/`; `plot.py` calls it.

A table stands between `<!-- table: name -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
PAGES = (RESULTS / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table: ([a-z_-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
LEVELS = ("pair", "neighbor", "graph")
Row = dict[str, Any]


def problems(name: str) -> Iterator[tuple[str, Row]]:
    """Name of the device and problem, of all devices."""
    for device in ("cuda", "cpu"):
        path = RESULTS / f"{name}-{device}.json"
        if path.exists():
            content = json.loads(path.read_text())
            for problem in content["problems"]:
                yield _machine(content["environment"]["device"], problem.get("threads")) + note(content), problem


def note(content: Row) -> str:
    """Results from before all peers were measured say so."""
    return f" (older, {content['peers']} peers only)" if "peers" in content else ""


def _machine(device: str, threads: int | None) -> str:
    if "H200" in device:
        return "H200"
    threads = threads or int(re.search(r"(\d+) threads", device)[1])
    return f"{threads} CPU core{'s' if threads > 1 else ''}"


def label(row: Row) -> str:
    return row["contender"] if row["form"] == "eager" else f"{row['contender']}, {row['form']}"


def fastest(rows: list[Row], ours: bool, contender: str | None = None, form: str | None = None) -> Row | None:
    chosen = [
        row
        for row in rows
        if row["ours"] == ours
        and row["total_ms"] is not None
        and contender in (None, row["contender"])
        and form in (None, row["form"])
    ]
    return min(chosen, key=lambda row: row["total_ms"], default=None)


def time(milliseconds: float | None) -> str:
    return "—" if milliseconds is None else f"{milliseconds:,.3g} ms"


def memory(mib: float) -> str:
    return f"{mib:,.0f} MiB" if mib < 10_000 else f"{mib / 1024:,.0f} GiB"


def times(value: float | None) -> str:
    return "—" if value is None else f"{value:.2g}×" if value < 10 else f"{value:,.0f}×"


def size(problem: Row) -> str:
    return f"{problem['title']}: {problem['nodes']:,} nodes, {problem['edges'] / 1e6:.3g}M edges, D = {problem['D']}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def layer(titles: tuple[str, ...] = ()) -> str:
    """Each level in its fastest form and the best peer, for all problems or those of the titles in float32."""
    rows = []
    for machine, problem in problems("layer"):
        if titles and (problem["title"] not in titles or problem["dtype"] != "float32"):
            continue
        cells = [f"{machine}, {size(problem)}, {problem['dtype']}"]
        peer = fastest(problem["rows"], ours=False)
        for level in LEVELS:
            own = fastest(problem["rows"], True, f"GFGN-{level}")
            cells.append("—" if own is None else f"{time(own['total_ms'])}, {memory(own['peak_mib'])}")
        cells.append("—" if peer is None else f"{time(peer['total_ms'])}, {memory(peer['peak_mib'])} ({label(peer)})")
        cells.append(" / ".join(times(_ratio(problem, level)) for level in LEVELS))
        rows.append(cells)
    header = ["one layer, forward + backward", *(f"GFGN-{level}" for level in LEVELS), "best peer", "relative to it"]
    return markdown(header, rows)


def _ratio(problem: Row, level: str, form: str | None = None) -> float | None:
    own, peer = fastest(problem["rows"], True, f"GFGN-{level}", form), fastest(problem["rows"], False, form=form)
    return None if own is None or peer is None else own["total_ms"] / peer["total_ms"]


def layer_forms() -> str:
    """Each form against the best peer in the same form, and the distance to the floor."""
    rows = []
    for machine, problem in (*problems("layer"), *problems("step")):
        for form in dict.fromkeys(row["form"] for row in problem["rows"] if row["ours"]):
            peer = fastest(problem["rows"], False, form=form)
            if peer is None:
                continue
            own = [fastest(problem["rows"], True, f"GFGN-{level}", form) for level in LEVELS]
            rows.append(
                [f"{machine}, {problem['title']}, D = {problem['D']}, {problem['dtype']}", form]
                + [time(row and row["total_ms"]) for row in own]
                + [f"{time(peer['total_ms'])} ({peer['contender']})"]
                + [" / ".join(times(_ratio(problem, level, form)) for level in LEVELS)]
                + [" / ".join(times(row and row["to_floor"]) for row in own)]
            )
    header = ["layer", "form", *(f"GFGN-{level}" for level in LEVELS), "best peer in that form", "relative to it"]
    return markdown([*header, "to the byte floor"], rows)


def attention() -> str:
    rows = []
    for machine, problem in problems("attention"):
        own, peer = fastest(problem["rows"], True), fastest(problem["rows"], False)
        if own is None or peer is None:
            continue
        cells = [
            f"{machine}, {size(problem)}",
            f"{time(own['total_ms'])}, {memory(own['peak_mib'])}",
            f"{time(peer['total_ms'])}, {memory(peer['peak_mib'])} ({label(peer)})",
        ]
        rows.append([*cells, times(own["total_ms"] / peer["total_ms"]), times(own["to_floor"])])
    return markdown(["one layer", "gfgn", "best peer", "relative to it", "to the byte floor"], rows)


def operator(name: str) -> str:
    rows = []
    for machine, problem in problems(name):
        own, peer = fastest(problem["rows"], True), fastest(problem["rows"], False)
        if own is None or peer is None:
            continue
        gather = problem.get("gather_ms")
        rows.append(
            [
                f"{machine}, {problem['title']}, D = {problem['D']}, {problem['dtype']}",
                f"{time(own['total_ms'])}, {memory(own['peak_mib'])}",
                f"{time(peer['total_ms'])}, {memory(peer['peak_mib'])} ({label(peer)})",
                times(own["total_ms"] / peer["total_ms"]),
                times(own["total_ms"] / gather if gather else None),
                times(own["to_floor"]),
            ]
        )
    return markdown([name, "gfgn", "best peer", "relative to it", "to its gathers", "to the byte floor"], rows)


def building() -> str:
    rows = []
    for machine, problem in problems("edge_index"):
        own, peer = fastest(problem["rows"], True), fastest(problem["rows"], False)
        if own is None or peer is None:
            continue
        if problem["title"].startswith("building"):
            cells = [f"{machine}, {problem['title'].removeprefix('building, ')}", problem["edge_index"]]
            cells += [time(own["total_ms"]), f"{time(peer['total_ms'])} ({label(peer)})"]
            rows.append([*cells, times(own["total_ms"] / peer["total_ms"])])
    return markdown(["graph", "edge_index", "`Graph.from_edge_index`", "best peer", "relative to it"], rows)


def exponents() -> str:
    """Exponents of time and memory, one row per axis."""
    by_row: dict[str, dict[str, Row]] = {}
    for device, machine in (("cuda", "H200"), ("cpu", "CPU")):
        path = RESULTS / f"growth-{device}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        for entry in content.get("exponents", []):
            by_row.setdefault(f"{entry['axis']}, {machine}{note(content)}", {})[entry["contender"]] = entry
    contenders = list(dict.fromkeys(sorted((c for row in by_row.values() for c in row), key=lambda c: "GFGN" not in c)))
    rows = [
        [name, *(f"{row[c]['time']:.2f}; {row[c]['memory']:.2f}" if c in row else "—" for c in contenders)]
        for name, row in by_row.items()
    ]
    return markdown(["time; memory", *contenders], rows)


def batch_invariance() -> str:
    """For each graph, how many models have the same bits in any company, and what that costs."""
    bits, costs = (
        [(f"{machine}, {p['dataset']}", p) for machine, p in problems(name)]
        for name in ("batch_invariance", "batch_invariance_cost")
    )
    rows = []
    for graph in dict.fromkeys(graph for graph, _ in (*bits, *costs)):
        tried = [problem for where, problem in bits if where == graph]
        ratios = [problem["ratio"] for where, problem in costs if where == graph]
        same = sum(not problem["different"] for problem in tried)
        cells = [", ".join(map(str, tried[0]["among"])), f"{same} of {len(tried)}"] if tried else ["—", "—"]
        cost = f"{times(min(ratios))} to {times(max(ratios))} ({len(ratios)} models)" if ratios else "—"
        rows.append([graph, *cells, cost])
    return markdown(
        ["graph", "runs in a batch", "models with the same bits", "time of an epoch, relative to PyTorch's products"],
        rows,
    )


def sampler() -> str:
    """The time of a batch beside the peers', which take the same seeds."""
    found: dict[str, dict[str, Row]] = {}
    for machine, problem in problems("sampler"):
        fanouts = " × ".join(map(str, problem["fanouts"]))
        title = f"{problem['batch']:,} seeds, fan-out {fanouts}, {machine}"
        found.setdefault(title, {}).setdefault(problem["contender"], problem)  # the first, measured with its peers
    rows = []
    for title, by_name in found.items():
        if "gfgn" not in by_name:
            continue
        own = by_name["gfgn"]
        cells = [title, time(own["milliseconds"]), f"{own['edges_per_second'] / 1e6:.1f}M"]
        for peer in ("scipy", "pyg_k_hop"):
            ratio = by_name[peer]["milliseconds"] / own["milliseconds"] if peer in by_name else None
            cells.append(times(ratio))
        rows.append(cells)
    header = ["a batch", "gfgn", "edges per second", "time of SciPy's row slicing", "of PyG's `k_hop_subgraph`"]
    return markdown(header, rows)


def large() -> str:
    rows = []
    for machine, problem in problems("large"):
        stage = problem["stage"] if problem["stage"] == "pack" else f"{problem['stage']}, level {problem['level']}"
        spent = problem.get("epoch_seconds", problem["seconds"])
        memories = [f"{problem[name] / 1024:.1f} GiB" for name in ("peak_private_mib", "peak_resident_mib")]
        rows.append([f"{stage}, {machine}", f"{spent:,.0f} s", *memories])
    return markdown(["stage", "time", "peak of private memory", "with pages of files"], rows)


def epoch() -> str:
    rows = []
    for machine, problem in problems("epoch"):
        steps = f"{problem.get('steps', 1)} of {1000 * problem.get('step_seconds', problem['epoch_seconds']):,.0f} ms"
        memory = f"{problem['peak_mib'] / 1024:.1f} GiB"
        rows.append(
            [f"{problem['level']}, {machine}", problem["way"], f"{problem['epoch_seconds']:.3g} s", steps, memory]
        )
    return markdown(["level", "way", "epoch", "steps", "peak memory of the GPU"], rows)


def sampled() -> str:
    by_level: dict[str, dict[str, Row]] = {}
    for _, problem in problems("sampled"):
        by_level.setdefault(problem["level"], {})[problem["way"]] = problem
    rows = []
    for level, ways in by_level.items():
        whole, samples = ways["whole graph"], ways["samples"]
        cells = [f"{way['test']:.2f}% ({_rate(way)}{way['epochs']:.0f} epochs)" for way in (whole, samples)]
        error = "" if samples.get("error") is None else f" ± {samples['error']:.2f}"
        rows.append([level, *cells, f"{samples['difference']:+.2f}{error}"])
    return markdown(["level", "whole graph", "samples", "difference, points"], rows)


def uncertainty() -> str:
    by_data: dict[str, list[Row]] = {}
    for _, problem in problems("uncertainty"):
        by_data.setdefault(problem["data"], []).append(problem)
    rows = [
        [f"{data}, {levels[0]['test_nodes']:,}", *(", ".join(f"{x:.0f}" for x in row["fifths"]) for row in levels)]
        for data, levels in by_data.items()
    ]
    return markdown(["data, held-out nodes", "graph", "neighbor", "pair"], rows)


def pyg_models() -> str:
    """Which of PyG's networks train in batches, with the largest difference of a loss and the speed."""
    rows = []
    for _, row in problems("pyg_models"):
        how = f"{row['trains']}: {row['reason']}" if row["reason"] else row["trains"]
        measured = ["", ""] if row["trains"] == "refused" else [f"{row['difference']:.0e}", f"{row['speedup']:.1f}"]
        rows.append([f"`{row['name']}`", how, *measured])
    return markdown(["network", "trains", "difference of losses, alone and among 16", "speed, plain loop = 1"], rows)


def noise_verdicts() -> str:
    """Wrong verdicts of `advise` on noise, with the exact interval of their share; right ones where there is truth."""
    rows = [row for _, problem in problems("noise_verdicts") for row in problem["rows"]]
    wrong, found = [], {}
    for row in rows:
        if row["truth"] == "nothing":
            low, high = row["interval"]
            helps = row["compare"]["the graph helps"]["said"]
            counts = (f"{row['found']} of {row['graphs']}", f"{100 * low:.1f} to {100 * high:.1f}%", str(helps))
            wrong.append([row["labels"], f"`{row['metric']}`", *counts])
        else:
            found.setdefault((row["labels"], row["truth"]), {})[row["metric"]] = f"{row['found']} of {row['graphs']}"
    metrics = list(dict.fromkeys(metric for row in found.values() for metric in row))
    header = ["labels without a signal", "`metric`", "wrong verdicts", "95% interval", '"helps" of `compare`']
    right = [[*key, *(row[metric] for metric in metrics)] for key, row in found.items()]
    return markdown(header, wrong) + "\n" + markdown(["labels", "truth", *(f"`{each}`" for each in metrics)], right)


def _rate(way: Row) -> str:
    return f"lr {way['lr']:g}, " if "lr" in way else ""


def layerwise() -> str:
    rows = []
    for _, problem in problems("layerwise"):
        errors = (f"{problem[name]:.0e}" for name in ("logit_error", "relative_error", "probability_error"))
        rows.append([problem["level"], problem["dtype"], f"{problem['largest_logit']:.1f}", *errors])
    header = ["level", "dtype", "largest logit", "largest difference of a logit", "relative to the largest logit"]
    return markdown([*header, "of a probability"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "batch-invariance": batch_invariance,
    "epoch": epoch,
    "large": large,
    "layer": layer,
    "layer-main": lambda: layer(("BlogCatalog", "ogbn-arxiv structure")),
    "layer-forms": layer_forms,
    "layerwise": layerwise,
    "attention": attention,
    "pair_aggregate": lambda: operator("pair_aggregate"),
    "propagate": lambda: operator("propagate"),
    "building": building,
    "exponents": exponents,
    "pyg-models": pyg_models,
    "noise-verdicts": noise_verdicts,
    "sampled": sampled,
    "sampler": sampler,
    "uncertainty": uncertainty,
}


def fill(page: str) -> str:
    """A page with its tables as the results have them."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], page)


def main() -> None:
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        filled = fill(page)
        if filled != page:
            path.write_text(filled, encoding="utf-8")
            print(f"filled the tables of {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
