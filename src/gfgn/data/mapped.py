"""`MappedGraph`: a graph whose edges are memory maps, for training on samples and inference layer by layer."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.columns import Array
from gfgn.graph import Graph
from gfgn.ops.csr import CSR


class MappedGraph(Graph):
    """A graph in files: `by_target` and `weight` are memory maps, of which only what is read takes memory.

    Samplers and `infer_layerwise` read nothing else. When another tensor is read, the whole graph is read into memory.
    """

    @staticmethod
    def of(ptr: Array, idx: Array, weight: Array | None) -> MappedGraph:
        """The graph of these edges, see `gfgn.data.OnDiskGraph`."""
        graph = object.__new__(MappedGraph)
        by_target = CSR.from_pointers(mapped(ptr), mapped(idx))
        fields = {"num_nodes": ptr.size - 1, "num_graphs": 1, "by_target": by_target, "given_order": None}
        graph.__dict__.update(fields, weight=None if weight is None else mapped(weight), batch=None)
        return graph

    @cached_property
    def whole(self) -> Graph:
        """The same graph in memory."""
        ptr, idx = self.by_target.ptr.numpy(), self.by_target.idx.numpy()
        values = np.ones(idx.size, np.int8) if self.weight is None else self.weight.numpy()
        return Graph.from_csr(scipy.sparse.csr_array((values, idx, ptr), shape=(self.num_nodes, self.num_nodes)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    @property
    def dtype(self) -> torch.dtype:
        return self.__dict__["norm"].dtype if "norm" in self.__dict__ else torch.get_default_dtype()


def is_mapped(graph: Graph) -> bool:
    """Whether a graph is in files and nothing has read all of it so far."""
    return isinstance(graph, MappedGraph) and not {"whole", "norm"} & graph.__dict__.keys()


def mapped(array: Array) -> Tensor:
    """A tensor that shares the memory of an array, which may be read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))
