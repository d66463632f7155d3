"""Tune: embeddings, training and layer in one search, judged by fresh seeds."""
