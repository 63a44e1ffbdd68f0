"""`NeighborLoader`: PyG's `NodeLoader` with batches of sampled neighborhoods whose sums are unbiased."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import SamplerOutput

from gfgn.data.on_disk import OnDiskGraph
from gfgn.data.splits import is_mask
from gfgn.sampling.counter import key_of
from gfgn.sampling.neighbors import NeighborSampler


class Shuffled(Sampler[int]):
    """The nodes of a loader in an order that depends on its seed and epoch only."""

    def __init__(self, loader: NeighborLoader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader.dataset)

    def __iter__(self) -> Iterator[int]:
        key = key_of(self.loader.seed, self.loader.node_sampler.epoch)
        generator = torch.Generator().manual_seed(key >> 1)
        return iter(torch.randperm(len(self), generator=generator).tolist())


class NeighborLoader(NodeLoader):  # type: ignore[misc] # PyG has no types
    """Batches of nodes with a sample of their neighborhood; arguments as in PyG's `NeighborLoader`, which needs
    packages that PyPI has no wheels for.

        loader = NeighborLoader(data, num_neighbors=[25, 10], input_nodes=data.train_mask, batch_size=512, shuffle=True)
        for batch in loader:
            out = model(batch.x, Graph.from_sample(batch))[: batch.batch_size]

    A batch has, besides what PyG's has, `norm` and `row_norm`: one value per edge, `Â_ij` and `A_ij / d_i` of the whole
    graph, divided by the probability of the edge (with replacement, times how often it was drawn). So
    `Σ_j norm_ij z_j` over the sampled edges has the mean `Σ_j Â_ij z_j`.

    Every pass is another epoch: the order and the samples are a function of the seed and the epoch, whatever the number
    of workers.

    Args:
        data: A PyG `Data`, whose `edge_weight`, if there is one, is `A`; or a `OnDiskGraph`, from whose files batches
            are read.
        num_neighbors: Neighbors per node, one number per layer, from the last layer down; −1 takes all.
        input_nodes: Distinct indices or a mask of the nodes that batches are made of; all nodes by default.
        replace: Whether to draw with replacement.
        disjoint: Whether every seed has nodes and draws of its own.
        weight_attr: Name of the edge attribute in `data` in proportion to which edges are drawn; `"weight"` of a store.
        seed: Seed of the order and the samples.
        sampler: A sampler of this graph instead, with settings of its own; then only `data`, `input_nodes` and `seed`
            count.
        options: Arguments of PyG's `NodeLoader`: `batch_size`, `shuffle`, `num_workers`, …
    """

    def __init__(
        self,
        data: Data | OnDiskGraph,
        num_neighbors: Sequence[int] = (),
        input_nodes: Tensor | None = None,
        *,
        replace: bool = False,
        disjoint: bool = False,
        weight_attr: str | None = None,
        seed: int = 0,
        sampler: NeighborSampler | None = None,
        **options: Any,
    ) -> None:
        self.store = data if isinstance(data, OnDiskGraph) else None
        if sampler is None:
            drawn: dict[str, Any] = {"replace": replace, "disjoint": disjoint}
            if weight_attr is not None:
                drawn["probability"] = getattr(data, weight_attr)
            if isinstance(data, OnDiskGraph):
                sampler = NeighborSampler.from_store(data, num_neighbors, seed, **drawn)
            else:
                drawn["edge_weight"] = data.get("edge_weight")
                sampler = NeighborSampler.from_edge_index(data.edge_index, data.num_nodes, num_neighbors, seed, **drawn)
        if isinstance(data, OnDiskGraph):
            data = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=data.num_nodes)
        if isinstance(input_nodes, Tensor) and is_mask(input_nodes, sampler.num_nodes):
            input_nodes = input_nodes.bool()
        self.seed, self.next_epoch = seed, 0
        options.setdefault("generator", torch.Generator())  # else every pass would draw from the global one
        if options.pop("shuffle", False):
            options["sampler"] = Shuffled(self)
        super().__init__(data, sampler, input_nodes, **options)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass."""
        self.next_epoch = epoch

    def __iter__(self) -> Iterator[Data]:
        self.node_sampler.set_epoch(self.next_epoch)
        self.next_epoch += 1
        return super().__iter__()  # type: ignore[no-any-return]

    def filter_fn(self, out: SamplerOutput) -> Data:
        """The batch of a sample."""
        batch = super().filter_fn(out)
        batch.norm, batch.row_norm = out.metadata[2:]
        if self.store is not None:
            node = out.node.numpy()
            batch.num_nodes = node.size
            batch.x, batch.y = torch.from_numpy(self.store.x[node]), torch.from_numpy(self.store.y[node])
        return batch
