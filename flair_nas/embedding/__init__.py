"""Embeddings from one's own text."""
