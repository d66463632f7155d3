"""flair-nas tune: the best settings for a corpus or a text, within a budget."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.cli.flags import Actions, add_action, add_run_flags, peek_setting, refuse_flags_of, settings_of_run
from flair_nas.cli.log import quiet_flair, shows_progress
from flair_nas.errors import FlairNasError
from flair_nas.experiments.tasks import TAGGING, TEXT
from flair_nas.runs.signals import exit_on_signal
from flair_nas.settings.resolve import preset_names
from flair_nas.storage.paths import typed
from flair_nas.tagging.config import check_corpus
from flair_nas.tune.config import TextTuneConfig, TuneConfig, TuneSettings
from flair_nas.tune.parts import TAGGER_PARTS, TEXT_PARTS

if TYPE_CHECKING:
    from flair_nas.tune.tuning import Tuning

_PARTS = "\n".join(
    f"{what}: {', '.join(f'{name} ({part.help})' for name, part in parts.items())}"
    for what, parts in (("parts of taggers", TAGGER_PARTS), ("parts of language models", TEXT_PARTS))
)
EXAMPLES = f"""examples:
  flair-nas tune --corpus wnut_17 --budget 2h --out runs/wnut
  flair-nas tune --corpus my_data/ --embeddings english char word:vectors.gensim --budget 45m --out runs/mine
  flair-nas tune --corpus my_data/ --vary layer rate --candidates gru genotype.json --random 20 --out runs/layers
  flair-nas tune --text my_text/ --preset ptb-small --budget 4h --out runs/text
  flair-nas tune --resume runs/wnut --budget 4h

The settings of a training are the baseline. Others are drawn, and trained with the first seed. Whenever some have come
to 0.35 or to 0.7 of the epochs, the better half goes on (of language models, the better quarter after a tenth, and
after 0.4). The best on dev, a fast one near it, and the baseline are trained with fresh seeds and scored once on test:
report.md says which is better, by how much, and how sure that is.

{_PARTS}"""

_VARIANTS: dict[str, type[TuneSettings]] = {
    "taggers (--corpus)": TuneConfig,
    "language models (--text)": TextTuneConfig,
}


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "tune", run, EXAMPLES)
    kinds, out = f"{TAGGING.presets} {TEXT.presets}", "folder for the report, the best model and all trainings"
    estimate = "time a few batches, show what the budget allows, and exit"
    add_run_flags(parser, TuneSettings, kinds, out, estimate=estimate, variants=_VARIANTS)


def run(arguments: argparse.Namespace) -> int:
    """Find the best embeddings, training and layer for a corpus or a text within a budget."""
    if arguments.text and arguments.corpus:
        raise FlairNasError("give --corpus or --text: taggers are tuned on the one, language models on the other")
    text = arguments.text or peek_setting("text", TEXT.presets, arguments)
    is_text = text or arguments.preset in preset_names(TEXT.presets)
    chosen: type[TuneSettings] = TextTuneConfig if is_text else TuneConfig
    refuse_flags_of(arguments, _VARIANTS, chosen)
    if arguments.rnn is None and arguments.preset and peek_setting("rnn", "", arguments) is None:
        arguments.rnn = "lstm"  # the layer of a preset is that of its paper, not a baseline
    config, out = settings_of_run(arguments, chosen, chosen.task.presets, "tuning")
    if isinstance(config, TuneConfig):
        check_corpus(config.corpus)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tune.tuning import estimate_tuning, tune_language_model, tune_tagger

    if arguments.estimate:
        print(*estimate_tuning(config, out if arguments.resume else None), sep="\n")
        return 0
    if isinstance(config, TuneConfig):
        tuning = tune_tagger(config, out, progress=shows_progress(arguments))
    else:
        assert isinstance(config, TextTuneConfig)
        tuning = tune_language_model(config, out)
    print_tuning(tuning, out)
    return 0


def print_tuning(tuning: Tuning, out: Path) -> None:
    """Print the answer of a tuning and the next command."""
    from flair_nas.tune.answer import summarize
    from flair_nas.tune.report import ALL_CANDIDATES, suggest_flags, suggest_longer_training

    config, answer = tuning.config, tuning.answer
    print(tuning.report.partition(ALL_CANDIDATES)[0], end="")
    print(f"answer, and all settings: {out / 'report.md'}; model: {out / 'model.pt'}; each training: {out / 'runs'}")
    print(summarize(answer, config))
    if answer.found_nothing:
        print(f"next: {suggest_longer_training(config)}")
    elif flags := suggest_flags(answer, config):
        print(f"next: keep the baseline, or: flair-nas {config.verb} --resume {typed(out)} {flags}")
    elif isinstance(config, TextTuneConfig):
        print(f"next: flair-nas lm evaluate --model {typed(out)} --text {typed(config.text or '')}")
    else:
        print(f'next: flair-nas tag predict --model {typed(out)} "A sentence to tag."')
    print(f"report: flair-nas report {typed(out)}")
