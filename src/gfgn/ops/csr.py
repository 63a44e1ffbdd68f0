"""`CSR`: a sparse pattern in compressed rows, and the plan by which its long rows are split.

Every kernel of this package walks one `CSR` object, row by row. A row of more than `SEGMENT` entries (a hub) is
cut into segments of `SEGMENT` entries whose partial sums are joined in order, so that one hub neither holds a
launch up nor makes the sum depend on how many threads ran.
"""

from typing import NamedTuple

import torch
from torch import Tensor

SEGMENT = 512
"""Entries in one segment of a long row; part of the definition of the summation order."""


class CSR(NamedTuple):
    """A sparse pattern in compressed rows.

    Row `i` holds the column indices `idx[ptr[i]:ptr[i + 1]]`. Hub `h` is row `hub_rows[h]`; its segments are numbered
    `hub_ptr[h] … hub_ptr[h + 1] - 1`, and segment `s` of hub `h = seg_hub[s]` covers the entries from
    `ptr[hub_rows[h]] + (s - hub_ptr[h]) * SEGMENT` on, at most `SEGMENT` of them.
    """

    ptr: Tensor
    """`[rows + 1]`, int64."""
    idx: Tensor
    """`[entries]`, int32."""
    hub_rows: Tensor
    """`[hubs]`, int64: the rows of more than `SEGMENT` entries, ascending."""
    hub_ptr: Tensor
    """`[hubs + 1]`, int64."""
    seg_hub: Tensor
    """`[segments]`, int64."""


def compress(row: Tensor, idx: Tensor, num_rows: int) -> CSR:
    """Builds `CSR` from entries that are already sorted by `row`."""
    length = torch.bincount(row, minlength=num_rows)
    ptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(length, 0, out=ptr[1:])
    hub_rows = torch.nonzero(length > SEGMENT).view(-1)
    segments = (length[hub_rows] + (SEGMENT - 1)) // SEGMENT
    hub_ptr = torch.zeros(hub_rows.numel() + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(segments, 0, out=hub_ptr[1:])
    seg_hub = torch.repeat_interleave(torch.arange(hub_rows.numel(), device=row.device), segments)
    return CSR(ptr, idx.to(torch.int32), hub_rows, hub_ptr, seg_hub)
