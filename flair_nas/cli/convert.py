"""flair-nas convert: column files from data that other tools export."""

from __future__ import annotations

import argparse

from flair_nas.cli.flags import Actions, add_action
from flair_nas.cli.log import quiet_libraries
from flair_nas.errors import listed
from flair_nas.storage.paths import typed

EXAMPLES = """examples:
  flair-nas convert ner_dataset.csv --out my_corpus
  flair-nas convert train.jsonl dev.jsonl test.jsonl --out my_corpus
  flair-nas tag train --corpus my_corpus --out runs/mine

A file with dev, valid or test in its name becomes that part, all others train. CSV needs headings such as Sentence #,
Word and Tag. JSON is that of spaCy, Prodigy, doccano or Label Studio, or has tokens and ner_tags."""


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "convert", run, EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="CSV, or JSON with a record a line or in a list")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for train.txt, dev.txt and test.txt")


def run(arguments: argparse.Namespace) -> int:
    """Write the column files that tag train takes from CSV or JSON."""
    quiet_libraries(arguments)
    from flair_nas.tagging.data.conversion import convert_corpus

    parts = convert_corpus(arguments.files, arguments.out)
    for part in parts.values():
        labels = listed([f"{label} {count:,}" for label, count in sorted(part.labels.items())])
        print(f"{typed(part.path)}: {part.sentences:,} sentences, {part.words:,} words; {labels or 'no label'}")
    if "train" in parts:
        print(f"next: flair-nas tag train --corpus {typed(arguments.out)} --out runs/tagger")
    return 0
