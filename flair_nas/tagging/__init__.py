"""Searched cells in Flair: registration, and training, evaluating and using taggers."""
