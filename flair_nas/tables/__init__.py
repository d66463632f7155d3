"""Tables of layers by corpora, as in papers: read from a file, run, and shown with their uncertainty."""
