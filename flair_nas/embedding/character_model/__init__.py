"""Flair's character language models: training, evaluation, and files that run no code."""
