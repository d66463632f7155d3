"""Recurrent layers: operations, cells, gates, and `SearchedRNN`."""
