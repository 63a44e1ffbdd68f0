"""The CPU kernels, in Numba."""
