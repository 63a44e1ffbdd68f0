"""The figures of the reproduction."""
