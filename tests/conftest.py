"""What holds for the whole suite: without a GPU, Triton's kernels run through its interpreter."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported
