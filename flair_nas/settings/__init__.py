"""TODO flair_nas.settings.fields."""
