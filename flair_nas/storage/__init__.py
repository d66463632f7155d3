"""TODO flair_nas.storage."""
