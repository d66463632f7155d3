"""Objectives. A further one is one file with the functions below, and a line in `tasks.TASKS`.

`read(config, data, progress)` reads the data that the settings name, or those passed; the main process reads first and
may fill a cache. `build(config, data, accelerator)` builds the objective with the supernet of
`flair_nas.search.supernets`, on the accelerator's device.
"""
