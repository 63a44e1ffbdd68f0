"""Columns of node features: their kinds, and `raw_features`, which turns arrays and data frames into raw numbers.

Raw features are an `[N, W]` array with NaN for missing values: one raw column per numeric, binary, bag or date column,
and one per category of a category column. They are float32, or float64 where there are dates, because single precision
resolves days since 1970 to minutes only. Sparse features are a CSR matrix without missing values.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.messages import DataError, counted, listed

if TYPE_CHECKING:
    import pandas as pd

Array: TypeAlias = NDArray[Any]
Matrix: TypeAlias = NDArray[Any] | scipy.sparse.csr_array

KINDS = ("numeric", "binary", "bag", "category", "date")
NUMBERS = ("numeric", "binary", "bag")
MAX_CATEGORIES = 64
MIN_BAG = 8  # columns; a bag of words has many
MAX_BAG_RATIO = 10  # of the largest value of a word to the median of those of all words
MAX_BAG_VALUE = 100  # median of the largest values: beyond it, the columns are amounts rather than words
BLOCK = 2**20  # values processed at a time
ISO_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?(Z|[+-]\d{2}:?\d{2})?"


@dataclass(frozen=True)
class Column:
    """A column of a user's table; `kind` is one of `KINDS`, and only a category column has `categories`."""

    name: str
    kind: str = "numeric"
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {self.kind!r}")
        if (self.kind == "category") != bool(self.categories):
            raise ValueError(
                f"categories must be given for kind 'category' only, got {self.categories} for {self.kind!r}"
            )

    @property
    def width(self) -> int:
        """The number of raw columns."""
        return len(self.categories) or 1


def raw_features(
    X: object, columns: Sequence[Column] | None = None, *, notes: list[str] | None = None
) -> tuple[Matrix, tuple[Column, ...]]:
    """The raw features of `X` and its columns.

    Args:
        X: `[N, F]`: a NumPy array, SciPy sparse matrix, PyTorch tensor, or pandas DataFrame with numeric, boolean,
            text, categorical or date columns. NaN and `None` are missing values.
        columns: The columns that are expected, as those of a model; by default they are inferred. Columns of a
            DataFrame are matched by name, in any order.
        notes: One sentence is appended per column with categories that `columns` does not have.

    Raises:
        DataError: `X` cannot be used, or differs from `columns`; the message says exactly where.
    """
    raw: Matrix
    pandas = sys.modules.get("pandas")  # who passes a DataFrame has imported it
    if pandas is not None and isinstance(X, pandas.DataFrame):
        raw, found = _read_frame(X, columns, [] if notes is None else notes)
    else:
        raw, found = _read_array(X, columns)
    return raw, recognize(raw, found) if columns is None else tuple(columns)


def as_matrix(raw: Matrix | Tensor, width: int) -> Matrix:
    """The raw features in NumPy or SciPy, without a copy where possible; they must have `width` columns."""
    matrix: Matrix
    if isinstance(raw, Tensor):
        matrix = _to_scipy(raw) if raw.layout != torch.strided else raw.detach().cpu().numpy()
    else:
        matrix = scipy.sparse.csr_array(raw) if scipy.sparse.issparse(raw) else np.asarray(raw)
    if matrix.ndim != 2 or matrix.shape[1] != width:
        raise ValueError(f"raw must have shape [N, {width}], got {list(matrix.shape)}")
    return matrix


def _to_scipy(x: Tensor) -> scipy.sparse.csr_array:
    x = x.detach().cpu().to_sparse_csr()
    parts = (x.values().float().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return scipy.sparse.csr_array(parts, shape=(x.size(0), x.size(1)))


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with about `BLOCK` values each, so that temporary arrays stay small."""
    step = max(1, BLOCK // max(1, columns))
    return (slice(low, low + step) for low in range(0, rows, step))


def first_indices(columns: Sequence[Column]) -> NDArray[np.int64]:
    """The index of the first raw column of each column."""
    widths = [column.width for column in columns]
    return np.cumsum([0, *widths[:-1]]).astype(np.int64) if widths else np.empty(0, dtype=np.int64)


# --- kinds ------------------------------------------------------------------------------------------------------------


def recognize(raw: Matrix, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns with numeric ones told apart: binary (0 and 1 only), bag (of words), or numeric.

    A bag of words is a block of `MIN_BAG` columns or more that are not negative, at least half zeros, and of similar
    size: the largest value of each is at most `MAX_BAG_RATIO` times their median, so that a lone skewed amount is not
    taken for a word.
    """
    low, high, zeros, ones, known = _dense_profile(raw) if isinstance(raw, np.ndarray) else _sparse_profile(raw)
    first = first_indices(columns)
    numeric = np.array([column.kind in NUMBERS for column in columns], dtype=bool)
    low, high, zeros, ones, known = (values[first] for values in (low, high, zeros, ones, known))
    binary = numeric & (known > 0) & (zeros + ones == known)
    word = numeric & (known > 0) & (low >= 0) & (high > 0) & (2 * zeros >= known)
    if word.any():
        middle = float(np.median(high[word]))
        word &= high <= MAX_BAG_RATIO * middle
        word &= bool(middle <= MAX_BAG_VALUE and word.sum() >= MIN_BAG)
    kinds = np.select([~numeric, binary, word], ["", "binary", "bag"], "numeric").tolist()
    return tuple(replace(column, kind=kind or column.kind) for column, kind in zip(columns, kinds, strict=True))


def _dense_profile(raw: Array) -> tuple[Array, ...]:
    """Per raw column: the smallest and largest value, and the numbers of zeros, of ones and of known values."""
    width = raw.shape[1]
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    zeros, ones, known = (np.zeros(width, dtype=np.int64) for _ in range(3))
    for rows in row_blocks(*raw.shape):
        block = raw[rows]
        low, high = np.fmin(low, np.fmin.reduce(block)), np.fmax(high, np.fmax.reduce(block))
        zeros += (block == 0).sum(0)
        ones += (block == 1).sum(0)
        known += (~np.isnan(block)).sum(0)
    return low, high, zeros, ones, known


def _sparse_profile(raw: scipy.sparse.csr_array) -> tuple[Array, ...]:
    rows, width = raw.shape
    low, high = np.zeros(width), np.zeros(width)
    np.minimum.at(low, raw.indices, raw.data)
    np.maximum.at(high, raw.indices, raw.data)
    zeros = rows - np.bincount(raw.indices[raw.data != 0], minlength=width)
    return low, high, zeros, np.bincount(raw.indices[raw.data == 1], minlength=width), np.full(width, rows)


# --- differences from a model's columns -------------------------------------------------------------------------------


def differences(
    expected: Sequence[Column], kinds: Mapping[str, str], shown: Mapping[str, str] | None = None
) -> list[str]:
    """What differs from the expected columns.

    `kinds` has the kind of each column found, "" if all its values are missing; `shown` examples of the values.
    """
    names = {column.name for column in expected}
    missing = [column.name for column in expected if column.name not in kinds]
    unexpected = [name for name in kinds if name not in names]
    parts = [f"no column {', '.join(map(repr, missing))}"] if missing else []
    if unexpected:
        parts.append(f"unexpected column{'s' * (len(unexpected) > 1)} {', '.join(map(repr, unexpected))}")
    words = {"category": "text", "date": "dates"}
    for column in expected:
        kind = kinds.get(column.name, "")
        got, wanted = words.get(kind, "numbers"), words.get(column.kind, "numbers")
        if kind and got != wanted:
            parts.append(f"column {column.name!r} holds {got}{(shown or {}).get(column.name, '')}, expected {wanted}")
    return parts


def unlike_array(expected: Sequence[Column], width: int) -> list[str]:
    """What differs between the expected columns and an array of `width` columns, which have no names."""
    parts = []
    if width != len(expected):
        names = listed([column.name for column in expected])
        parts.append(f"{counted(width, 'column')}, expected {len(expected)} ({names})")
    named = [column.name for column in expected if column.kind not in NUMBERS]
    if named:
        parts.append(f"an array of numbers, expected a table with text or dates in {listed(named)}")
    return parts


def unlike_the_model(label: str, parts: Sequence[str]) -> DataError:
    return DataError(f"{label} differs from what the model was trained on: {'; '.join(parts)}")


def unknown_categories(name: str, counts: Mapping[str, int]) -> str:
    """The note on values of a category column that the model does not know."""
    shown = listed([f"{value!r} ({count:,})" for value, count in counts.items()])
    return f"column {name!r}: unknown categories read as none: {shown}"


# --- arrays -----------------------------------------------------------------------------------------------------------


def _read_array(X: object, expected: Sequence[Column] | None) -> tuple[Matrix, list[Column]]:
    raw = _sparse_array(X) if _is_sparse(X) else _dense_array(X)
    if 0 in raw.shape:
        raise DataError(f"X has shape {list(raw.shape)}, expected one node and one feature or more")
    parts = [] if expected is None else unlike_array(expected, raw.shape[1])
    if parts:
        raise unlike_the_model("X", parts)
    return raw, [Column(f"x{k}") for k in range(raw.shape[1])]


def _is_sparse(X: object) -> bool:
    return X.layout != torch.strided if isinstance(X, Tensor) else bool(scipy.sparse.issparse(X))


def _sparse_array(X: Any) -> scipy.sparse.csr_array:
    if isinstance(X, Tensor):
        if X.dim() != 2:
            raise DataError(f"X has shape {list(X.shape)}, expected [N, F]")
        matrix = _to_scipy(X)
    else:
        if X.dtype.kind not in "fiub":
            raise DataError(f"X is of type {X.dtype}, expected numbers")
        with np.errstate(over="ignore"):
            matrix = scipy.sparse.csr_array(X, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        where = f"row {row}, column {matrix.indices[bad[0]]}"
        raise DataError(f"X holds {matrix.data[bad[0]]} at {where}, expected finite numbers, as X is sparse")
    return matrix


def _dense_array(X: object) -> Array:
    if isinstance(X, Tensor):
        X = X.detach().cpu()
        X = (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X has shape {list(array.shape)}, expected [N, F]")
    with suppress(TypeError, ValueError):
        array = array.astype(np.float64) if array.dtype.kind == "O" else array
    if array.dtype.kind not in "fiub":
        raise DataError(f"X is of type {array.dtype}, expected numbers; pass text in a DataFrame")
    with np.errstate(over="ignore"):
        raw = array.astype(np.float32)
    for rows in row_blocks(*raw.shape):
        for row, column in np.argwhere(np.isinf(raw[rows]))[:1]:
            value = array[rows][row, column]
            where = f"row {rows.start + row}, column {column}"
            raise DataError(f"X holds {value} at {where}, expected a finite number in single precision, or NaN")
    return raw


# --- data frames ------------------------------------------------------------------------------------------------------


def _read_frame(frame: pd.DataFrame, expected: Sequence[Column] | None, notes: list[str]) -> tuple[Array, list[Column]]:
    names = [str(name) for name in frame.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"X has the column {twice[0]!r} more than once, expected every name once")
    if not names or not len(frame):
        raise DataError(f"X has shape {list(frame.shape)}, expected one node and one feature or more")
    kinds = {column.name: column.kind for column in expected or ()}
    values = {name: _read_series(frame.iloc[:, k], name, kinds.get(name)) for k, name in enumerate(names)}
    if expected is None:
        columns = [_frame_column(frame.iloc[:, k], name, *values[name]) for k, name in enumerate(names)]
    else:
        parts = differences(expected, {name: kind for name, (kind, _) in values.items()})
        if parts:
            raise unlike_the_model("X", parts)
        columns = list(expected)
    dtype = np.float64 if any(column.kind == "date" for column in columns) else np.float32
    raw = np.zeros((len(frame), sum(column.width for column in columns)), dtype=dtype)
    for column, low in zip(columns, first_indices(columns).tolist(), strict=True):
        kind, data = values[column.name]
        if column.kind == "category" and kind:
            counts = one_hot(raw[:, low : low + column.width], column.categories, data)
            notes += [unknown_categories(column.name, counts)] if counts else []
        else:
            _fill_numbers(raw[:, low : low + column.width], column.name, data)
    return raw, columns


def one_hot(out: Array, categories: Sequence[str], values: Array) -> Counter[str]:
    """Writes the one-hot codes of texts, NaN for `None`; returns the unknown texts and how often they occur."""
    index = {category: k for k, category in enumerate(categories)}
    code = np.array([-2 if value is None else index.get(value, -1) for value in values.tolist()], dtype=np.int64)
    rows = np.flatnonzero(code >= 0)
    out[rows, code[rows]] = 1
    out[code == -2] = np.nan
    return Counter(values[code == -1].tolist())


def _fill_numbers(out: Array, name: str, values: Array) -> None:
    with np.errstate(over="ignore"):
        out[:] = values[:, None]
    bad = np.flatnonzero(np.isinf(out[:, 0]))
    if bad.size:
        expected = "expected a finite number in single precision"
        raise DataError(f"X: column {name!r} holds {values[bad[0]]} at row {bad[0]}, {expected}")


def _frame_column(series: pd.Series[Any], name: str, kind: str, values: Array) -> Column:
    import pandas as pd

    if kind != "category":
        return Column(name, kind or "numeric")
    if isinstance(series.dtype, pd.CategoricalDtype):  # declared by the user, in their order
        return Column(name, kind, tuple(dict.fromkeys(str(value) for value in series.dtype.categories)))
    categories = sorted({value for value in values.tolist() if value is not None})
    if len(categories) > MAX_CATEGORIES or 2 * len(categories) >= len(values):
        raise DataError(
            f"X: column {name!r} is text with {len(categories):,} distinct values in {counted(len(values), 'row')}, "
            f"expected categories (at most {MAX_CATEGORIES}, fewer than half of the rows): drop it, make it "
            "categorical, or replace it by numbers, such as an embedding"
        )
    return Column(name, kind, tuple(categories))


def _read_series(series: pd.Series[Any], name: str, expected: str | None) -> tuple[str, Array]:
    """The kind ("numeric", "category", "date", or "" without any value), and numbers, days, or texts and `None`."""
    import pandas as pd

    types, dtype = pd.api.types, series.dtype
    known = series.notna().to_numpy()
    if not known.any():
        return "", np.full(len(series), np.nan)
    inferred = types.infer_dtype(series, skipna=True) if types.is_object_dtype(dtype) else ""
    if types.is_datetime64_any_dtype(dtype) or inferred in ("datetime", "datetime64", "date"):
        return "date", _days(pd.to_datetime(series, utc=True))
    numbers = ("boolean", "integer", "floating", "mixed-integer-float", "decimal")
    if (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)) or inferred in numbers:
        return "numeric", pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan)
    text = isinstance(dtype, pd.StringDtype) or inferred == "string"
    if not (text or isinstance(dtype, pd.CategoricalDtype)):
        got = f"{dtype} with {inferred} values" if inferred else f"{dtype}"
        raise DataError(f"X: column {name!r} is of type {got}, expected numbers, categories or dates")
    if text and expected in (None, "date") and series[known].astype(str).str.fullmatch(ISO_DATE).all():
        with suppress(ValueError):  # such as February 30
            return "date", _days(pd.to_datetime(series, utc=True, format="ISO8601"))
    texts = [str(value).strip() or None if there else None for value, there in zip(series, known, strict=True)]
    array = np.array(texts, dtype=object)
    return ("category", array) if any(texts) else ("", np.full(len(series), np.nan))


def _days(series: pd.Series[Any]) -> Array:
    """Days since 1970, NaN where the date is missing."""
    import pandas as pd

    days = (series - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return days.to_numpy(dtype=np.float64, na_value=np.nan)
