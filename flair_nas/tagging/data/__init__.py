"""TODO flair_nas.tagging.data."""
