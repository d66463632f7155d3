"""TODO flair_nas.runs.run."""
