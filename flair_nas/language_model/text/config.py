"""The settings of a text, which searches and language models share."""

from __future__ import annotations

from dataclasses import dataclass

from flair_nas.settings.fields import COUNT, find_problems, raise_problems, setting


@dataclass
class TextSettings:
    """Settings of a text that is read as token ids."""

    text: str | None = setting(
        None,
        "folder of train and valid text, a file, train=FILE,valid=FILE, or demo, the bundled text (./demo is a folder)",
    )
    unit: str = setting("word", "tokens of the text: word, or char for characters", choices=("word", "char"))
    valid_share: float | None = setting(
        None, "without a valid file: share of the training lines, from their end, as 0.1", low=1e-6, high=0.99
    )
    vocabulary_size: int | None = setting(None, "maximum number of types, the most frequent ones", low=4, high=10**8)
    min_count: int = setting(
        1, "words, or characters, with fewer occurrences in the training part become <unk>", **COUNT
    )
    lowercase: bool = setting(False, "read words in lower case")

    def __post_init__(self) -> None:
        raise_problems(find_problems(self))
