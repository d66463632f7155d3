"""Objectives. A further one is one file with `read` and `build`, and a line in `registry.OBJECTIVES`."""
