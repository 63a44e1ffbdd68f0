"""`FeatureEncoder`: the columns of a user's table as features, scaled by statistics of the training nodes only."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.columns import Array, Column, Matrix, as_matrix, first_indices, raw_features, row_blocks
from gfgn.data.messages import DataError, counted, listed
from gfgn.ops.features import row_normalize, sparse_csr

__all__ = ["SCALES", "Column", "FeatureEncoder", "raw_features"]

SCALES = ("none", "standard", "row")
SCALED = ("numeric", "date")  # kinds that scale "standard" changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureEncoder:
    """Turns raw features, as `raw_features` returns them, into the features of a model.

    - Missing values are replaced by the mean over the training nodes. A column with missing values when fitted gets an
      indicator feature, `name missing`. A missing category has zeros in all its features.
    - Scale `"standard"` gives numeric and date columns mean 0 and standard deviation 1 over the training nodes; sparse
      numeric columns are divided by their standard deviation only, so that they stay sparse. Binary, bag-of-words and
      one-hot features are left as they are.
    - Scale `"row"` divides each row by the sum of its absolute values, `"none"` changes nothing.

    Attributes:
        mean: One value per column, over the training nodes; 0 for a category column, or if no value is known.
        std: One value per column, 1 for a category column or a column that does not vary.
        missing: Number of missing values in each column of all nodes when fitted.
        nodes: Number of training nodes.
    """

    columns: tuple[Column, ...]
    scale: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    missing: tuple[int, ...]
    nodes: int
    sparse: bool = False

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {self.scale!r}")
        for name in ("mean", "std", "missing"):
            if len(getattr(self, name)) != len(self.columns):
                raise ValueError(f"{name} must have {len(self.columns)} entries, got {len(getattr(self, name))}")

    @classmethod
    def fit(
        cls,
        raw: Matrix | Tensor,
        columns: Sequence[Column],
        train: NDArray[np.bool_] | Tensor | None = None,
        scale: str = "standard",
    ) -> FeatureEncoder:
        """Computes the statistics in double precision over the nodes in the mask `train`, by default all nodes."""
        matrix = as_matrix(raw, sum(column.width for column in columns))
        count = matrix.shape[0]
        rows = np.ones(count, dtype=bool) if train is None else np.asarray(train)
        if rows.shape != (count,) or rows.dtype != np.bool_:
            raise ValueError(f"train must be [{count}] of bool, got {list(rows.shape)} of {rows.dtype}")
        mean, std, missing = (values[first_indices(columns)] for values in _statistics(matrix, rows))
        category = [column.kind == "category" for column in columns]
        mean, std = np.where(category, 0, mean), np.where(category, 1, std)
        return cls(
            columns=tuple(columns),
            scale=scale,
            mean=tuple(mean.tolist()),
            std=tuple(std.tolist()),
            missing=tuple(missing.tolist()),
            nodes=int(rows.sum()),
            sparse=not isinstance(matrix, np.ndarray),
        )

    def transform(self, raw: Matrix | Tensor, notes: list[str] | None = None) -> Tensor:
        """The features: dense float32, or sparse CSR if `raw` is sparse.

        A missing value in a column that had none when fitted is replaced by the mean too. `notes` gets one sentence
        per such column; without `notes`, it is logged.
        """
        matrix = as_matrix(raw, sum(column.width for column in self.columns))
        found: list[str] = []
        x = self._dense(matrix, found) if isinstance(matrix, np.ndarray) else self._sparse(matrix)
        for note in found if notes is None else ():
            logger.warning(note)
        if notes is not None:
            notes += found
        return row_normalize(x) if self.scale == "row" else x

    def _dense(self, raw: Array, notes: list[str]) -> Tensor:
        fill, center, factor = self._vectors
        first = first_indices(self.columns)
        flagged = np.flatnonzero(self.missing)
        is_flag = np.array([flag for _, _, flag in self._features], dtype=bool)
        x = np.empty((raw.shape[0], is_flag.size), dtype=np.float32)
        missing = np.zeros(len(self.columns), dtype=np.int64)
        limit = np.finfo(np.float32).max
        for rows in row_blocks(*raw.shape):
            block = raw[rows].astype(np.float64)
            absent = np.isnan(block)
            missing += absent[:, first].sum(0)
            block = (np.where(absent, fill, block) - center) / factor
            x[rows, ~is_flag] = np.clip(block, -limit, limit)
            x[rows, is_flag] = absent[:, first[flagged]]
        for column, count, before in zip(self.columns, missing.tolist(), self.missing, strict=True):
            if count and not before:
                values = f"column {column.name!r}: {counted(count, 'missing value')}"
                instead = "none of its categories" if column.kind == "category" else "the mean over the training nodes"
                notes.append(f"{values} replaced by {instead}, although there was none in training")
        return torch.from_numpy(x)

    def _sparse(self, raw: scipy.sparse.csr_array) -> Tensor:
        _, center, factor = self._vectors
        if center.any() or any(self.missing):
            raise DataError("features are sparse, expected dense ones as in training, where columns were centered")
        values = (raw.data / factor[raw.indices]).astype(np.float32)
        crow, col = (torch.from_numpy(part.astype(np.int64)) for part in (raw.indptr, raw.indices))
        return sparse_csr(crow, col, torch.from_numpy(values), torch.Size(raw.shape))

    @cached_property
    def _vectors(self) -> tuple[Array, Array, Array]:
        """Per raw column: what replaces a missing value, what is subtracted, and the divisor."""
        scaled = np.array([self.scale == "standard" and column.kind in SCALED for column in self.columns], dtype=bool)
        mean, std = np.array(self.mean), np.array(self.std)
        center = np.zeros_like(mean) if self.sparse else np.where(scaled, mean, 0.0)
        vectors = (mean, center, np.where(scaled, std, 1.0))
        widths = [column.width for column in self.columns]
        fill, center, factor = (np.repeat(vector, widths) for vector in vectors)
        return fill, center, factor

    @property
    def centered(self) -> bool:
        """Whether features are shifted to mean 0."""
        return bool(self._vectors[1].any())

    @cached_property
    def _features(self) -> list[tuple[str, int, bool]]:
        """Name, index of the column and whether it is an indicator, for each feature."""
        features = []
        for k, (column, missing) in enumerate(zip(self.columns, self.missing, strict=True)):
            names = [f"{column.name}={value}" for value in column.categories] or [column.name]
            features += [(name, k, False) for name in names]
            features += [(f"{column.name} missing", k, True)] if missing else []
        return features

    @property
    def feature_names(self) -> list[str]:
        """`name`, `name=category` and `name missing`, in the order of the columns."""
        return [name for name, _, _ in self._features]

    @property
    def sources(self) -> list[int]:
        """The index in `columns` of each feature."""
        return [source for _, source, _ in self._features]

    def notes(self) -> list[str]:
        """What is done to the columns, one sentence each."""
        notes = [self._note(kind) for kind in ("numeric", "date", "binary", "bag", "category")]
        holes = [(column, f"{column.name} ({n:,})") for column, n in zip(self.columns, self.missing, strict=True) if n]
        for category, what in ((False, "values replaced by the training mean"), (True, "categories read as none")):
            names = [shown for column, shown in holes if (column.kind == "category") == category]
            notes.append(f"missing {what}, with an indicator feature each: {listed(names)}" if names else "")
        if self.scale == "row":
            notes.append("rows of features divided by the sum of their absolute values")
        return [note for note in notes if note]

    def _note(self, kind: str) -> str:
        columns = [column for column in self.columns if column.kind == kind]
        if not columns:
            return ""
        word = "bag-of-words" if kind == "bag" else kind
        subject = f"{counted(len(columns), f'{word} column')}{' in days since 1970' if kind == 'date' else ''}"
        if kind == "category":
            return f"{subject} one-hot encoded: {listed([f'{c.name} ({c.width} categories)' for c in columns])}"
        names = "" if kind == "bag" else f": {listed([column.name for column in columns])}"
        if self.scale != "standard" or kind not in SCALED:
            return f"{subject} left as {'it is' if len(columns) == 1 else 'they are'}{names}"
        nodes = counted(self.nodes, "training node")
        if self.sparse:
            return f"{subject} divided by the standard deviation of {nodes}, not centered to stay sparse{names}"
        return f"{subject} standardized by the mean and standard deviation of {nodes}{names}"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is computed when used

    def to_json(self) -> dict[str, Any]:
        """The encoder as JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FeatureEncoder:
        """The encoder that `to_json` returned."""
        try:
            columns = tuple(
                Column(str(c["name"]), c["kind"], tuple(map(str, c["categories"]))) for c in content["columns"]
            )
            mean, std = (tuple(map(float, content[name])) for name in ("mean", "std"))
            missing = tuple(map(int, content["missing"]))
            return cls(columns, content["scale"], mean, std, missing, int(content["nodes"]), bool(content["sparse"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"content must be the JSON of a FeatureEncoder, got one with {error!r}") from error


def _statistics(raw: Matrix, rows: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Per raw column: mean and standard deviation over `rows`, and the number of missing values in all rows."""
    return _dense_statistics(raw, rows) if isinstance(raw, np.ndarray) else _sparse_statistics(raw, rows)


def _dense_statistics(raw: Array, rows: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    width = raw.shape[1]
    total, square = np.zeros(width), np.zeros(width)
    known, missing = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
    for part in row_blocks(*raw.shape):
        block = raw[part]
        missing += np.isnan(block).sum(0)
        block = block[rows[part]].astype(np.float64)
        known += (~np.isnan(block)).sum(0)
        total += np.nansum(block, 0)
    mean = total / np.maximum(known, 1)
    for part in row_blocks(*raw.shape):
        square += np.nansum((raw[part][rows[part]].astype(np.float64) - mean) ** 2, 0)
    return mean, _standard_deviation(square, known, mean), missing


def _sparse_statistics(raw: scipy.sparse.csr_array, rows: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    width, count = raw.shape[1], int(rows.sum())
    kept = np.repeat(rows, np.diff(raw.indptr))
    column, values = raw.indices[kept], raw.data[kept].astype(np.float64)
    mean = np.bincount(column, values, minlength=width) / max(count, 1)
    zeros = count - np.bincount(column, minlength=width)
    square = np.bincount(column, (values - mean[column]) ** 2, minlength=width) + zeros * mean**2
    return mean, _standard_deviation(square, np.full(width, count), mean), np.zeros(width, dtype=np.int64)


def _standard_deviation(square: Array, known: Array, mean: Array) -> Array:
    """1 for a column that varies by no more than the rounding of its mean, as in scikit-learn's `StandardScaler`."""
    variance = square / np.maximum(known, 1)
    rounding = known * np.finfo(np.float64).eps
    varies = variance > rounding * variance + (rounding * mean) ** 2
    return np.where(varies, np.sqrt(variance), 1.0)
