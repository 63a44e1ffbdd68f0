"""The names of models and datasets as the paper writes them."""

from __future__ import annotations

TITLES = {
    "mlp": "MLP",
    "gcn": "GCN",
    "gat": "GAT",
    "sgc": "SGC",
    "arma": "ARMA",
    "ggnn": "GGNN",
    "appnp": "APPNP",
    "geom-gcn": "Geom-GCN",
    "gfgn-graph": "GFGN-graph",
    "gfgn-neighbor": "GFGN-neighbor",
    "gfgn-pair": "GFGN-pair",
    "graphsage": "GraphSAGE",
    "vr-gcn": "VR-GCN",
    "gaan": "GaAN",
    "geniepath": "GeniePath",
    "graphsaint": "GraphSAINT",
    "blogcatalog": "BlogCatalog",
    "flickr": "Flickr",
    "texas": "Texas",
    "wisconsin": "Wisconsin",
    "cornell": "Cornell",
    "actor": "Actor",
    "cora": "Cora",
    "citeseer": "Citeseer",
    "pubmed": "Pubmed",
    "ppi": "PPI",
}


def title_of(name: str) -> str:
    """Returns the title of a model or dataset, or the name itself; a suffix such as ` (stand-in)` is kept."""
    base, _, suffix = name.partition(" ")
    return f"{TITLES.get(base, base)} {suffix}".strip()
