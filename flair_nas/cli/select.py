"""flair-nas select: the best recurrent layer for a corpus or a text, within a budget."""

from __future__ import annotations

import argparse

from flair_nas.cli.flags import Actions, add_action, add_run_flags, peek_setting, refuse_flags_of, settings_of_run
from flair_nas.cli.log import quiet_flair, shows_progress
from flair_nas.errors import FlairNasError
from flair_nas.experiments.tasks import TAGGING, TEXT
from flair_nas.runs.signals import exit_on_signal
from flair_nas.select.config import SelectConfig, SelectSettings, TextSelectConfig
from flair_nas.settings.resolve import preset_names
from flair_nas.storage.paths import typed
from flair_nas.tagging.data.names import check_corpus

EXAMPLES = """examples:
  flair-nas select --corpus wnut_17 --budget 2h --out runs/wnut
  flair-nas select --corpus my_data/ --embeddings word:vectors.gensim char --budget 45m --out runs/mine
  flair-nas select --corpus demo --embeddings english char --candidates gru genotype.json --random 5 --out runs/few
  flair-nas select --text my_text/ --preset ptb-small --budget 4h --out runs/text
  flair-nas select --resume runs/wnut --budget 4h

All layers start with the first seed. After a third of the epochs, and again later, the better half continues (of
language models, the better quarter after a tenth). The best on dev and the baseline (--rnn) are trained with fresh
seeds and scored once on test: report.md says which is better, by how much, and how sure that is."""

_VARIANTS: dict[str, type[SelectSettings]] = {
    "taggers (--corpus)": SelectConfig,
    "language models (--text)": TextSelectConfig,
}


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "select", run, EXAMPLES)
    kinds, out = f"{TAGGING.presets} {TEXT.presets}", "folder for the report, the best model and all trainings"
    estimate = "time a few batches, show what the budget allows, and exit"
    add_run_flags(parser, SelectSettings, kinds, out, estimate=estimate, variants=_VARIANTS)


def run(arguments: argparse.Namespace) -> int:
    """Compare recurrent layers on a corpus or a text within a budget, and train the best."""
    if arguments.text and arguments.corpus:
        raise FlairNasError("give --corpus or --text: taggers are compared on the one, language models on the other")
    text = arguments.text or peek_setting("text", TEXT.presets, arguments)
    is_text = text or arguments.preset in preset_names(TEXT.presets)
    chosen: type[SelectSettings] = TextSelectConfig if is_text else SelectConfig
    refuse_flags_of(arguments, _VARIANTS, chosen)
    if arguments.rnn is None and arguments.preset and peek_setting("rnn", "", arguments) is None:
        arguments.rnn = "lstm"  # the layer of a preset is that of its paper, not a baseline
    config, out = settings_of_run(arguments, chosen, chosen.task.presets, chosen.may_change, "selection")
    if isinstance(config, SelectConfig):
        check_corpus(config.corpus)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.select.report import ALL_CANDIDATES, suggest_flags, suggest_longer_training, summarize_answer
        from flair_nas.select.selection import estimate_selection, select_layer

    if arguments.estimate:
        print(*estimate_selection(config, out if arguments.resume else None), sep="\n")
        return 0
    selection = select_layer(config, out, progress=shows_progress(arguments))
    config, answer = selection.config, selection.answer
    print(selection.report.partition(ALL_CANDIDATES)[0], end="")
    print(f"answer, and all candidates: {out / 'report.md'}; model: {out / 'model.pt'}; each training: {out / 'runs'}")
    print(summarize_answer(answer, config))
    if answer.found_nothing:
        print(f"next: {suggest_longer_training(config)}")
    elif flags := suggest_flags(answer, config):
        print(f"next: keep {config.rnn}, or: flair-nas select --resume {typed(out)} {flags}")
    elif isinstance(config, TextSelectConfig):
        print(f"next: flair-nas lm evaluate --model {typed(out)} --text {typed(config.text or '')}")
    else:
        print(f'next: flair-nas tag predict --model {typed(out)} "A sentence to tag."')
    print(f"report: flair-nas report {typed(out)}")
    return 0
