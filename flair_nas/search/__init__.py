"""Architecture search: objectives, bilevel steps, strategies, and the trainer that runs them in one folder."""
