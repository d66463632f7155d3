"""Changes to Flair's classes."""
