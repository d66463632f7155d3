"""Pictures: cells, the progress of searches, and comparisons of layers."""
