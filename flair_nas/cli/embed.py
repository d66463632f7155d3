"""flair-nas embed: train embeddings on your own text."""

from __future__ import annotations

import argparse

from flair_nas.cli.flags import Actions, add_action, add_run_flags, settings_of_run
from flair_nas.cli.log import quiet_libraries, shows_progress
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.storage.paths import typed

TRAIN_EXAMPLES = """examples:
  flair-nas embed train --text raw.txt --out embeddings/mine
  flair-nas embed train --text raw.txt --out embeddings/mine --estimate
  flair-nas embed train --text raw.txt --budget 30m --out embeddings/mine
  flair-nas embed train --corpus my_corpus/ --out embeddings/mine
  flair-nas embed train --resume embeddings/mine
  flair-nas tag train --corpus my_corpus/ --embeddings embeddings/mine --out runs/mine

The folder holds word vectors and two character models, and runs no code. --embeddings takes FOLDER for all of them,
FOLDER#words or FOLDER#characters."""


def add_parser(verbs: Actions) -> None:
    """Add the verb and its action."""
    verb = verbs.add_parser("embed", help="train embeddings on your own text", description=__doc__)
    actions = verb.add_subparsers(title="actions", metavar="ACTION", required=True)
    parser = add_action(actions, "train", train, TRAIN_EXAMPLES)
    out, estimate = "folder for the embeddings", "show the plan and its time, and exit"
    add_run_flags(parser, EmbeddingConfig, "", out, estimate=estimate)


def train(arguments: argparse.Namespace) -> int:
    """Train word vectors and character models on a raw text, for any tagger."""
    config, out = settings_of_run(arguments, EmbeddingConfig, "")
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.embedding.training import describe_plan, train_embeddings

    if arguments.estimate:
        print(describe_plan(config))
        return 0
    about = train_embeddings(config, out, progress=shows_progress(arguments))
    if "width" in about:
        sizes = f"{about['words']:,} words, {about['part_vectors']:,} rows for parts of other words"
        print(f"word vectors: {sizes}, width {about['width']}")
    for direction, bits in about.get("bits_per_character", {}).items():
        print(f"{direction} character model: {bits:.3f} bits per character on held-out lines")
    size = sum((out / name).stat().st_size for name in about["files"])
    print(f"size: {size / 1e6:.1f} MB")
    print(f"next: --embeddings {typed(str(out))}")
    return 0
