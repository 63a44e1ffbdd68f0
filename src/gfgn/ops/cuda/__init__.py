"""The CUDA kernels, in Triton."""
