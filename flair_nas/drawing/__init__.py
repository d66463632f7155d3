"""Pictures: the progress of searches."""
