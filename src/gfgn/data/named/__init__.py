"""Named datasets: the registry, downloads, loaders of raw files, and the cache."""
