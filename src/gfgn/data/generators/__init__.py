"""Generated graphs, and random edges and noise added to given ones."""
