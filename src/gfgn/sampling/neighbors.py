"""`NeighborSampler`: a few neighbors of each node, and the weights that make sums over them unbiased."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NegativeSampling

from gfgn.data.on_disk import OnDiskGraph
from gfgn.graph import Graph
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import for_each_task, run_tasks
from gfgn.ops.cpu.vectors import read, write
from gfgn.sampling.counter import derived, drawn, key_of, mix_bits, signed

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NODES_PER_TASK = 512
int64: Any = np.int64  # in kernels a number like others


class Sample(NamedTuple):
    """A sampled neighborhood."""

    node: Ints  # first the seeds, then the nodes that each hop adds
    row: Ints  # the source of each edge, an index into `node`
    col: Ints  # the target of each edge, an index into `node`
    edge: Ints  # the index of each edge in the graph
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    scale: Floats  # of each edge: the sum of `scale · f(edge)` into a node has the mean Σ f(edge) over all its edges
    tree: Ints  # the seed that each node was sampled for, an index into the seeds; 0 unless disjoint


# --- kernels ----------------------------------------------------------------------------------------------------------

# `nodes`: whose edges are drawn; `trees`: the numbers that, if `disjoint`, their draws depend on as well; `slots`:
# where the room for the edges of each node begins in `edges` and `scale`; `counts`: how many edges there are.
Draw = namedtuple(
    "Draw",
    "ptr weight nodes trees slots counts edges scale number fanout key replace weighted disjoint",
)


@inlined
def take_all(op: Any, first: int, size: int, slot: int) -> Any:
    for k in range(size):
        write(first + k, op.edges, slot + k)
        write(1.0, op.scale, slot + k)
    return size


@inlined
def draw_distinct(op: Any, key: int, first: int, size: int, slot: int) -> Any:
    """`fanout` distinct edges, every subset equally likely (Floyd's algorithm)."""
    for k in range(op.fanout):
        top = size - op.fanout + k
        number = int64(drawn(key, k) * (top + 1))
        for before in range(k):
            if read(op.edges, slot + before) == first + number:
                number = top
                break
        write(first + number, op.edges, slot + k)
        write(size * 1.0 / op.fanout, op.scale, slot + k)
    return op.fanout + 0


@inlined
def sorted_draws(op: Any, key: int, total: float, slot: int) -> None:
    """Writes `fanout` numbers from 0 to `total` into `scale`, in ascending order."""
    for k in range(op.fanout):
        value = drawn(key, k) * total
        place = slot + k
        while place > slot and read(op.scale, place - 1) > value:
            write(read(op.scale, place - 1), op.scale, place)
            place -= 1
        write(value, op.scale, place)


@inlined
def draw_repeatedly(op: Any, key: int, first: int, size: int, slot: int) -> Any:
    """`fanout` edges with replacement; one that is drawn several times is there once, with the sum of its scales."""
    sorted_draws(op, key, size * 1.0, slot)
    count, before = 0, -1
    for k in range(op.fanout):
        number = min(int64(read(op.scale, slot + k)), size - 1)
        if number == before:
            write(read(op.scale, slot + count - 1) + size * 1.0 / op.fanout, op.scale, slot + count - 1)
        else:
            write(first + number, op.edges, slot + count)
            write(size * 1.0 / op.fanout, op.scale, slot + count)
            count, before = count + 1, number
    return count


@inlined
def draw_repeatedly_by_weight(op: Any, key: int, first: int, size: int, slot: int) -> Any:
    """`fanout` edges with replacement, in proportion to their weights; see `draw_repeatedly`."""
    total = 0.0
    for k in range(size):
        total += read(op.weight, first + k)
    sorted_draws(op, key, total, slot)
    count, taken, running = 0, 0, 0.0
    for k in range(size):
        weight, times = 1.0 * read(op.weight, first + k), 0
        running += weight
        while taken < op.fanout and read(op.scale, slot + taken) < running:
            taken, times = taken + 1, times + 1
        if times > 0:
            write(first + k, op.edges, slot + count)
            write(times * total / (op.fanout * weight), op.scale, slot + count)
            count += 1
    return count


@inlined
def draw_distinct_by_weight(op: Any, key: int, first: int, size: int, slot: int) -> Any:
    """Priority sampling: the `fanout` edges with the largest `w / u`, `u` uniform in `(0, 1]`.

    With τ, the next largest one, `max(w, τ)` is an unbiased estimate of `w` where the edge is taken and 0 elsewhere.
    """
    count = 0  # of at most one more than are taken, in descending order
    for k in range(size):
        priority = read(op.weight, first + k) / (1.0 - drawn(key, k))
        if priority > 0.0 and (count <= op.fanout or priority > read(op.scale, slot + op.fanout)):
            place = slot + min(count, op.fanout)
            while place > slot and read(op.scale, place - 1) < priority:
                write(read(op.scale, place - 1), op.scale, place)
                write(read(op.edges, place - 1), op.edges, place)
                place -= 1
            write(priority, op.scale, place)
            write(first + k, op.edges, place)
            count = min(count + 1, op.fanout + 1)
    threshold = read(op.scale, slot + op.fanout) if count > op.fanout else 0.0
    taken = min(count, op.fanout)
    for k in range(taken):
        weight = 1.0 * read(op.weight, read(op.edges, slot + k))
        write(max(1.0, threshold / weight), op.scale, slot + k)
    return taken


@inlined
def draw_for_nodes(op: Any, task: int) -> None:
    for k in range(task * NODES_PER_TASK, min((task + 1) * NODES_PER_TASK, op.number)):
        node, slot = read(op.nodes, k), read(op.slots, k)
        first, count = read(op.ptr, node), 0
        size = read(op.ptr, node + 1) - first
        key = op.key + 0
        if op.disjoint:
            key = derived(key, read(op.trees, k))
        key = derived(key, node)
        if size == 0 or op.fanout < 0 or (size <= op.fanout and not op.replace):
            count = take_all(op, first, size, slot)
        elif op.weighted:
            if op.replace:
                count = draw_repeatedly_by_weight(op, key, first, size, slot)
            else:
                count = draw_distinct_by_weight(op, key, first, size, slot)
        elif op.replace:
            count = draw_repeatedly(op, key, first, size, slot)
        else:
            count = draw_distinct(op, key, first, size, slot)
        write(count, op.counts, k)


@kernel
def draw_kernel(arguments: Any, tasks: Any) -> None:
    for_each_task(draw_for_nodes, as_pointers(arguments), as_pointers(tasks))


# `known`: distinct codes with the numbers 0, 1, …; `codes`: those to number. `keys`, `values`: a hash table of `slots`
# entries, a power of 2, with −1 for a free key. `numbers`, `new`: the result; `found`: how many are new.
Numbering = namedtuple("Numbering", "known codes keys values numbers new found num_known num_codes slots")


@inlined
def place_of(op: Any, code: int) -> Any:
    """Where a code is in the table, or where it goes."""
    place = mix_bits(code) & (op.slots - 1)
    while read(op.keys, place) != code and read(op.keys, place) >= 0:
        place = (place + 1) & (op.slots - 1)
    return place


@inlined
def number_codes(op: Any, _: int) -> None:
    for k in range(op.num_known):
        place = place_of(op, read(op.known, k))
        write(read(op.known, k), op.keys, place)
        write(k, op.values, place)
    found = 0
    for k in range(op.num_codes):
        code = read(op.codes, k)
        place = place_of(op, code)
        if read(op.keys, place) < 0:
            write(code, op.keys, place)
            write(op.num_known + found, op.values, place)
            write(code, op.new, found)
            found += 1
        write(read(op.values, place), op.numbers, k)
    write(found, op.found, 0)


@kernel
def number_kernel(arguments: Any, tasks: Any) -> None:
    for_each_task(number_codes, as_pointers(arguments), as_pointers(tasks))


def sample_edges(
    ptr: Ints,
    nodes: Ints,
    fanout: int,
    key: int,
    *,
    weight: NDArray[Any] | None = None,
    trees: Ints | None = None,
    replace: bool = False,
) -> tuple[Ints, Ints, Floats]:
    """Samples `fanout` in-edges of each node (all if −1): their number per node, their indices and their scales.

    `weight` has the weight of every edge, `trees` one number per node that its draws depend on.
    """
    size = ptr[nodes + 1] - ptr[nodes]
    room = size if fanout < 0 else np.minimum(size, fanout) if not replace else np.minimum(size * fanout, fanout)
    if weight is not None and not replace and fanout >= 0:
        room = np.minimum(size, fanout + 1)  # for the threshold
    slots = np.cumsum(room) - room
    total = int(room.sum())
    counts, edges, scale = np.empty(nodes.size, np.int64), np.empty(total, np.int64), np.empty(total)
    none = np.empty(0)
    flags = replace, weight is not None, trees is not None
    arrays = (
        ptr,
        none if weight is None else weight,
        nodes,
        nodes if trees is None else trees,
        slots,
        counts,
        edges,
        scale,
    )
    op = Draw(*arrays, nodes.size, fanout, signed(key), *flags)
    run_tasks(draw_kernel, op, -(-nodes.size // NODES_PER_TASK))
    filled = int(counts.sum())
    if filled < total:
        kept = np.arange(filled) + np.repeat(slots - (np.cumsum(counts) - counts), counts)
        edges, scale = edges[kept], scale[kept]
    return counts, edges, scale


def number_nodes(known: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Numbers `codes`, which are not negative: those in `known` by their index there, others, the new ones, as they
    appear from `known.size` on. Returns the numbers and the new codes."""
    slots = 1 << int(2 * (known.size + codes.size) + 1).bit_length()
    keys, values = np.full(slots, -1, np.int64), np.empty(slots, np.int64)
    numbers, new, found = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64), np.zeros(1, np.int64)
    op = Numbering(known, codes, keys, values, numbers, new, found, known.size, codes.size, slots)
    run_tasks(number_kernel, op, 1)
    return numbers, new[: found[0]]


# --- the sampler ------------------------------------------------------------------------------------------------------


class NeighborSampler(BaseSampler):  # type: ignore[misc] # PyG has no types
    """Samples `fanouts[h]` in-neighbors of every node of hop `h`.

    It works with PyG's `NodeLoader`; `NeighborLoader` also gives each batch the weights of its edges:

        sampler = NeighborSampler.from_graph(graph, fanouts=[25, 10])
        loader = NodeLoader(data, node_sampler=sampler, input_nodes=data.train_mask, batch_size=512, shuffle=True)

    The sample of a node depends on the seed, the epoch (`set_epoch`), the hop and the node (if disjoint, also on the
    seed node) only: neither on the other nodes of its batch nor on the number of threads or workers.

    Args:
        ptr: `[N + 1]`, offsets of each target's edges.
        idx: `[E]`, the source of each edge.
        fanouts: Neighbors per node, one number per hop; −1 takes all.
        seed: Seed of the samples.
        edge_id: `[E]`, edge ids in the output; by default the index of the edge.
        edge_weight: `[E]`, the weights `A`; 1 by default.
        probability: `[E]`, how often an edge is drawn in relation to the others of its target, finite and not negative,
            such as `graph.weight`; an edge with 0 is not drawn. Equal by default.
        replace: Whether edges are drawn with replacement, always `fanouts[h]` times. An edge that is drawn several
            times is in the sample once, with the sum of its weights.
        disjoint: Whether every seed has nodes and draws of its own.
    """

    def __init__(
        self,
        ptr: Tensor | Ints,
        idx: Tensor | NDArray[Any],
        fanouts: Sequence[int],
        seed: int = 0,
        edge_id: Tensor | None = None,
        *,
        edge_weight: Tensor | NDArray[Any] | None = None,
        probability: Tensor | NDArray[Any] | None = None,
        replace: bool = False,
        disjoint: bool = False,
    ) -> None:
        super().__init__()
        if not fanouts or any(fanout < -1 or fanout == 0 for fanout in fanouts):
            raise ValueError(f"fanouts must be positive numbers or -1, one or more, got {list(fanouts)}")
        self.ptr: Ints = _array(ptr).astype(np.int64, copy=False)
        self.idx = _array(idx)
        self.fanouts = tuple(fanouts)
        self.seed = seed
        self.edge_id = edge_id
        self.edge_weight = None if edge_weight is None else _array(edge_weight)
        self.probability = None if probability is None else _check_probability(_array(probability), self.idx.size)
        self.replace, self.disjoint = replace, disjoint
        self.degree = _degrees(self.ptr, self.edge_weight)
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # worker processes that persist see it, too

    @classmethod
    def from_graph(cls, graph: Graph, fanouts: Sequence[int], seed: int = 0, **options: Any) -> NeighborSampler:
        """A sampler of a graph; edge ids are indices into `graph.edge_index`."""
        rows = graph.by_target
        return cls(rows.ptr, rows.idx, fanouts, seed, edge_weight=graph.weight, **options)

    @classmethod
    def from_store(cls, store: OnDiskGraph, fanouts: Sequence[int], seed: int = 0, **options: Any) -> NeighborSampler:
        """A sampler of a graph in files, of which it reads what it samples."""
        return cls(store.ptr, store.idx, fanouts, seed, edge_weight=store.weight, **options)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        fanouts: Sequence[int],
        seed: int = 0,
        *,
        edge_weight: Tensor | None = None,
        probability: Tensor | None = None,
        **options: Any,
    ) -> NeighborSampler:
        """A sampler of the edges of a PyG `Data`; the layers' `A`: without self-loops, repeated edges are one, whose id
        is that of the last. `edge_weight` and `probability` have one value per given edge."""
        graph = Graph.from_edge_index(edge_index.cpu(), num_nodes, edge_weight)
        position = graph.edge_position
        given = torch.nonzero(position >= 0).view(-1)
        edge_id = torch.empty(graph.num_edges, dtype=torch.int64)
        edge_id[position[given]] = given
        chance = None
        if probability is not None:
            values = probability.cpu().double()
            chance = values.new_zeros(graph.num_edges).index_add(0, position[given], values[given])
        return cls.from_graph(graph, fanouts, seed, edge_id=edge_id, probability=chance, **options)

    @property
    def num_nodes(self) -> int:
        return self.ptr.size - 1

    @property
    def epoch(self) -> int:
        """The epoch that samples depend on."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that samples depend on."""
        self._epoch.fill_(epoch)

    def sample(self, nodes: Tensor, *numbers: int) -> Sample:
        """Samples the neighborhood of `nodes`, distinct unless disjoint; it also depends on `numbers`, such as the
        step."""
        seeds: Ints = nodes.cpu().numpy().astype(np.int64)
        if seeds.size and not (seeds.min() >= 0 and seeds.max() < self.num_nodes):
            bad = seeds.min() if seeds.min() < 0 else seeds.max()
            raise ValueError(f"nodes must be 0 to {self.num_nodes - 1}, got {bad}")
        offsets = np.arange(seeds.size) * self.num_nodes if self.disjoint else np.zeros_like(seeds)
        known = seeds + offsets  # a code is the node and the number of its tree
        distinct = number_nodes(known[:0], known)[1].size
        if distinct < known.size:
            raise ValueError(f"nodes must be distinct, got {known.size} with {distinct} distinct ones")
        frontier, sizes, sampled, first = known, [known.size], [], 0
        for hop, fanout in enumerate(self.fanouts):
            counts, edges, scale = self._draw(frontier, seeds, fanout, key_of(self.seed, self.epoch, *numbers, hop))
            col = np.repeat(np.arange(first, first + frontier.size), counts)
            codes = self.idx[edges].astype(np.int64)
            if self.disjoint:
                codes += np.repeat(frontier // self.num_nodes * self.num_nodes, counts)
            first = known.size
            row, frontier = number_nodes(known, codes)
            known = np.concatenate([known, frontier])
            sizes.append(frontier.size)
            sampled.append((row, col, edges, scale))
        row, col, edge, scale = (np.concatenate(parts) for parts in zip(*sampled, strict=True))
        tree, node = np.divmod(known, max(self.num_nodes, 1))
        return Sample(node, row, col, edge, sizes, [part[2].size for part in sampled], scale, tree)

    def _draw(self, codes: Ints, seeds: Ints, fanout: int, key: int) -> tuple[Ints, Ints, Floats]:
        tree, node = np.divmod(codes, max(self.num_nodes, 1))
        trees = seeds[tree] if self.disjoint else None
        return sample_edges(self.ptr, node, fanout, key, weight=self.probability, trees=trees, replace=self.replace)

    def weights(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """`[E]` each, float32: `Â_ij` and `A_ij / d_i` of the whole graph, times the scale of the edge: sums over the
        sampled edges with these weights have the sums over all edges as their mean."""
        target, source = self.degree[sample.node[sample.col]], self.degree[sample.node[sample.row]]
        weight = sample.scale if self.edge_weight is None else sample.scale * self.edge_weight[sample.edge]
        norm, row_norm = (torch.from_numpy(values).float() for values in normalized(weight, target, source))
        return norm, row_norm

    def graph(self, sample: Sample) -> Graph:
        """The graph of a sample with its `weights`, on the CPU."""
        norm, row_norm = self.weights(sample)
        edge_index = torch.from_numpy(np.stack([sample.row, sample.col]))
        facts = {"num_nodes": sample.node.size, "batch_size": sample.nodes_per_hop[0]}
        return Graph.from_sample(Data(edge_index=edge_index, norm=norm, row_norm=row_norm, **facts))

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Called by PyG's `NodeLoader`; the weights are the last two of the metadata."""
        sample = self.sample(index.node)
        node, row, col, edge = map(torch.from_numpy, sample[:4])
        return SamplerOutput(
            node=node,
            row=row,
            col=col,
            edge=edge if self.edge_id is None else self.edge_id[edge],
            batch=torch.from_numpy(sample.tree) if self.disjoint else None,
            num_sampled_nodes=sample.nodes_per_hop,
            num_sampled_edges=sample.edges_per_hop,
            metadata=(index.input_id, index.time, *self.weights(sample)),
        )

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Raises an error: this sampler is for node classification."""
        raise TypeError("NeighborSampler samples around nodes; PyG's link loaders need a sampler that starts at edges")


def normalized(weight: NDArray[Any] | None, target: Floats, source: Floats) -> tuple[Floats, Floats]:
    """`Â_ij` and `A_ij / d_i` of edges with these weights, 1 by default, whose targets and sources have these
    degrees."""
    values = np.float64(1) if weight is None else weight
    with np.errstate(divide="ignore", invalid="ignore"):
        norm = np.where((target > 0) & (source > 0), values / np.sqrt(target * source), 0.0)
        row_norm = np.where(target > 0, values / target, 0.0)
    return norm, row_norm


def _array(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    """The values as a plain array; a memory map stays one."""
    return np.asarray(values.cpu().numpy() if isinstance(values, Tensor) else values)


def _degrees(ptr: Ints, weight: NDArray[Any] | None) -> Floats:
    """`d_i = Σ_j A_ij`."""
    if weight is None:
        return np.diff(ptr).astype(np.float64)
    rows = np.flatnonzero(np.diff(ptr))
    degree = np.zeros(ptr.size - 1)
    if rows.size:
        degree[rows] = np.add.reduceat(weight, ptr[rows], dtype=np.float64)
    return degree


def _check_probability(values: NDArray[Any], size: int) -> NDArray[Any]:
    if values.shape != (size,):
        raise ValueError(f"probability must have shape [{size}], one per edge, got {list(values.shape)}")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if size and not (values.min() >= 0 and values.max() < np.inf):
        edge = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        raise ValueError(f"probability must be finite and not negative, got {values[edge]} at edge {edge}")
    return values
