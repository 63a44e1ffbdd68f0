"""Columns of node features: what a column holds, and `raw_features`, which reads arrays and data frames alike."""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gfgn.data.messages import DataError, counted, listed

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    Series: TypeAlias = pd.Series[Any]

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[Any] | scipy.sparse.csr_array

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
_PLAIN = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?"
NUMBERS = {  # how numbers are written: the pattern, the mark of thousands and the decimal mark
    "": (_PLAIN, "", "."),
    "1,234.5": (r"[+-]?([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d+)?", ",", "."),
    "1.234,5": (r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?", ".", ","),
}
MISSING = {  # what pandas takes for a missing value in a CSV file, and no text
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
        if self.categories and self.kind != "category":
            raise ValueError(f"categories must be empty for kind {self.kind!r}, got {self.categories}")


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


class Read(NamedTuple):
    """A column of text as values: one per text, NaN for a text that counts as missing."""

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
        typed: Reads a column of a data frame by its dtype, or by what pandas infers for a column of objects; `None` if
            it is not of this kind.
        names: The names of its features.
        slots: For a column of categories: the index of the feature of each text, −1 for an unknown one.
        scaled: Whether scale `"standard"` changes it.
        note: What is done to columns of this kind that are not scaled.
    """

    holds: str
    word: str
    recognize: Callable[[Texts, str], Read | None] | None = None
    typed: Callable[[Series, str], Floats | None] | None = None
    names: Callable[[Column], list[str]] = lambda column: [column.name]
    slots: Callable[[Column, Sequence[str]], list[int]] | None = None
    scaled: bool = False
    note: str = "left as {they}{names}"


def _typed_numbers(series: Series, inferred: str) -> Floats | None:
    import pandas as pd

    types = pd.api.types
    numeric = types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype)
    if numeric or inferred in ("boolean", "integer", "floating", "mixed-integer-float", "decimal"):
        return pd.to_numeric(series).to_numpy(dtype=np.float64, na_value=np.nan)
    return None


def _typed_dates(series: Series, inferred: str) -> Floats | None:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(series.dtype) or inferred in ("datetime", "datetime64", "date"):
        return days(pd.to_datetime(series, utc=True))
    return None


def _read_booleans(texts: Texts, format: str) -> Read | None:
    return _known(texts, _parse_booleans(texts.values), 0)


def read_numbers(texts: Texts, format: str) -> Read | None:
    """Numbers, of which some may be missing in words; other texts count as missing if they are few among many different
    numbers."""
    many = min(MAX_CATEGORIES, (texts.codes >= 0).sum() / 2)
    allowed = MAX_STRAY if len(texts.values) > many else 0
    for name in dict.fromkeys([format, *NUMBERS]):
        values = _parse(texts.values, name)
        if texts.typed and not name and not np.isnan(values).any():
            return None
        if (read := _known(texts, values, allowed)) is not None:
            return Read(read.values, name)
    return None


def loose_numbers(series: Series) -> Floats:
    """The numbers in a column, NaN where a value is missing or none."""
    import pandas as pd

    inferred = pd.api.types.infer_dtype(series, skipna=True)
    typed = _typed_numbers(series, inferred)
    if typed is not None or inferred not in ("string", "mixed", "mixed-integer"):
        return np.full(len(series), np.nan) if typed is None else typed
    plain = pd.to_numeric(series, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isnan(plain).any():
        return plain
    texts = [str(value).strip() for value in series]
    found = [_parse(texts, name) for name in NUMBERS] + [_parse_booleans(texts)]
    return min(found, key=lambda values: np.isnan(values).sum())


def _parse(texts: Sequence[str], format: str) -> Floats:
    """The numbers of one format, NaN for other texts."""
    pattern, thousands, point = NUMBERS.get(format, NUMBERS[""])
    matches = re.compile(pattern, re.IGNORECASE).fullmatch
    plain = [text.replace(thousands, "").replace(point, ".") if matches(text) else "nan" for text in texts]
    return np.array(plain, dtype=np.float64)


def _parse_booleans(texts: Sequence[str]) -> Floats:
    return np.array([{"true": 1.0, "false": 0.0}.get(text.lower(), np.nan) for text in texts])


def _read_dates(texts: Texts, format: str) -> Read | None:
    import pandas as pd

    series = pd.Series([None if STRAY.fullmatch(text) else text for text in texts.values], dtype="str")
    known = series.dropna()
    for name in dict.fromkeys([format or "ISO8601", "ISO8601", *DATES]):
        if not len(known) or (name == "ISO8601" and not known.str.fullmatch(ISO).all()):
            continue
        if pd.isna(pd.to_datetime(known.iloc[0], format=name, utc=True, errors="coerce")):
            continue
        dates = pd.to_datetime(series, format=name, utc=True, errors="coerce")
        if dates.notna().sum() == len(known):
            return Read(days(dates), "" if name == "ISO8601" else name)
    return None


def _known(texts: Texts, array: Floats, allowed: float) -> Read | None:
    """The values, if all texts but missing ones and a fraction `allowed` of the others have one."""
    strange = np.array(
        [np.isnan(value) and not STRAY.fullmatch(text) for value, text in zip(array, texts.values, strict=True)]
    )
    if np.isnan(array).all():
        return None
    if strange.any():
        counts = np.bincount(texts.codes[texts.codes >= 0], minlength=array.size)
        if counts[strange].sum() > allowed * counts.sum():
            return None
    return Read(array)


def _one_hot(column: Column, texts: Sequence[str]) -> list[int]:
    index = {category: k for k, category in enumerate(column.categories)}
    return [index.get(text, -1) for text in texts]


def _hashed(column: Column, texts: Sequence[str]) -> list[int]:
    return [zlib.crc32(text.encode("utf-8", "surrogatepass")) % MAX_CATEGORIES for text in texts]


KINDS: dict[str, Kind] = {
    "numeric": Kind("numbers", "numeric", read_numbers, _typed_numbers, scaled=True),
    "date": Kind("dates", "date", _read_dates, _typed_dates, scaled=True),
    "binary": Kind("numbers", "binary", _read_booleans),
    "bag": Kind("numbers", "bag-of-words", note="left as {they}"),
    "category": Kind(
        "text",
        "category",
        lambda texts, format: Read(np.arange(len(texts.values), dtype=np.float64)),
        None,
        lambda column: [f"{column.name}={category}" for category in column.categories],
        _one_hot,
        note="one-hot encoded{names}",
    ),
    "hashed": Kind(
        "text",
        "category",
        None,
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
    numeric = np.array([KINDS[column.kind].holds == "numbers" for column in raw.columns], dtype=bool)
    binary = numeric & (known > 0) & (zeros + ones == known)
    word = numeric & (known > 0) & (low >= 0) & (high > 0) & (2 * zeros >= known)
    if word.any():
        middle = float(np.median(high[word]))
        word &= high <= MAX_BAG_RATIO * middle
        word &= bool(middle <= MAX_BAG_VALUE and word.sum() >= MIN_BAG)
    kinds = np.select([~numeric, binary, word], ["", "binary", "bag"], "numeric").tolist()
    return tuple(
        _of_training(raw, k, rows)
        if column.kind == "category"
        else Column(column.name, kind or column.kind, (), column.format)
        for k, (column, kind) in enumerate(zip(raw.columns, kinds, strict=True))
    )


def _of_training(raw: RawFeatures, k: int, rows: NDArray[np.bool_]) -> Column:
    """A category column with the categories of the chosen rows; hashed if these are many."""
    column, codes = raw.columns[k], np.asarray(raw.values)[rows, k]
    seen = np.unique(codes[codes >= 0]).astype(np.int64)
    if seen.size > MAX_CATEGORIES:
        return Column(column.name, "hashed")
    return Column(column.name, "category", tuple(column.categories[index] for index in seen.tolist()))


class Profile(NamedTuple):
    """Per column, over some rows: the smallest and largest value, numbers of zeros, ones, known and missing values, and
    mean and standard deviation of the known ones."""

    low: Floats
    high: Floats
    zeros: Array
    ones: Array
    known: Array
    missing: Array
    mean: Floats
    std: Floats


def profile_of(values: Matrix, rows: NDArray[np.bool_]) -> Profile:
    """The profile of the chosen rows, in double precision."""
    return _dense_profile(values, rows) if isinstance(values, np.ndarray) else _sparse_profile(values, rows)


def _dense_profile(values: Array, rows: NDArray[np.bool_]) -> Profile:
    width, parts = values.shape[1], list(row_blocks(*values.shape))
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    zeros, ones, known, missing = (np.zeros(width, dtype=np.int64) for _ in range(4))
    total, square = np.zeros(width), np.zeros(width)
    for block in (values[part][rows[part]].astype(np.float64) for part in parts):
        low = np.fmin(low, np.fmin.reduce(block, 0, initial=np.inf))
        high = np.fmax(high, np.fmax.reduce(block, 0, initial=-np.inf))
        zeros += (block == 0).sum(0)
        ones += (block == 1).sum(0)
        missing += np.isnan(block).sum(0)
        known += (~np.isnan(block)).sum(0)
        total += np.nansum(block, 0)
    mean = total / np.maximum(known, 1)
    for block in (values[part][rows[part]].astype(np.float64) for part in parts):
        square += np.nansum((block - mean) ** 2, 0)
    return Profile(low, high, zeros, ones, known, missing, mean, _deviation(square, known, mean))


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
    none = np.zeros(width, dtype=np.int64)
    return Profile(low, high, zeros, ones, known, none, mean, _deviation(square, known, mean))


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


# --- reading ----------------------------------------------------------------------------------------------------------


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
        return read_frame(X, columns, notes=notes)
    values = _sparse_array(X) if _is_sparse(X) else _dense_array(X)
    if 0 in values.shape:
        raise DataError(f"X has shape {list(values.shape)}, expected one node and one feature or more")
    return array_features(values, [f"x{k}" for k in range(values.shape[1])], columns, "X")


def array_features(
    values: Matrix, names: Sequence[str], expected: Sequence[Column] | None, label: str, more: Sequence[str] = ()
) -> RawFeatures:
    """Numbers whose columns have names; `more` are further differences from a model's data."""
    if expected is None:
        return RawFeatures(values, tuple(map(Column, names)))
    parts = [*unlike_array(expected, values.shape[1]), *more]
    if parts:
        raise unlike_the_model(label, parts)
    return RawFeatures(values, tuple(expected))


def read_frame(
    frame: pd.DataFrame,
    expected: Sequence[Column] | None = None,
    *,
    label: str = "X",
    typed: bool = True,
    first: int = 0,
    notes: list[str] | None = None,
    more: Sequence[str] = (),
) -> RawFeatures:
    """The features of a data frame; `first` is the number of its first row in messages, see `Texts` for `typed`."""
    names = [str(name) for name in frame.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{label} has the column {twice[0]!r} more than once, expected every name once")
    if not names or not len(frame):
        raise DataError(f"{label} has shape {list(frame.shape)}, expected one node and one feature or more")
    wanted = {column.name: column for column in expected or ()}
    reader = _Reader(label, typed, first, [] if notes is None else notes)
    found = {name: reader.read(frame.iloc[:, k], name, wanted.get(name)) for k, name in enumerate(names)}
    if expected is not None:
        parts = differences(expected, {name: column.holds for name, column in found.items()}, reader.examples)
        if parts or more:
            raise unlike_the_model(label, [*parts, *more])
        names = [column.name for column in expected]
    chosen = [found[name] for name in names]
    wide = any(each.column.kind == "date" or len(each.column.categories) > 2**24 for each in chosen)
    values = np.empty((len(frame), len(names)), dtype=np.float64 if wide else np.float32)
    with np.errstate(over="ignore"):
        for k, each in enumerate(chosen):
            values[:, k] = each.values
            bad = np.flatnonzero(np.isinf(each.values.astype(np.float32)))
            if bad.size:
                got = f"{each.values[bad[0]]} at {reader.row(int(bad[0]))}"
                raise DataError(
                    f"{label}: column {names[k]!r} holds {got}, expected a finite number in single precision"
                )
    return RawFeatures(values, tuple(each.column for each in chosen))


class Found(NamedTuple):
    """A column of a data frame that has been read; `holds` is "" if all values are missing."""

    column: Column
    values: Floats
    holds: str


@dataclass
class _Reader:
    """Reads the columns of a data frame one by one."""

    label: str
    typed: bool
    first: int
    notes: list[str]

    def __post_init__(self) -> None:
        self.examples: dict[str, str] = {}

    def row(self, index: int) -> str:
        return f"row {index + self.first}"

    def read(self, series: Series, name: str, expected: Column | None) -> Found:
        import pandas as pd

        dtype, known = series.dtype, series.notna().to_numpy()
        if not known.any():
            return Found(Column(name), np.full(len(series), np.nan), "")
        inferred = pd.api.types.infer_dtype(series, skipna=True) if dtype.kind == "O" else ""
        for kind in (kind for kind in KINDS if KINDS[kind].typed):
            values = KINDS[kind].typed(series, inferred)  # type: ignore[misc]
            if values is None:
                continue
            if expected is not None and expected.kind == "category" and kind == "numeric":
                digits = pd.Series(values).map(lambda value: f"{value:.15g}", na_action="ignore")
                if not set(digits.dropna()).isdisjoint(expected.categories):
                    return self._texts(digits, name, expected)
            return Found(Column(name, kind), values, KINDS[kind].holds)
        if isinstance(dtype, pd.CategoricalDtype):  # declared by the user, in their order
            texts = [str(value) for value in dtype.categories]
            categories = tuple(dict.fromkeys(texts))
            index = np.array([*(categories.index(text) for text in texts), np.nan])
            return Found(Column(name, "category", categories), index[series.cat.codes.to_numpy()], "text")
        scalars = inferred in ("mixed", "mixed-integer") and series[known].map(np.isscalar).all()
        if not (isinstance(dtype, pd.StringDtype) or inferred == "string" or scalars):
            got = f"{dtype} with {inferred} values" if inferred else f"{dtype}"
            raise DataError(f"{self.label}: column {name!r} is of type {got}, expected numbers, categories or dates")
        return self._texts(series, name, expected)

    def _texts(self, series: Series, name: str, expected: Column | None) -> Found:
        """A column of text, of the first kind that accepts it."""
        import pandas as pd

        codes, unique = pd.factorize(series)
        stripped = [str(text).strip() for text in unique]
        stripped = [text if self.typed or text not in MISSING else "" for text in stripped]
        order = sorted({text for text in stripped if text})
        index = {text: k for k, text in enumerate(order)} | {"": -1}
        rows = np.array([*(index[text] for text in stripped), -1], dtype=np.int64)[codes]
        if not order:
            return Found(Column(name), np.full(len(series), np.nan), "")
        holds = "" if expected is None else KINDS[expected.kind].holds
        texts = Texts(rows, order, self.typed and holds != "numbers")
        known = expected is not None and (expected.kind == "hashed" or not set(order).isdisjoint(expected.categories))
        kinds = ["category"] if known else [name for name, kind in KINDS.items() if kind.recognize]
        format = "" if expected is None else expected.format
        kind, read = next((kind, read) for kind in kinds if (read := KINDS[kind].recognize(texts, format)) is not None)  # type: ignore[misc]
        column = Column(name, kind, tuple(order) if kind == "category" else (), read.format)
        if kind == "category":
            self._note_category(name, texts)
        else:
            self._note_guesses(name, texts, read)
        return Found(column, np.append(read.values, np.nan)[rows], KINDS[kind].holds)

    def _note_category(self, name: str, texts: Texts) -> None:
        first = int(np.flatnonzero(texts.codes >= 0)[0])
        text = texts.values[texts.codes[first]]
        self.examples[name] = f" ({text if len(text) <= 30 else text[:29] + '…'!r} at {self.row(first)})"
        known = int((texts.codes >= 0).sum())
        if len(texts.values) > MAX_CATEGORIES and 2 * len(texts.values) >= known:
            self.notes.append(
                f"{self.label}: column {name!r} is text with {len(texts.values):,} distinct values in "
                f"{counted(known, 'row')}: if it is a name or a comment, leave it out (--drop {name})"
            )

    def _note_guesses(self, name: str, texts: Texts, read: Read) -> None:
        """Says how numbers and dates were read, and which texts count as missing."""
        if read.format:
            what = "dates" if "%" in read.format else "numbers"
            self.notes.append(f"{self.label}: column {name!r} is read as {what} of the form {read.format}")
        lost = np.isnan(read.values)
        if lost.any():
            rows = np.flatnonzero(np.append(lost, False)[texts.codes])
            shown = listed([repr(texts.values[k]) for k in np.flatnonzero(lost).tolist()], 3)
            where = f"{self.row(int(rows[0]))}{' first' if rows.size > 1 else ''}"
            self.notes.append(
                f"{self.label}: column {name!r}: {counted(rows.size, 'value')} read as missing: {shown} ({where})"
            )


def days(series: Series) -> Floats:
    """Days since 1970, NaN where the date is missing."""
    time = series.dt.as_unit("us")
    values = time.to_numpy(dtype="datetime64[us]").astype(np.int64) / DAY
    return np.where(time.isna().to_numpy(), np.nan, values)


# --- differences from a model's columns -------------------------------------------------------------------------------


def differences(expected: Sequence[Column], found: Mapping[str, str], examples: Mapping[str, str]) -> list[str]:
    """What differs from the expected columns.

    `found` has what each column holds, "" if all its values are missing; `examples` of the texts of a column.
    """
    names = {column.name for column in expected}
    missing = [repr(column.name) for column in expected if column.name not in found]
    unexpected = [repr(name) for name in found if name not in names]
    parts = [f"no column {listed(missing)}"] if missing else []
    if unexpected:
        parts.append(f"unexpected column{'s' * (len(unexpected) > 1)} {listed(unexpected)}")
    wrong = []
    for column in expected:
        got, wanted = found.get(column.name, ""), KINDS[column.kind].holds
        if got and got != wanted:
            example = examples.get(column.name, "") if got == "text" else ""
            wrong.append(f"column {column.name!r} holds {got}{example}, expected {wanted}")
    return [*parts, *wrong[:5], *([f"{len(wrong) - 5:,} more columns hold something else"] if len(wrong) > 5 else [])]


def unlike_array(expected: Sequence[Column], width: int) -> list[str]:
    """What differs between the expected columns and an array of `width` columns, which have no names."""
    parts = []
    if width != len(expected):
        names = listed([column.name for column in expected])
        parts.append(f"{counted(width, 'column')}, expected {len(expected)} ({names})")
    named = [column.name for column in expected if KINDS[column.kind].holds != "numbers"]
    if named:
        parts.append(f"an array of numbers, expected a table with text or dates in {listed(named)}")
    return parts


def unlike_the_model(label: str, parts: Sequence[str]) -> DataError:
    return DataError(f"{label} differs from what the model was trained on: {'; '.join(parts)}")


# --- arrays -----------------------------------------------------------------------------------------------------------


def _is_tensor(X: object) -> bool:
    torch = sys.modules.get("torch")  # who passes a tensor has imported it
    return torch is not None and isinstance(X, torch.Tensor)


def _is_sparse(X: Any) -> bool:
    return str(X.layout) != "torch.strided" if _is_tensor(X) else bool(scipy.sparse.issparse(X))


def _sparse_array(X: Any) -> scipy.sparse.csr_array:
    if _is_tensor(X):
        if X.dim() != 2:
            raise DataError(f"X has shape {list(X.shape)}, expected [N, F]")
        matrix = sparse_tensor(X)
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


def sparse_tensor(x: Tensor) -> scipy.sparse.csr_array:
    """A sparse tensor of any layout as a CSR matrix in single precision."""
    x = x.detach().cpu().to_sparse_csr()
    parts = (x.values().float().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return scipy.sparse.csr_array(parts, shape=(x.size(0), x.size(1)))


def _dense_array(X: Any) -> Array:
    if _is_tensor(X):
        X = X.detach().cpu()
        X = (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()
    array = np.asarray(X)
    if array.ndim != 2:
        raise DataError(f"X has shape {list(array.shape)}, expected [N, F]")
    if array.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise DataError(f"X is of type {array.dtype}, expected numbers; pass text in a DataFrame")
    return finite_or_missing(array, "X")


def finite_or_missing(array: Array, label: str) -> NDArray[np.float32]:
    """Numbers in single precision, NaN where one is missing."""
    with np.errstate(over="ignore"):
        values = array.astype(np.float32)
    for rows in row_blocks(*values.shape):
        for row, column in np.argwhere(np.isinf(values[rows]))[:1]:
            got = f"{array[rows][row, column]} at row {rows.start + row}, column {column}"
            raise DataError(f"{label} holds {got}, expected a finite number in single precision, or NaN")
    return np.ascontiguousarray(values)
