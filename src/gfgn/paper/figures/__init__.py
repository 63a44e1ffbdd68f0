"""The figures of the paper's studies and analyses."""
