"""Text: sources, corpora of token ids, and segments."""
