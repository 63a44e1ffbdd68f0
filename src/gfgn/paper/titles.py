"""How the paper writes the names of models and datasets."""

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
    """The title of a model or dataset, its name where it has none; what follows a space, such as that it is a stand-in,
    stays."""
    base, _, rest = name.partition(" ")
    return f"{TITLES.get(base, base)} {rest}".strip()
