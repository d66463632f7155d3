"""TODO flair_nas.experiments."""
