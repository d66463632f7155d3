"""Tables of layers by corpora, as in papers: one YAML file each, run and shown with their uncertainty."""
