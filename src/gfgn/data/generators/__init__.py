"""Generated graphs, and noise for given ones."""

from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.data.generators.dimensions import dimensions
from gfgn.data.generators.noise import add_feature_noise, add_random_edges, remove_random_edges

__all__ = ["add_feature_noise", "add_random_edges", "contextual_sbm", "dimensions", "remove_random_edges"]
