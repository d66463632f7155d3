"""Language models: text as token ids, the model, its training, and perplexity."""
