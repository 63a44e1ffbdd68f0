"""Columns of node features: what a column holds, and `raw_features`, which reads arrays and data frames alike."""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gfgn.data.messages import DataError, counted, listed

if TYPE_CHECKING:
    import pandas as pd
    import scipy.sparse
    from torch import Tensor

    Series: TypeAlias = pd.Series[Any]

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = "NDArray[Any] | scipy.sparse.csr_array"

MAX_CATEGORIES = 64  # features of a category column; with more categories, they share this many
MIN_BAG = 8  # columns; a bag of words has many
MAX_BAG_RATIO = 10  # of the largest value of a word to the median of those of all words
MAX_BAG_VALUE = 100  # median of the largest values: beyond it, the columns are amounts rather than words
MAX_STRAY = 0.05  # fraction of texts in a column of numbers beyond which it is a column of text
BLOCK = 2**20  # values processed at a time
DAY = 86_400_000_000  # microseconds

ISO = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?(Z|[+-]\d{2}:?\d{2})?"
DATES = [
    day + time
    for day in ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%Y.%m.%d")
    for time in ("", " %H:%M", " %H:%M:%S")
]
NUMBERS = {  # how numbers are written: the pattern, the mark of thousands and the decimal mark
    "": (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", "", "."),
    "1,234.5": (r"[+-]?([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d+)?", ",", "."),
    "1.234,5": (r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?", ".", ","),
}
MISSING = {  # what pandas takes for a missing value in a CSV file
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
}
STRAY = re.compile(r"[^\w]+|n/?an?|null|none|nil|missing|unknown|#(n/a|ref!|value!|div/0!|num!)", re.IGNORECASE)


@dataclass(frozen=True)
class Column:
    """A column of a user's table.

    Attributes:
        kind: One of `KINDS`.
        categories: The categories of a category column.
        format: How numbers or dates in text are written, such as `"1.234,5"` or `"%d.%m.%Y"`; "" for the usual ways.
    """

    name: str
    kind: str = "numeric"
    categories: tuple[str, ...] = ()
    format: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {self.kind!r}")

    @property
    def holds(self) -> str:
        """`"numbers"`, `"dates"` or `"text"`."""
        return KINDS[self.kind].holds


class RawFeatures(NamedTuple):
    """A table of features before it is encoded.

    Attributes:
        values: `[N, F]`, one column per column of the table: numbers, days since 1970, or indices into `categories`;
            NaN where a value is missing. It is float32, or float64 where there are dates, because single precision
            resolves days since 1970 to minutes only; or a CSR matrix without missing values.
        columns: What each column holds.
    """

    values: Matrix
    columns: tuple[Column, ...]


# --- kinds ------------------------------------------------------------------------------------------------------------


class Texts(NamedTuple):
    """A column of text: for each row the index of its text, −1 where it is missing, and the different texts."""

    codes: NDArray[np.int64]
    values: list[str]
    typed: bool  # whether text that looks like numbers was written as text on purpose


class Values(NamedTuple):
    """What texts stand for: one value each, NaN for a text that counts as missing; and how they are written."""

    values: Floats
    format: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of column. To add one, add an entry to `KINDS`.

    Attributes:
        holds: "numbers", "dates" or "text": what a table must have in the column of a model.
        word: What it is called.
        recognize: Reads a column of text, `None` if it is not of this kind; given the format that a model expects.
            The first kind that accepts a column gets it.
        names: The names of its features.
        slots: For a column of categories: the index of the feature of each text, −1 for an unknown one.
        scaled: Whether scale `"standard"` changes it.
        note: What is done to columns of this kind that are not scaled.
    """

    holds: str
    word: str
    recognize: Callable[[Texts, str], Values | None] | None = None
    names: Callable[[Column], list[str]] = lambda column: [column.name]
    slots: Callable[[Column, Sequence[str]], list[int]] | None = None
    scaled: bool = False
    note: str = "left as {they}{names}"


def _read_booleans(texts: Texts, format: str) -> Values | None:
    return _known(texts, Values(np.array([{"true": 1.0, "false": 0.0}.get(t.lower(), np.nan) for t in texts.values])))


def _read_numbers(texts: Texts, format: str) -> Values | None:
    """Numbers, of which some may be missing in words; other texts count as missing if they are few among many different
    numbers."""
    many = min(MAX_CATEGORIES, (texts.codes >= 0).sum() / 2)
    allowed = MAX_STRAY if len(texts.values) > many else 0
    for name in dict.fromkeys([format, *NUMBERS]):
        values = _parse(texts.values, name)
        if texts.typed and not name and not np.isnan(values).any():
            return None
        if (known := _known(texts, Values(values, name), allowed)) is not None:
            return known
    return None


def _parse(texts: Sequence[str], format: str) -> Floats:
    """The numbers of one format, NaN for other texts."""
    pattern, thousands, point = NUMBERS.get(format, NUMBERS[""])
    matches = re.compile(pattern, re.IGNORECASE).fullmatch
    plain = [text.replace(thousands, "").replace(point, ".") if matches(text) else "nan" for text in texts]
    return np.array(plain, dtype=np.float64)


def _read_dates(texts: Texts, format: str) -> Values | None:
    import pandas as pd

    series = pd.Series([None if STRAY.fullmatch(text) else text for text in texts.values], dtype="str")
    known = series.dropna()
    for name in dict.fromkeys([format or "ISO8601", "ISO8601", *DATES]) if len(known) else ():
        if name == "ISO8601" and not known.str.fullmatch(ISO).all():
            continue
        if pd.isna(pd.to_datetime(known.iloc[0], format=name, utc=True, errors="coerce")):
            continue
        dates = pd.to_datetime(series, format=name, utc=True, errors="coerce")
        if dates.notna().sum() == len(known):
            return Values(_days(dates), "" if name == "ISO8601" else name)
    return None


def _known(texts: Texts, found: Values, allowed: float = 0) -> Values | None:
    """The values, if all texts but missing ones and a fraction `allowed` of the others have one."""
    lost = np.isnan(found.values)
    strange = lost & [not STRAY.fullmatch(text) for text in texts.values]
    rows = np.bincount(texts.codes[texts.codes >= 0], minlength=lost.size)
    return None if lost.all() or rows[strange].sum() > allowed * rows.sum() else found


def _one_hot(column: Column, texts: Sequence[str]) -> list[int]:
    index = {category: k for k, category in enumerate(column.categories)}
    return [index.get(text, -1) for text in texts]


def _hashed(column: Column, texts: Sequence[str]) -> list[int]:
    return [zlib.crc32(text.encode("utf-8", "surrogatepass")) % MAX_CATEGORIES for text in texts]


KINDS: dict[str, Kind] = {
    "numeric": Kind("numbers", "numeric", _read_numbers, scaled=True),
    "date": Kind("dates", "date", _read_dates, scaled=True),
    "binary": Kind("numbers", "binary", _read_booleans),
    "bag": Kind("numbers", "bag-of-words", note="left as {they}"),
    "category": Kind(
        "text",
        "category",
        lambda texts, format: Values(np.arange(len(texts.values), dtype=np.float64)),
        lambda column: [f"{column.name}={category}" for category in column.categories],
        _one_hot,
        note="one-hot encoded{names}",
    ),
    "hashed": Kind(
        "text",
        "category",
        None,
        lambda column: [f"{column.name}#{k}" for k in range(MAX_CATEGORIES)],
        _hashed,
        note=f"of more than {MAX_CATEGORIES} categories hashed to {MAX_CATEGORIES} features each{{names}}",
    ),
}


def refine(raw: RawFeatures, rows: NDArray[np.bool_], profile: Profile) -> tuple[Column, ...]:
    """The columns by their values in the chosen rows: binary ones (0 and 1 only), bags of words, and the categories.

    A bag of words is a block of `MIN_BAG` columns or more that are not negative, at least half zeros, and of similar
    size: the largest value of each is at most `MAX_BAG_RATIO` times their median, so that a lone skewed amount is not
    taken for a word.
    """
    low, high, zeros, ones, known = profile.low, profile.high, profile.zeros, profile.ones, profile.known
    numeric = np.array([column.holds == "numbers" for column in raw.columns], dtype=bool) & (known > 0)
    binary = numeric & (zeros + ones == known)
    word = numeric & (low >= 0) & (high > 0) & (2 * zeros >= known)
    if word.any():
        middle = float(np.median(high[word]))
        word &= high <= MAX_BAG_RATIO * middle
        word &= bool(middle <= MAX_BAG_VALUE and word.sum() >= MIN_BAG)
    columns = []
    for k, column in enumerate(raw.columns):
        kind, categories = column.kind, ()
        if kind == "category":
            codes = np.asarray(raw.values)[rows, k]
            seen = np.unique(codes[codes >= 0]).astype(np.int64).tolist()
            kind = "hashed" if len(seen) > MAX_CATEGORIES else kind
            categories = tuple(column.categories[index] for index in seen if kind == "category")
        elif column.holds == "numbers":
            kind = "binary" if binary[k] else "bag" if word[k] else "numeric"
        columns.append(Column(column.name, kind, categories, column.format))
    return tuple(columns)


class Profile(NamedTuple):
    """Per column, over some rows: the smallest and largest value, numbers of zeros, ones and known values, and mean and
    standard deviation of the known ones."""

    low: Floats
    high: Floats
    zeros: Array
    ones: Array
    known: Array
    mean: Floats
    std: Floats


def profile_of(values: Matrix, rows: NDArray[np.bool_]) -> Profile:
    """The profile of the chosen rows, in double precision."""
    if not isinstance(values, np.ndarray):
        return _sparse_profile(values, rows)
    low, high = np.full(values.shape[1], np.inf), np.full(values.shape[1], -np.inf)
    zeros, ones, known, total, square = np.zeros((5, values.shape[1]))
    for part in row_blocks(*values.shape):
        block = values[part][rows[part]].astype(np.float64)
        low = np.fmin(low, np.fmin.reduce(block, 0, initial=np.inf))
        high = np.fmax(high, np.fmax.reduce(block, 0, initial=-np.inf))
        zeros += (block == 0).sum(0)
        ones += (block == 1).sum(0)
        known += (~np.isnan(block)).sum(0)
        total += np.nansum(block, 0)
    mean = total / np.maximum(known, 1)
    for part in row_blocks(*values.shape):
        square += np.nansum((values[part][rows[part]].astype(np.float64) - mean) ** 2, 0)
    return Profile(low, high, zeros, ones, known, mean, _deviation(square, known, mean))


def _sparse_profile(values: scipy.sparse.csr_array, rows: NDArray[np.bool_]) -> Profile:
    width, count, kept = values.shape[1], int(rows.sum()), np.repeat(rows, np.diff(values.indptr))
    index, data = values.indices[kept], values.data[kept].astype(np.float64)
    low, high, known = np.zeros(width), np.zeros(width), np.full(width, count)
    np.minimum.at(low, index, data)
    np.maximum.at(high, index, data)
    zeros = count - np.bincount(index[data != 0], minlength=width)
    ones = np.bincount(index[data == 1], minlength=width)
    mean = np.bincount(index, data, minlength=width) / max(count, 1)
    absent = count - np.bincount(index, minlength=width)
    square = np.bincount(index, (data - mean[index]) ** 2, minlength=width) + absent * mean**2
    return Profile(low, high, zeros, ones, known, mean, _deviation(square, known, mean))


def _deviation(square: Floats, known: Array, mean: Floats) -> Floats:
    """1 for a column that varies by no more than the rounding of its mean, as in scikit-learn's `StandardScaler`, or
    by less than single precision resolves: dividing by it would take ordinary values beyond all bounds."""
    variance = square / np.maximum(known, 1)
    rounding = known * np.finfo(np.float64).eps
    std = np.sqrt(variance)
    varies = (variance > rounding * variance + (rounding * mean) ** 2) & (std >= np.finfo(np.float32).tiny)
    return np.where(varies, std, 1.0)


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with about `BLOCK` values each, so that temporary arrays stay small."""
    step = max(1, BLOCK // max(1, columns))
    return (slice(low, low + step) for low in range(0, rows, step))


# --- data frames ------------------------------------------------------------------------------------------------------


def raw_features(X: object, columns: Sequence[Column] | None = None, *, notes: list[str] | None = None) -> RawFeatures:
    """Reads the features of nodes.

    Args:
        X: `[N, F]`: a NumPy array, SciPy sparse matrix, PyTorch tensor, or pandas DataFrame with numeric, boolean,
            text, categorical or date columns. NaN and `None` are missing values.
        columns: The columns that are expected, as those of a model; by default they are inferred. Columns of a
            DataFrame are matched by name, in any order.
        notes: One sentence is appended per column whose values had to be guessed.

    Raises:
        DataError: `X` cannot be used, or differs from `columns`; the message says exactly where.
    """
    pandas = sys.modules.get("pandas")  # who passes a DataFrame has imported it
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return FrameReader("X", notes=[] if notes is None else notes).read(X, columns)
    values = read_matrix(X, "X")
    return named_columns(values, [f"x{k}" for k in range(values.shape[1])], columns, "X")


@dataclass
class FrameReader:
    """Reads the features in a data frame.

    Attributes:
        label: Name of the frame in messages.
        typed: Whether text that looks like numbers was written as text on purpose.
        first: Number of the first row in messages.
        notes: Gets one sentence per guess.
    """

    label: str
    typed: bool = True
    first: int = 0
    notes: list[str] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict, init=False)

    def read(
        self, frame: pd.DataFrame, expected: Sequence[Column] | None = None, more: Sequence[str] = ()
    ) -> RawFeatures:
        """The features; `more` are further differences from the data of the model that expects the columns."""
        names = [str(name) for name in frame.columns]
        refuse_repeated(names, self.label)
        if not names or not len(frame):
            raise DataError(f"{self.label} has shape {list(frame.shape)}, expected one node and one feature or more")
        wanted = {column.name: column for column in expected or ()}
        found = {name: self._column(frame.iloc[:, k], name, wanted.get(name)) for k, name in enumerate(names)}
        if expected is not None:
            refuse_unlike(self.label, [*self._differences(expected, found), *more])
            names = [column.name for column in expected]
        columns = tuple(found[name][0] for name in names)
        wide = any(column.kind == "date" or len(column.categories) > 2**24 for column in columns)
        values = np.empty((len(frame), len(names)), dtype=np.float64 if wide else np.float32)
        for k, name in enumerate(names):
            given = found[name][1]
            for bad in np.flatnonzero(np.isinf(to_float32(given)))[:1]:
                got = f"column {name!r} holds {given[bad]} at {self._row(bad)}"
                raise DataError(f"{self.label}: {got}, expected a finite number in single precision")
            values[:, k] = given
        return RawFeatures(values, columns)

    def _differences(self, expected: Sequence[Column], found: Mapping[str, tuple[Column, Floats]]) -> list[str]:
        """What differs from the expected columns; a column without any value fits every kind."""
        missing = [repr(column.name) for column in expected if column.name not in found]
        unexpected = [repr(name) for name in found if name not in {column.name for column in expected}]
        parts = [f"no column {listed(missing)}"] if missing else []
        if unexpected:
            parts.append(f"unexpected column{'s' * (len(unexpected) > 1)} {listed(unexpected)}")
        wrong = []
        for column in (column for column in expected if column.name in found):
            got, values = found[column.name]
            if got.holds != column.holds and not np.isnan(values).all():
                example = self.examples.get(column.name, "")
                wrong.append(f"column {column.name!r} holds {got.holds}{example}, expected {column.holds}")
        return [*parts, *wrong[:5], *([f"{len(wrong) - 5:,} more columns hold something else"] if wrong[5:] else [])]

    def _row(self, index: np.integer) -> str:
        return f"row {index + self.first}"

    def _column(self, series: Series, name: str, expected: Column | None) -> tuple[Column, Floats]:
        import pandas as pd

        types, dtype, known = pd.api.types, series.dtype, series.notna().to_numpy()
        if not known.any():
            return Column(name), np.full(len(series), np.nan)
        inferred = types.infer_dtype(series, skipna=True) if dtype.kind == "O" else ""
        numeric = types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)
        if numeric or inferred in ("boolean", "integer", "floating", "mixed-integer-float", "decimal"):
            values = pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan)
            if expected is not None and expected.kind == "category":
                digits = pd.Series(values).map(lambda value: f"{value:.15g}", na_action="ignore")
                if not set(digits.dropna()).isdisjoint(expected.categories):
                    return self._texts(digits, name, expected)
            return Column(name), values
        if types.is_datetime64_any_dtype(dtype) or inferred in ("datetime", "datetime64", "date"):
            return Column(name, "date"), _days(pd.to_datetime(series, utc=True))
        if isinstance(dtype, pd.CategoricalDtype):  # declared by the user, in their order
            texts = [str(value) for value in dtype.categories]
            categories = tuple(dict.fromkeys(texts))
            index = np.array([*(categories.index(text) for text in texts), np.nan])
            return Column(name, "category", categories), index[series.cat.codes.to_numpy()]
        scalars = inferred in ("mixed", "mixed-integer") and series[known].map(np.isscalar).all()
        if not (isinstance(dtype, pd.StringDtype) or inferred == "string" or scalars):
            got = f"{dtype} with {inferred} values" if inferred else f"{dtype}"
            raise DataError(f"{self.label}: column {name!r} is of type {got}, expected numbers, categories or dates")
        return self._texts(series, name, expected)

    def _texts(self, series: Series, name: str, expected: Column | None) -> tuple[Column, Floats]:
        """A column of text, of the first kind that accepts it."""
        import pandas as pd

        codes, unique = pd.factorize(series)
        stripped = [str(text).strip() for text in unique]
        stripped = [text if self.typed or text not in MISSING else "" for text in stripped]
        order = sorted({text for text in stripped if text})
        index = {text: k for k, text in enumerate(order)} | {"": -1}
        rows = np.array([*(index[text] for text in stripped), -1], dtype=np.int64)[codes]
        if not order:
            return Column(name), np.full(len(series), np.nan)
        texts = Texts(rows, order, self.typed and (expected is None or expected.holds != "numbers"))
        known = expected is not None and (expected.kind == "hashed" or not set(order).isdisjoint(expected.categories))
        format = "" if expected is None else expected.format
        for kind in ["category"] if known else KINDS:
            recognize = KINDS[kind].recognize
            read = None if recognize is None else recognize(texts, format)
            if read is not None:
                break
        assert read is not None  # every text is a category
        self._note(name, texts, read, kind)
        column = Column(name, kind, tuple(order) if kind == "category" else (), read.format)
        return column, np.append(read.values, np.nan)[rows]

    def _note(self, name: str, texts: Texts, read: Values, kind: str) -> None:
        """Says how numbers and dates were read, which texts count as missing, and what may be a name or a comment."""
        if kind == "category":
            first = int(np.flatnonzero(texts.codes >= 0)[0])
            text = texts.values[texts.codes[first]]
            self.examples[name] = f" ({text if len(text) <= 30 else text[:29] + '…'!r} at {self._row(np.int64(first))})"
            size, known = len(texts.values), int((texts.codes >= 0).sum())
            if size > MAX_CATEGORIES and 2 * size >= known:
                distinct = f"text with {size:,} distinct values in {counted(known, 'row')}"
                cure = f"if it is a name or a comment, leave it out (--drop {name})"
                self.notes.append(f"{self.label}: column {name!r} is {distinct}: {cure}")
        if read.format:
            what = "dates" if "%" in read.format else "numbers"
            self.notes.append(f"{self.label}: column {name!r} is read as {what} of the form {read.format}")
        lost = np.isnan(read.values)
        if lost.any():
            rows = np.flatnonzero(np.append(lost, False)[texts.codes])
            shown = listed([repr(texts.values[k]) for k in np.flatnonzero(lost).tolist()], 3)
            where = f"{self._row(rows[0])}{' first' if rows.size > 1 else ''}"
            missing = f"{counted(rows.size, 'value')} read as missing: {shown} ({where})"
            self.notes.append(f"{self.label}: column {name!r}: {missing}")


def loose_numbers(series: Series, formats: Sequence[str] = tuple(NUMBERS)) -> tuple[Floats, str]:
    """The numbers in a column, NaN where a value is missing or none, and the format that reads most of them."""
    import pandas as pd

    plain = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isnan(plain).any() or pd.api.types.is_numeric_dtype(series.dtype):
        return plain, ""
    texts = [str(value).strip() for value in series]
    found = [(_parse(texts, name), name) for name in formats]
    return min(found, key=lambda each: np.isnan(each[0]).sum())


def _days(series: Series) -> Floats:
    """Days since 1970, NaN where the date is missing."""
    values = series.dt.as_unit("us").to_numpy(dtype="datetime64[us]").astype(np.int64) / DAY
    return np.where(series.isna().to_numpy(), np.nan, values)


# --- differences from a model's columns -------------------------------------------------------------------------------


def refuse_repeated(names: Sequence[str], label: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{label} has the column {twice[0]!r} more than once, expected every name once")


def refuse_unlike(label: str, parts: Sequence[str]) -> None:
    if parts:
        raise DataError(f"{label} differs from what the model was trained on: {'; '.join(parts)}")


# --- arrays -----------------------------------------------------------------------------------------------------------


def named_columns(
    values: Matrix, names: Sequence[str], expected: Sequence[Column] | None, label: str, more: Sequence[str] = ()
) -> RawFeatures:
    """Numbers whose columns have names; `more` are further differences from a model's data."""
    if expected is None:
        return RawFeatures(values, tuple(map(Column, names)))
    parts = [*more]
    if len(names) != len(expected):
        known = listed([column.name for column in expected])
        parts.insert(0, f"{counted(len(names), 'column')}, expected {len(expected)} ({known})")
    others = [column.name for column in expected if column.holds != "numbers"]
    if others:
        parts.append(f"an array of numbers, expected a table with text or dates in {listed(others)}")
    refuse_unlike(label, parts)
    return RawFeatures(values, tuple(expected))


def read_matrix(X: Any, label: str) -> Matrix:
    """Numbers in single precision: an array, NaN where one is missing, or a sparse matrix."""
    torch = sys.modules.get("torch")  # who passes a tensor has imported it
    if torch is not None and isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        if X.layout != torch.strided and X.dim() == 2:
            X = sparse_tensor(X)
        elif X.layout == torch.strided:
            X = (X.float() if X.dtype == torch.bfloat16 else X).numpy()
    sparse = sys.modules.get("scipy.sparse")
    if not hasattr(X, "layout") and (sparse is None or not sparse.issparse(X)):
        X = np.asarray(X)
        if X.dtype.kind == "O":
            with suppress(TypeError, ValueError):
                X = X.astype(np.float64)
    if X.ndim != 2:
        raise DataError(f"{label} has shape {list(X.shape)}, expected [N, F]")
    if X.dtype.kind not in "fiub":
        raise DataError(f"{label} is of type {X.dtype}, expected numbers; text belongs into a table")
    if 0 in X.shape:
        raise DataError(f"{label} has shape {list(X.shape)}, expected one node and one feature or more")
    return _single(X, label) if isinstance(X, np.ndarray) else _sparse_single(X, label)


def _single(array: Array, label: str) -> NDArray[np.float32]:
    values = to_float32(array)
    for rows in row_blocks(*values.shape):
        for row, column in np.argwhere(np.isinf(values[rows]))[:1]:
            got = f"{array[rows][row, column]} at row {rows.start + row}, column {column}"
            raise DataError(f"{label} holds {got}, expected a finite number in single precision, or NaN")
    return np.ascontiguousarray(values)


def _sparse_single(X: Any, label: str) -> scipy.sparse.csr_array:
    import scipy.sparse

    with np.errstate(over="ignore"):
        matrix: scipy.sparse.csr_array = scipy.sparse.csr_array(X, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        got = f"{matrix.data[bad[0]]} at row {row}, column {matrix.indices[bad[0]]}"
        raise DataError(f"{label} holds {got}, expected finite numbers, as it is sparse")
    return matrix


def sparse_tensor(x: Tensor) -> scipy.sparse.csr_array:
    """A sparse tensor of any layout as a CSR matrix in single precision."""
    import scipy.sparse

    x = x.detach().cpu().to_sparse_csr()
    parts = (x.values().float().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return scipy.sparse.csr_array(parts, shape=(x.size(0), x.size(1)))


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; too large ones become infinite, which the checks report."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
