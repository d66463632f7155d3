"""Tables of layers by corpora, as papers have them: described in a file, run, and shown with what they are worth."""
