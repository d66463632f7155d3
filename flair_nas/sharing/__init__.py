"""Genotypes and taggers that others share: fetching them, and writing folders to be published."""
