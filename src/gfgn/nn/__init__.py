"""The layer `GFGNConv` and the network `GFGN`."""

from gfgn.nn.conv import GFGNConv
from gfgn.nn.model import GFGN

__all__ = ["GFGN", "GFGNConv"]
