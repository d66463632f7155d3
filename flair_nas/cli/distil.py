"""flair-nas distil: a small tagger that learns from large ones on raw text."""

from __future__ import annotations

import argparse

from flair_nas.cli.flags import Actions, add_action, add_run_flags, settings_of_run
from flair_nas.cli.log import quiet_flair, shows_progress
from flair_nas.cli.tune import print_tuning
from flair_nas.errors import FlairNasError
from flair_nas.experiments.tasks import TAGGING
from flair_nas.runs.signals import exit_on_signal
from flair_nas.tagging.config import check_corpus
from flair_nas.tune.config import DistilConfig

EXAMPLES = """examples:
  flair-nas distil --teacher runs/large --text raw.txt --corpus my_data/ --budget 1h --out runs/student
  flair-nas distil --teacher runs/a runs/b --text raw/ --corpus my_data/ --embeddings english char --out runs/student
  flair-nas distil --resume runs/student --budget 3h

Teachers label the text, for three tenths of the budget at most. The rest is a run of tune: the weight of what they say
varies, 0 is the baseline, and fresh seeds judge. --vary taught rate layer varies more."""


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "distil", run, EXAMPLES)
    out = "folder for the report, the best model, what teachers say, and all trainings"
    add_run_flags(parser, DistilConfig, TAGGING.presets, out)


def run(arguments: argparse.Namespace) -> int:
    """Train a small tagger that learns from large ones on raw text, and judge if that helps."""
    if arguments.taught is not None:
        raise FlairNasError("--taught is what distil makes of --text; leave it out")
    config, out = settings_of_run(arguments, DistilConfig, TAGGING.presets, "tuning")
    check_corpus(config.corpus)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tune.tuning import distil_tagger

    print_tuning(distil_tagger(config, out, progress=shows_progress(arguments)), out)
    return 0
