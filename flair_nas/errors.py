"""The error that a user can act on."""


class FlairNasError(ValueError):
    """Something that the user gave cannot be used; the message says what, where, and what to do."""
