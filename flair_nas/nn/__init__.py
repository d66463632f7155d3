"""Recurrent layers: cells, gates, the table of layer types, and `SearchedRNN`."""
