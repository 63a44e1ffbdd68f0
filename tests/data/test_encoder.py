"""`FeatureEncoder` and `raw_features`: the values are scikit-learn's, statistics are those of the training nodes."""

from __future__ import annotations

import datetime
import json
import logging
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gfgn.data import DataError
from gfgn.data.columns import RawFeatures
from gfgn.data.encoder import Column, FeatureEncoder, raw_features

SIZE = 60
RANDOM = np.random.default_rng(0)
TRAIN = RANDOM.random(SIZE) < 0.5
TRAIN[[3, 5, 7, 8, 9]] = True  # which have missing values in `frame`


def frame() -> pd.DataFrame:
    random = np.random.default_rng(1)
    data = pd.DataFrame(
        {
            "age": random.integers(18, 80, SIZE).astype(float),
            "income": random.normal(50_000, 10_000, SIZE),
            "member": random.random(SIZE) < 0.5,
            "color": random.choice(["red", "blue", "tan"], SIZE),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 10**8, SIZE), unit="s"),
        }
    )
    data.loc[[3, 8], "age"] = np.nan
    data.loc[[5], "color"] = None
    data.loc[[7, 9], "since"] = pd.NaT
    return data


def encode(X: Any, train: Any = None, scale: str = "standard") -> tuple[FeatureEncoder, torch.Tensor]:
    raw = raw_features(X)
    encoder = FeatureEncoder.fit(raw, train, scale)
    return encoder, encoder.transform(raw)


def feature(encoder: FeatureEncoder, x: torch.Tensor, name: str) -> np.ndarray[Any, Any]:
    return x[:, encoder.feature_names.index(name)].numpy()


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [None, TRAIN, torch.from_numpy(TRAIN)])
def test_numbers_are_imputed_and_standardized_as_in_scikit_learn(train: Any) -> None:
    values = np.random.default_rng(2).normal(5, [1, 1e4, 1e-3], size=(SIZE, 3)).astype(np.float32)
    values[RANDOM.random((SIZE, 3)) < 0.1] = np.nan
    encoder, x = encode(values, train)
    rows = np.ones(SIZE, dtype=bool) if train is None else TRAIN
    imputer, scaler = SimpleImputer(), StandardScaler()
    # Statistics are those of known values, so that the scaler must see them before they are imputed.
    double = values.astype(np.float64)
    scaler.fit(double[rows])
    imputer.fit(double[rows])
    expected = scaler.transform(imputer.transform(double))
    got = np.stack([feature(encoder, x, f"x{k}") for k in range(3)], 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    for k in range(3):
        np.testing.assert_array_equal(feature(encoder, x, f"x{k} missing"), np.isnan(values[:, k]))
    np.testing.assert_allclose(encoder.mean, imputer.statistics_, rtol=1e-12)


def test_a_table_of_every_kind() -> None:
    data = frame()
    encoder, x = encode(data, TRAIN)
    assert [column.kind for column in encoder.columns] == ["numeric", "numeric", "binary", "category", "date"]
    assert encoder.feature_names == [
        *("age", "age missing", "income", "member", "color=blue", "color=red", "color=tan", "color missing"),
        *("since", "since missing"),
    ]
    assert encoder.sources == [0, 0, 1, 2, 3, 3, 3, 3, 4, 4]
    assert x.dtype == torch.float32
    np.testing.assert_array_equal(feature(encoder, x, "member"), data["member"])
    known = data["color"].notna().to_numpy()
    codes = OneHotEncoder(sparse_output=False).fit_transform(data.loc[known, ["color"]])
    np.testing.assert_array_equal(x.numpy()[known, 4:7], codes)
    assert x[5, 4:8].tolist() == [0, 0, 0, 1]
    days = np.array([value.timestamp() / 86400 if pd.notna(value) else np.nan for value in data["since"]])
    rows = TRAIN & ~np.isnan(days)
    expected = np.where(np.isnan(days), 0, (days - days[rows].mean()) / days[rows].std())
    np.testing.assert_allclose(feature(encoder, x, "since"), expected, rtol=1e-5, atol=1e-6)


def test_dates_keep_their_seconds() -> None:
    """In single precision, days since 1970 are three minutes apart."""
    times = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(20), unit="s")
    _, x = encode(pd.DataFrame({"time": times}))
    np.testing.assert_allclose(np.diff(x[:, 0]), 1 / np.arange(20).std(), rtol=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_scale_row(sparse: bool) -> None:
    values = np.random.default_rng(3).normal(size=(SIZE, 5)) * (RANDOM.random((SIZE, 5)) < 0.5)
    values[4] = 0
    _, x = encode(scipy.sparse.csr_array(values) if sparse else values, scale="row")
    total = np.abs(values).sum(1, keepdims=True)
    np.testing.assert_allclose(x.to_dense(), values / np.where(total > 0, total, 1), rtol=1e-5, atol=1e-7)


def test_sparse_numbers_are_divided_but_not_centered() -> None:
    values = np.random.default_rng(4).normal(100, 10, size=(SIZE, 4)) * (RANDOM.random((SIZE, 4)) < 0.7)
    for X in (scipy.sparse.coo_matrix(values), torch.from_numpy(values).to_sparse_csr()):
        encoder, x = encode(X, TRAIN)
        assert x.layout == torch.sparse_csr
        expected = StandardScaler(with_mean=False).fit(values[TRAIN].astype(np.float32)).transform(values)
        np.testing.assert_allclose(x.to_dense(), expected, rtol=1e-5)
        assert "not centered" in encoder.notes()[0]
    np.testing.assert_allclose(encoder.transform(raw_features(values)), expected, rtol=1e-5)  # dense features


def test_sparse_features_do_not_fit_a_model_of_centered_ones() -> None:
    values = np.random.default_rng(5).normal(size=(SIZE, 3))
    encoder, _ = encode(values)
    with pytest.raises(DataError, match="features are sparse, expected dense ones as in training"):
        encoder.transform(raw_features(scipy.sparse.csr_array(values)))
    ones = (values > 0).astype(float)
    encoder, x = encode(ones)  # nothing is centered
    np.testing.assert_array_equal(encoder.transform(raw_features(scipy.sparse.csr_array(ones))).to_dense(), x)


@given(
    arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32)),
    st.data(),
)
def test_plain_loops(values: np.ndarray[Any, Any], draw: st.DataObject) -> None:
    size, width = values.shape
    values[draw.draw(arrays(bool, values.shape))] = np.nan
    train = draw.draw(arrays(bool, size))
    raw = RawFeatures(raw_features(values).values, tuple(Column(f"c{k}", "date") for k in range(width)))  # scaled
    encoder = FeatureEncoder.fit(raw, train)
    x = encoder.transform(raw)
    assert bool(x.isfinite().all())
    for k in range(width):
        known = [float(v) for v, used in zip(values[:, k], train, strict=True) if used and not np.isnan(v)]
        mean = sum(known) / len(known) if known else 0.0
        std = (sum((v - mean) ** 2 for v in known) / len(known)) ** 0.5 if known else 0.0
        assert encoder.mean[k] == pytest.approx(mean, rel=1e-9, abs=1e-9)
        if std < np.finfo(np.float32).tiny:  # dividing by it would take ordinary numbers beyond all bounds
            assert encoder.std[k] == 1
        elif std > 1e-12 * abs(mean):
            assert encoder.std[k] == pytest.approx(std, rel=1e-6)
        expected = [0.0 if np.isnan(v) else (float(v) - encoder.mean[k]) / encoder.std[k] for v in values[:, k]]
        expected = np.clip(expected, -np.finfo(np.float32).max, np.finfo(np.float32).max)
        np.testing.assert_allclose(feature(encoder, x, f"c{k}"), expected, rtol=1e-5, atol=1e-6)


def test_other_nodes_do_not_change_the_statistics() -> None:
    data = frame()
    encoder, x = encode(data, TRAIN)
    other = data.copy()
    other.loc[~TRAIN, "income"] = 1e6
    other.loc[~TRAIN, "age"] += 30
    other.loc[~TRAIN, "since"] = pd.Timestamp("1980-01-01")
    again, y = encode(other, TRAIN)
    assert (again.mean, again.std) == (encoder.mean, encoder.std)
    rows = torch.from_numpy(TRAIN)
    columns = [encoder.feature_names.index(name) for name in ("age", "income", "since")]
    assert torch.equal(x[rows][:, columns], y[rows][:, columns])
    other.loc[TRAIN, "income"] += 1.0  # and training nodes do
    assert encode(other, TRAIN)[0].mean != encoder.mean


def test_constant_columns_have_factor_1() -> None:
    values = np.full((1000, 2), 0.1, dtype=np.float32)
    values[:, 1] = 1e6 / 3
    encoder, x = encode(values)
    assert encoder.std == (1, 1)
    np.testing.assert_allclose(x, 0, atol=1e-6)


@pytest.mark.parametrize("small", [1e-45, 1e-40])
def test_a_column_that_hardly_varies_is_not_blown_up(small: float) -> None:
    encoder, x = encode(np.array([[0.0], [small], [1.0]], dtype=np.float32), np.array([True, True, False]))
    assert encoder.std == (1,)
    assert x[2].tolist() == [1]


# --- kinds ------------------------------------------------------------------------------------------------------------


def kinds(values: Any) -> list[str]:
    return [column.kind for column in FeatureEncoder.fit(raw_features(values)).columns]


def counts(columns: int, largest: int = 5, size: int = 100) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(6)
    values = random.integers(2, largest + 1, (size, columns)) * (random.random((size, columns)) < 0.2)
    values[0] = largest
    return values.astype(np.float32)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_bags_of_words(make: Any) -> None:
    assert kinds(make(counts(8))) == ["bag"] * 8
    assert kinds(make(counts(7))) == ["numeric"] * 7
    words, binary = counts(8), (counts(3) > 0).astype(np.float32)
    assert kinds(make(np.hstack([words, binary]))) == ["bag"] * 8 + ["binary"] * 3
    assert kinds(make(np.hstack([words, 1000 * counts(1)]))) == ["bag"] * 8 + ["numeric"]  # a lone skewed amount
    assert kinds(make(np.hstack([words, -counts(1)]))) == ["bag"] * 8 + ["numeric"]
    assert kinds(make(np.hstack([words, counts(1) + 1]))) == ["bag"] * 8 + ["numeric"]  # few zeros
    assert kinds(make(10_000 * counts(20))) == ["numeric"] * 20  # amounts of money
    assert kinds(make(words / 50)) == ["bag"] * 8  # TF-IDF


def test_binary_columns() -> None:
    values = np.array([[0, 1, 0, 0, np.nan], [1, 1, 0, 2, 1], [0, 1, 0, 1, 0]])
    assert kinds(values) == ["binary", "binary", "binary", "numeric", "binary"]
    assert kinds(np.array([[True], [False]])) == ["binary"]
    assert kinds(np.full((3, 1), np.nan)) == ["numeric"]


def test_blocks_give_the_same_kinds_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    data = frame()
    encoder, x = encode(data, TRAIN)
    monkeypatch.setattr("gfgn.data.columns.BLOCK", 16)
    again, y = encode(data, TRAIN)
    assert (again.columns, again.missing) == (encoder.columns, encoder.missing)
    np.testing.assert_allclose(again.mean, encoder.mean, rtol=1e-12)
    torch.testing.assert_close(x, y)


def test_dtypes_of_a_data_frame() -> None:
    data = pd.DataFrame(
        {
            "int8": np.arange(6, dtype=np.int8),
            "nullable": pd.array([1, None, 3, 4, 5, 6], dtype="Int64"),
            "bool": pd.array([True, None, False, True, True, True], dtype="boolean"),
            "python bool": [True, None, False, True, True, True],
            "decimal": [Decimal(k) / 3 for k in range(6)],
            "categorical": pd.Categorical([1, 2, 1, 2, 1, None], categories=[2, 1, 7]),
            "date": [datetime.date(2020, 1, k + 1) for k in range(6)],
            "zoned": pd.date_range("2020-01-01", periods=6, tz="Europe/Berlin"),
            "text date": [f"2020-02-0{k + 1}T10:00:00Z" for k in range(6)],
            "text": ["a", "b", "a", "b", " a ", ""],
            "string": pd.array(["a", "b", "a", "b", "a", None], dtype="string"),
            "nothing": [None] * 6,
        }
    )
    raw = raw_features(data)
    assert {column.name: column.kind for column in FeatureEncoder.fit(raw).columns} == {
        "int8": "numeric",
        "nullable": "numeric",
        "bool": "binary",
        "python bool": "binary",
        "decimal": "numeric",
        "categorical": "category",
        "date": "date",
        "zoned": "date",
        "text date": "date",
        "text": "category",
        "string": "category",
        "nothing": "numeric",
    }
    by_name = {column.name: column for column in raw.columns}
    assert by_name["categorical"].categories == ("2", "1", "7")  # as declared; none has the last
    assert FeatureEncoder.fit(raw).columns[5].categories == ("2", "1")
    assert by_name["text"].categories == ("a", "b")
    values = np.asarray(raw.values)
    assert values.dtype == np.float64
    assert values[:2, 6].tolist() == [18262, 18263]  # 2020-01-01
    assert values[0, 7] == 18262 - 1 / 24
    assert np.isnan(values[5, 9:11]).all()


# --- prediction -------------------------------------------------------------------------------------------------------


def test_new_rows_in_another_order() -> None:
    data = frame()
    encoder, x = encode(data, TRAIN)
    raw = raw_features(data.iloc[:7][data.columns[::-1]], encoder.columns)
    assert [column.name for column in raw.columns] == [column.name for column in encoder.columns]
    assert torch.equal(encoder.transform(raw), x[:7])


def test_unknown_categories_and_new_missing_values_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    encoder, _ = encode(frame(), TRAIN)
    new = frame().iloc[:4].assign(color=["green", "green", "pink", "red"])
    new.loc[1, "income"] = np.nan
    notes: list[str] = []
    raw = raw_features(new, encoder.columns)
    x = encoder.transform(raw, notes)
    assert feature(encoder, x, "income")[1] == 0
    assert x[:3, 4:8].count_nonzero() == 0
    assert any("'color'" in note and "'green' (2), 'pink' (1)" in note for note in notes)
    assert any("'income'" in note and "1 missing value" in note for note in notes)
    with caplog.at_level(logging.WARNING):
        encoder.transform(raw)
    assert "column 'income': 1 missing value" in caplog.text


def test_differences_are_listed_in_one_error() -> None:
    encoder, _ = encode(frame(), TRAIN)
    wrong = frame().drop(columns=["age", "member"]).assign(extra=1, more=2, color=3.5, since="soon")
    with pytest.raises(DataError) as caught:
        raw_features(wrong, encoder.columns)
    for words in (
        "'age', 'member'",
        "'extra', 'more'",
        "'color' holds numbers",
        "'since' holds text ('soon' at row 0)",
    ):
        assert words in str(caught.value)
    with pytest.raises(DataError, match="text or dates in color, since"):
        raw_features(np.zeros((3, 5)), encoder.columns)
    numbers, _ = encode(np.random.default_rng(0).normal(size=(5, 3)))
    with pytest.raises(DataError, match=r"2 columns, expected 3 \(x0, x1, x2\)"):
        raw_features(np.zeros((3, 2)), numbers.columns)
    raw_features(frame().assign(color=None, since=None, age=None), encoder.columns)  # nothing known is no difference


# --- notes, JSON and errors -------------------------------------------------------------------------------------------


def test_notes() -> None:
    data = pd.concat([frame(), pd.DataFrame(counts(9, size=SIZE), columns=[f"w{k}" for k in range(9)])], axis=1)
    for scale in ("standard", "none", "row"):
        notes = "\n".join(encode(data, TRAIN, scale)[0].notes())
        for words in ("2 numeric", "age, income", "1 date", "1 binary", "9 bag-of-words", "color (3 categories)"):
            assert words in notes
        assert "age (2), since (2)" in notes
        assert (f"{TRAIN.sum()} training nodes" in notes) == (scale == "standard")
        assert ("rows of features divided" in notes) == (scale == "row")


@pytest.mark.parametrize("X", [frame(), scipy.sparse.csr_array(counts(9)), np.arange(12.0).reshape(4, 3) / 7])
def test_json(X: Any) -> None:
    encoder, x = encode(X)
    again = FeatureEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert torch.equal(again.transform(raw_features(X)).to_dense(), x.to_dense())


@pytest.mark.parametrize(
    "change", [{"scale": "log"}, {"columns": [{"name": "a"}]}, {"mean": []}, {"nodes": None}, {"std": ["x"]}]
)
def test_bad_json(change: dict[str, Any]) -> None:
    content = encode(np.arange(12.0).reshape(4, 3))[0].to_json()
    with pytest.raises(ValueError, match="content must be the JSON of a FeatureEncoder"):
        FeatureEncoder.from_json(content | change)
    with pytest.raises(ValueError, match="content must be"):
        FeatureEncoder.from_json({name: value for name, value in content.items() if name not in change})


def sparse(value: float) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(np.array([[0, 1], [0, value]]))


BAD: list[tuple[Any, str]] = [
    (np.zeros(3), r"X has shape \[3\]"),
    (np.zeros((0, 3)), r"X has shape \[0, 3\]"),
    (np.zeros((3, 0)), r"X has shape \[3, 0\]"),
    (np.array([["a"]]), "X is of type <U1"),
    (np.array([["a", 1]], dtype=object), "X is of type object"),
    (np.array([[1.0, np.inf]]), "X holds inf at row 0, column 1"),
    (np.array([[1.0], [1e99]]), r"X holds 1e\+99 at row 1, column 0"),
    (sparse(np.nan), "X holds nan at row 1, column 1"),
    (scipy.sparse.csr_array(np.array([[1j]])), "X is of type complex128"),
    (torch.zeros(2, 2, 2).to_sparse_coo(), r"X has shape \[2, 2, 2\]"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "X .* 'a' more than once"),
    (pd.DataFrame({"a": []}), r"X has shape \[0, 1\]"),
    (pd.DataFrame({"a": [1.0, -np.inf]}), "'a' holds -inf at row 1"),
    (pd.DataFrame({"a": [1j]}), "'a' is of type complex128"),
    (pd.DataFrame({"a": [[1], [2]]}), "'a' is of type object with mixed values"),
    (pd.DataFrame({"a": pd.to_timedelta([1, 2], unit="D")}), "'a' is of type timedelta64"),
]


@pytest.mark.parametrize(("X", "words"), BAD)
def test_bad_features(X: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        raw_features(X)


def test_bad_arguments() -> None:
    raw = raw_features(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="scale must be one of 'none', 'standard', 'row', got 'log'"):
        FeatureEncoder.fit(raw, scale="log")
    with pytest.raises(ValueError, match=r"train must be \[4\] of bool, got \[4\] of int64"):
        FeatureEncoder.fit(raw, np.zeros(4, dtype=int))
    with pytest.raises(ValueError, match=r"raw must have shape \[N, 2\], got \[4, 3\]"):
        FeatureEncoder.fit(raw).transform(raw_features(np.zeros((4, 3))))
    with pytest.raises(ValueError, match="kind must be one of"):
        Column("a", "text")
