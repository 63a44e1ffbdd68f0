"""Named datasets: registry, loaders, downloads, cache."""
