"""The reproduction of *Graph Feature Gating Networks*: its studies, claims, analyses and figures."""
