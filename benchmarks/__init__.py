"""Benchmarks, each run from the root of the repository: README.md has a line for each."""
