"""The words for which two language models differ most, as table 3 of Li et al. (ACL 2020).

    python -m benchmarks.search.compare_models RUN_A RUN_B --text PTB [--part valid] [--top 20] [--min-occurrences 5]

Both models must have the same vocabulary. Each word is predicted from all words before it.
"""

import argparse
from typing import NamedTuple

import numpy as np

from benchmarks.json_lines import as_table
from flair_nas import load_language_model
from flair_nas.language_model.perplexity import compute_stream_losses
from flair_nas.language_model.saved import SavedLanguageModel, encode_text
from flair_nas.language_model.text.corpus import END


class WordChange(NamedTuple):
    """The mean losses of two models on a word, in nats."""

    word: str
    train_count: int  # in the text that the models were trained on
    occurrences: int  # in the text that they are compared on
    loss_a: float
    loss_b: float

    @property
    def difference(self) -> float:
        """loss_b - loss_a, negative if the second model is better."""
        return self.loss_b - self.loss_a


def compare_models(a: SavedLanguageModel, b: SavedLanguageModel, text: str, part: str = "test") -> list[WordChange]:
    """Return the losses of both models on each word of a text, by rising difference."""
    vocabulary = a.vocabulary
    if vocabulary.words != b.vocabulary.words:
        raise SystemExit("the models have different vocabularies, so their losses cannot be compared")
    ids = encode_text(text, vocabulary, a.config, part=part)
    occurrences = np.bincount(ids, minlength=len(vocabulary))
    losses = [compute_stream_losses(saved.model, ids, first=vocabulary.index(END)) for saved in (a, b)]
    sums = [np.bincount(ids, weights=of_tokens, minlength=len(vocabulary)) for of_tokens in losses]
    words = [
        WordChange(vocabulary.words[i], vocabulary.counts[i], int(count), sums[0][i] / count, sums[1][i] / count)
        for i, count in enumerate(occurrences)
        if count
    ]
    return sorted(words, key=lambda word: word.difference)


def to_tables(words: list[WordChange], top: int, min_occurrences: int) -> str:
    """Return the words that change most, and the most frequent ones, as Markdown."""
    often = [word for word in words if word.occurrences >= min_occurrences]
    lists = {
        "better in B": [word for word in often if word.difference < 0][:top],
        "worse in B": [word for word in reversed(often) if word.difference > 0][:top],
        "most frequent": sorted(words, key=lambda word: -word.occurrences)[:top],
    }
    tables = []
    for title, chosen in lists.items():
        rows = [[title, "B - A", "loss A", "loss B", "here", "in train"]]
        for word in chosen:
            losses = f"{word.difference:+.3f}", f"{word.loss_a:.3f}", f"{word.loss_b:.3f}"
            rows.append([word.word, *losses, f"{word.occurrences:,}", f"{word.train_count:,}"])
        tables.append(as_table(rows))
    return "\n\n".join(tables)


def main() -> None:
    """Compare two models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="RUN_A", help="folder of a training run, or its model.pt")
    parser.add_argument("b", metavar="RUN_B")
    parser.add_argument("--text", required=True, metavar="PATH")
    parser.add_argument("--part", choices=("train", "valid", "test"), default="test")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--min-occurrences", type=int, default=1)
    arguments = parser.parse_args()
    words = compare_models(
        load_language_model(arguments.a), load_language_model(arguments.b), arguments.text, arguments.part
    )
    print(to_tables(words, arguments.top, arguments.min_occurrences))


if __name__ == "__main__":
    main()
