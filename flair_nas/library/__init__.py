"""Genotypes by name, file and address, and layer specs."""
