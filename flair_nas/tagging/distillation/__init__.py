"""Small taggers that learn from large ones."""
