"""Embeddings from one's own text: word vectors, character models, and the folder that holds both."""
