"""Strategies. A further one is one file with a subclass of `Strategy`, and a line in `registry.STRATEGIES`."""
