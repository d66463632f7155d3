"""Choosing the recurrent layer for a corpus: candidates compared at equal cost, within a budget."""
