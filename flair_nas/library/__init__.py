"""TODO flair_nas.library.named."""
