"""Figures for print: one style, one file a family of figures, each written as SVG and as PNG."""
