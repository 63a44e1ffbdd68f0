"""The names of models and datasets as their papers write them."""

from __future__ import annotations

MODELS = (
    *("MLP", "GCN", "GAT", "SGC", "ARMA", "GGNN", "APPNP", "Geom-GCN", "GFGN-graph", "GFGN-neighbor", "GFGN-pair"),
    *("GraphSAGE", "VR-GCN", "GaAN", "GeniePath", "GraphSAINT"),
    *("GATv2", "GCNII", "GPRGNN", "H2GCN", "ACM-GCN", "LINKX", "ResGated"),
)
DATASETS = ("BlogCatalog", "Flickr", "Texas", "Wisconsin", "Cornell", "Actor", "Cora", "Citeseer", "Pubmed", "PPI")
VERSIONS = ("Cornell-corrected",)
TITLES = {title.lower(): title for title in (*MODELS, *DATASETS, *VERSIONS)}
TITLES |= {"gfgn-plus": "GFGN+", "gfgn-plus-graph": "GFGN+ graph", "gfgn-plus-pair": "GFGN+ pair"}


def title_of(name: str) -> str:
    """Returns the title of a model or dataset, or the name itself; a suffix such as ` (stand-in)` is kept."""
    base, _, suffix = name.partition(" ")
    return f"{TITLES.get(base, base)} {suffix}".strip()
