"""TODO flair_nas.language_model.text."""
