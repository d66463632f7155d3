"""TODO flair_nas.nn."""
