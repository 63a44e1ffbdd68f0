"""The CPU kernels: written in Python, compiled to machine code by LLVM."""
