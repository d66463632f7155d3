"""Files, paths, locks, caches and bundled resources."""
