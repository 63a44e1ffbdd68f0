"""`FeatureEncoder`: the columns of a user's table as features, fitted on the training nodes only."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.columns import KINDS, Array, Column, RawFeatures, profile_of, raw_features, refine, row_blocks
from gfgn.data.messages import DataError, counted, listed
from gfgn.ops.features import row_normalize, sparse_csr

__all__ = ["SCALES", "Column", "FeatureEncoder", "RawFeatures", "raw_features"]

SCALES = ("none", "standard", "row")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureEncoder:
    """Turns raw features, as `raw_features` returns them, into the features of a model.

    Everything that depends on values is fitted on the training nodes: kinds, categories, means and standard deviations.

    - Missing values are replaced by the mean. A column with missing values among the training nodes gets an indicator
      feature, `name missing`. A missing category has zeros in all its features, and so has one that no training node
      has.
    - Scale `"standard"` gives numeric and date columns mean 0 and standard deviation 1 over the training nodes; sparse
      numeric columns are divided by their standard deviation only, so that they stay sparse. Binary, bag-of-words and
      one-hot features are left as they are.
    - Scale `"row"` divides each row by the sum of its absolute values, `"none"` changes nothing.

    Attributes:
        mean: One value per column; 0 for a category column, or if no value is known.
        std: One value per column, 1 for a category column or a column that does not vary.
        missing: Number of missing values in each column.
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
        cls, raw: RawFeatures, train: NDArray[np.bool_] | Tensor | None = None, scale: str = "standard"
    ) -> FeatureEncoder:
        """Fits the columns over the nodes in the mask `train`, by default all nodes; statistics in double precision."""
        count = raw.values.shape[0]
        rows = np.ones(count, dtype=bool) if train is None else np.asarray(train)
        if rows.shape != (count,) or rows.dtype != np.bool_:
            raise ValueError(f"train must be [{count}] of bool, got {list(rows.shape)} of {rows.dtype}")
        profile = profile_of(raw.values, rows)
        columns = refine(raw, rows, profile)
        text = [column.holds == "text" for column in columns]
        return cls(
            columns=columns,
            scale=scale,
            mean=tuple(np.where(text, 0, profile.mean).tolist()),
            std=tuple(np.where(text, 1, profile.std).tolist()),
            missing=tuple((rows.sum() - profile.known).astype(np.int64).tolist()),
            nodes=int(rows.sum()),
            sparse=not isinstance(raw.values, np.ndarray),
        )

    def transform(self, raw: RawFeatures, notes: list[str] | None = None) -> Tensor:
        """The features: dense float32, or sparse CSR if `raw` is sparse.

        A missing value in a column that had none when fitted is replaced by the mean too. `notes` gets one sentence
        per such column, and per column with unknown categories; without `notes`, it is logged.
        """
        if raw.values.ndim != 2 or raw.values.shape[1] != len(self.columns):
            raise ValueError(f"raw must have shape [N, {len(self.columns)}], got {list(raw.values.shape)}")
        found: list[str] = []
        x = self._dense(raw, found) if isinstance(raw.values, np.ndarray) else self._sparse(raw.values)
        for note in found if notes is None else ():
            logger.warning(note)
        if notes is not None:
            notes += found
        return row_normalize(x) if self.scale == "row" else x

    def _dense(self, raw: RawFeatures, notes: list[str]) -> Tensor:
        values, features = np.asarray(raw.values), self._features
        single = np.array([KINDS[column.kind].slots is None for column in self.columns], dtype=bool)
        number = np.array([single[k] and not flag for _, k, flag in features], dtype=bool)
        flag = np.array([flag for _, _, flag in features], dtype=bool)
        flagged, limit = np.flatnonzero(self.missing), np.finfo(np.float32).max
        x = np.zeros((values.shape[0], len(features)), dtype=np.float32)
        missing = np.zeros(len(self.columns), dtype=np.int64)
        mean, center, factor = (array[single] for array in (np.array(self.mean), *self._shift))
        for rows in row_blocks(*values.shape):
            absent = np.isnan(values[rows])
            missing += absent.sum(0)
            block = values[rows].astype(np.float64)[:, single]
            block = (np.where(absent[:, single], mean, block) - center) / factor
            x[rows, number] = np.clip(block, -limit, limit)
            x[rows, flag] = absent[:, flagged]
        for k in np.flatnonzero(~single):
            first = next((place for place, (_, source, _) in enumerate(features) if source == k), 0)
            self._write_categories(x[:, first:], values[:, k], self.columns[k], raw.columns[k].categories, notes)
        for column, count, before in zip(self.columns, missing.tolist(), self.missing, strict=True):
            if count and not before:
                found = f"column {column.name!r}: {counted(count, 'missing value')}"
                instead = "none of its categories" if column.holds == "text" else "the mean over the training nodes"
                notes.append(f"{found} replaced by {instead}, although there was none in training")
        return torch.from_numpy(x)

    def _write_categories(
        self, x: Array, codes: Array, column: Column, categories: Sequence[str], notes: list[str]
    ) -> None:
        """Writes the features of one column into the first columns of `x`."""
        slots = KINDS[column.kind].slots
        assert slots is not None
        rows = np.flatnonzero(~np.isnan(codes))
        texts = codes[rows].astype(np.int64)
        slot = np.array([*slots(column, categories), -1], dtype=np.int64)[texts]
        x[rows[slot >= 0], slot[slot >= 0]] = 1
        counts = Counter(categories[text] for text in texts[slot < 0].tolist())
        if counts:
            shown = listed([f"{value!r} ({count:,})" for value, count in counts.items()])
            notes.append(f"column {column.name!r}: unknown categories read as none: {shown}")

    def _sparse(self, raw: scipy.sparse.csr_array) -> Tensor:
        center, factor = self._shift
        if center.any() or any(self.missing):
            raise DataError("features are sparse, expected dense ones as in training, where columns were centered")
        values = (raw.data / factor[raw.indices]).astype(np.float32)
        crow, col = (torch.from_numpy(part.astype(np.int64)) for part in (raw.indptr, raw.indices))
        return sparse_csr(crow, col, torch.from_numpy(values), torch.Size(raw.shape))

    @cached_property
    def _shift(self) -> tuple[Array, Array]:
        """Per column: what is subtracted, and the divisor."""
        standard = self.scale == "standard"
        scaled = np.array([standard and KINDS[column.kind].scaled for column in self.columns], dtype=bool)
        mean, std = np.array(self.mean), np.array(self.std)
        center = np.zeros_like(mean) if self.sparse else np.where(scaled, mean, 0.0)
        return center, np.where(scaled, std, 1.0)

    @property
    def centered(self) -> bool:
        """Whether features are shifted to mean 0."""
        return bool(self._shift[0].any())

    @cached_property
    def _features(self) -> list[tuple[str, int, bool]]:
        """Name, index of the column and whether it is an indicator, for each feature."""
        features = []
        for k, (column, missing) in enumerate(zip(self.columns, self.missing, strict=True)):
            features += [(name, k, False) for name in KINDS[column.kind].names(column)]
            features += [(f"{column.name} missing", k, True)] if missing else []
        return features

    @property
    def feature_names(self) -> list[str]:
        """`name`, `name=category`, `name#slot` and `name missing`, in the order of the columns."""
        return [name for name, _, _ in self._features]

    @property
    def sources(self) -> list[int]:
        """The index in `columns` of each feature."""
        return [source for _, source, _ in self._features]

    def notes(self) -> list[str]:
        """What is done to the columns, one sentence each."""
        notes = [self._note(kind, of) for kind in KINDS if (of := [c for c in self.columns if c.kind == kind])]
        given = [(column, count) for column, count in zip(self.columns, self.missing, strict=True) if count]
        holes = [(column.holds == "text", f"{column.name} ({count:,})") for column, count in given]
        for text, what in ((False, "values replaced by the training mean"), (True, "categories read as none")):
            names = [shown for is_text, shown in holes if is_text == text]
            if names:
                notes.append(f"missing {what}, with an indicator feature each: {listed(names)}")
        return notes + ["rows of features divided by the sum of their absolute values"] * (self.scale == "row")

    def _note(self, name: str, columns: list[Column]) -> str:
        kind, nodes = KINDS[name], counted(self.nodes, "training node")
        subject = counted(len(columns), f"{kind.word} column") + " in days since 1970" * (kind.holds == "dates")
        sizes = [f" ({counted(len(c.categories), 'category', 'categories')})" if c.categories else "" for c in columns]
        shown = [column.name + size for column, size in zip(columns, sizes, strict=True)]
        names = f": {listed(shown)}"
        if self.scale != "standard" or not kind.scaled:
            return f"{subject} {kind.note.format(names=names, they='it is' if len(columns) == 1 else 'they are')}"
        if self.sparse:
            return f"{subject} divided by the standard deviation of {nodes}, not centered to stay sparse{names}"
        return f"{subject} standardized by the mean and standard deviation of {nodes}{names}"

    def to_json(self) -> dict[str, Any]:
        """The encoder as JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FeatureEncoder:
        """The encoder that `to_json` returned, also one of gfgn 0.2."""
        try:
            columns = [
                Column(str(c["name"]), str(c["kind"]), tuple(map(str, c["categories"])), str(c.get("format", "")))
                for c in content["columns"]
            ]
            mean, std = tuple(map(float, content["mean"])), tuple(map(float, content["std"]))
            missing, nodes = tuple(map(int, content["missing"])), int(content["nodes"])
            return cls(tuple(columns), str(content["scale"]), mean, std, missing, nodes, bool(content["sparse"]))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"content must be the JSON of a FeatureEncoder, got one with {error!r}") from error
