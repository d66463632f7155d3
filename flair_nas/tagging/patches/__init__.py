"""TODO flair_nas.tagging.patches."""
