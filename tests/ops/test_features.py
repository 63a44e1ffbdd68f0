"""Selection and normalization of rows, dense and sparse CSR."""

import pytest
import torch

from gfgn.ops.features import row_normalize, take_rows


@pytest.mark.parametrize("rows", [[5, 0, 5, 7], []])
def test_take_rows(rows: list[int]) -> None:
    x, index = torch.randn(8, 4).relu(), torch.tensor(rows, dtype=torch.int64)
    taken = take_rows(x.to_sparse_csr(), index)
    assert taken.layout == torch.sparse_csr
    assert torch.equal(taken.to_dense(), x[index])
    assert torch.equal(take_rows(x, index), x[index])


def test_row_normalize() -> None:
    x = torch.randn(6, 4) * (torch.rand(6, 4) > 0.5)
    x[0] = 0
    expected = torch.stack([row / row.abs().sum() if row.any() else row for row in x])
    torch.testing.assert_close(row_normalize(x), expected)
    normalized = row_normalize(x.to_sparse_csr())
    assert normalized.layout == torch.sparse_csr
    torch.testing.assert_close(normalized.to_dense(), expected)
