"""Fast ways to run the recurrence; each agrees with the plain equations of `flair_nas.nn.cell`."""
