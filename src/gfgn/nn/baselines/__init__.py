"""The models that GFGN is compared with, one file per model; `gfgn.nn.registry` lists them by name.

Each is a module whose `forward(x, edge_index, edge_weight=None)` returns logits; `edge_index` may be a `Graph`.
"""
