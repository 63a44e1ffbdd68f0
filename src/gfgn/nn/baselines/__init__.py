"""The models that GFGN is compared with, by name: `BASELINES`.

Each is a module whose `forward(x, graph)` gives logits, in a file of its own whose `ENTRY` tells the registry about it.
"""

from gfgn.nn.baselines import (
    acm_gcn,
    appnp,
    arma,
    gaan,
    gat,
    gatv2,
    gcn,
    gcnii,
    geniepath,
    geom_gcn,
    ggnn,
    gprgnn,
    graphsage,
    graphsaint,
    h2gcn,
    linkx,
    resgated,
    sgc,
    vr_gcn,
)
from gfgn.nn.entry import Baseline, Parameter, baseline

__all__ = ["BASELINES", "Baseline", "Parameter", "baseline"]

BASELINES: dict[str, Baseline] = {
    "gcn": gcn.ENTRY,
    "gat": gat.ENTRY,
    "sgc": sgc.ENTRY,
    "arma": arma.ENTRY,
    "ggnn": ggnn.ENTRY,
    "appnp": appnp.ENTRY,
    "geom-gcn": geom_gcn.ENTRY,
    "graphsage": graphsage.ENTRY,
    "vr-gcn": vr_gcn.ENTRY,
    "gaan": gaan.ENTRY,
    "geniepath": geniepath.ENTRY,
    "graphsaint": graphsaint.ENTRY,
    "gcnii": gcnii.ENTRY,
    "gprgnn": gprgnn.ENTRY,
    "h2gcn": h2gcn.ENTRY,
    "acm-gcn": acm_gcn.ENTRY,
    "linkx": linkx.ENTRY,
    "resgated": resgated.ENTRY,
    "gatv2": gatv2.ENTRY,
}
