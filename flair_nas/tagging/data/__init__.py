"""Data of taggers: column files, corpora and embeddings."""
