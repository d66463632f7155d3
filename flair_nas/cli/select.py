"""flair-nas select: the best recurrent layer for a corpus, within a budget."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from flair_nas.cli.flags import add_action, add_run_flags, add_setting_flags, settings_of_run
from flair_nas.cli.log import quiet_flair
from flair_nas.paths import typed
from flair_nas.select.config import SelectConfig
from flair_nas.stopping import stopped_at_once

EXAMPLES = """examples:
  flair-nas select --corpus wnut_17 --budget 2h --out runs/wnut
  flair-nas select --corpus my_data/ --embeddings word:vectors.gensim char --budget 45m --out runs/mine
  flair-nas select --corpus demo --candidates gru i-darts-ptb genotype.json --random 5 --out runs/few
  flair-nas select --resume runs/wnut --budget 4h

All layers begin with the first seed; after a tenth of the epochs, and again later, the better quarter goes on. The
layer to beat (--rnn) and the best of the others are trained with all seeds and scored on test, once: report.md says
which is better, by how much, and how sure that is. Settings come from the defaults, then --preset, then --config, then
flags; the later wins."""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command's parser."""
    summary = "Compare recurrent layers on a corpus within a budget, and train the best."
    parser = add_action(verbs, "select", summary, EXAMPLES)
    parser.set_defaults(run=run)
    add_run_flags(parser, "tagging", "folder for the report, the best tagger, and a folder of each training")
    add_setting_flags(parser, SelectConfig)


def run(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas select``."""
    message = "--out DIR is needed: the folder for the report, the best tagger, and a folder of each training"
    config, out = settings_of_run(arguments, SelectConfig, "tagging", message)
    with stopped_at_once():
        quiet_flair(arguments)
        from flair_nas.select.selection import select_layer

    found = select_layer(config, out, progress=not arguments.quiet and sys.stderr.isatty())
    print(found.report, end="")
    print(f"report: {out / 'report.md'}; model: {out / 'model.pt'}; each training: {out / 'runs'}")
    print(f'next: flair-nas tag predict --model {typed(out)} "A sentence to tag."')
    return 0
