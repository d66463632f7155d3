"""Pictures: the progress of searches, and cells."""
