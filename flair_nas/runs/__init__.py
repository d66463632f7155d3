"""Runs: folder, checkpoints, device, memory, random state, signals and metric."""
