"""flair-nas search: from plain text to a genotype."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from typing import Any

from flair_nas.cli.flags import (
    add_action,
    add_run_flags,
    add_setting_flags,
    given_flags,
    refuse_flags_of,
    said_of,
    settings_of_run,
)
from flair_nas.cli.log import quiet_flair, quiet_libraries
from flair_nas.errors import FlairNasError, brief
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.search.config import SearchConfig, SearchSettings, small_presets
from flair_nas.search.flair_config import ClassificationSearchConfig, FlairSearchConfig, TaggingSearchConfig
from flair_nas.search.registry import OBJECTIVES, settings_class
from flair_nas.settings.fields import as_flags, changed
from flair_nas.settings.resolve import resolve
from flair_nas.storage.paths import typed
from flair_nas.tagging.config import TaggerConfig

log = logging.getLogger("flair_nas")

EXAMPLES = """examples:
  flair-nas search --preset i-darts-small --text demo --out runs/first
  flair-nas search --preset i-darts-ptb --text my_text/ --out runs/mine --estimate
  flair-nas search --preset ess-ptb --text my_text/ --out runs/ess --precision bfloat16
  flair-nas search --objective tagging --corpus wnut_17 --hidden-size 64 --epochs 10 --out runs/tags
  flair-nas search --objective classification --corpus my_texts/ --epochs 10 --out runs/classes
  flair-nas search --resume runs/mine
  torchrun --nproc-per-node 2 -m flair_nas search --preset i-darts-ptb --text my_text/ --out runs/two

Settings come from the defaults, then --preset, then --config, then flags; the later wins. A text is a folder with
train and valid files (and test, which a search never learns from), one sentence a line, words parted by blanks. With
--objective tagging the supernet is the recurrent layer of a tagger, in both directions, and learns on train alone; with
--objective classification that of a classifier, of lines such as: __label__NAME some text."""


def add_parser(verbs: Any) -> None:
    """Adds the verb to the command's parser."""
    parser = add_action(
        verbs, "search", "Search a recurrent cell, its gates, or both, on text, tags or classes.", EXAMPLES
    )
    parser.set_defaults(run=run)
    add_run_flags(parser, "search", "folder for settings, history, checkpoints and the genotype")
    parser.add_argument(
        "--estimate", action="store_true", help="measure a few steps, say what the search will cost, and stop"
    )
    add_setting_flags(parser, SearchSettings, **{f"objective {names}": found for names, found in _variants().items()})


def _variants() -> dict[str, type[SearchSettings]]:
    """The classes of settings that there are, by the objectives that have them."""
    names: dict[type[SearchSettings], list[str]] = {}
    for name in OBJECTIVES:
        names.setdefault(settings_class(name), []).append(name)
    return {" or ".join(found): config_type for config_type, found in names.items()}


def _settings_class(arguments: argparse.Namespace) -> type[SearchSettings]:
    """The settings of the objective that flags, file or preset name; of text, if none does."""
    objective = arguments.objective or said_of("objective", "search", arguments) or "text"
    if objective not in OBJECTIVES:
        raise FlairNasError(f"objective must be one of {', '.join(OBJECTIVES)}, got {brief(objective)}")
    chosen = settings_class(objective)
    for names, other in _variants().items():
        refuse_flags_of(arguments, other, chosen, f"--objective {names}")
    return chosen


def run(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas search``."""
    progress = not arguments.quiet and sys.stderr.isatty()
    config_type = _settings_class(arguments)
    if issubclass(config_type, FlairSearchConfig):
        quiet_flair(arguments)
    else:
        quiet_libraries(arguments)
    if arguments.estimate and not arguments.resume:
        flags = given_flags(arguments, config_type)
        config = resolve(config_type, kind="search", preset=arguments.preset, file=arguments.config, flags=flags)
        _say_scale(arguments, config)
        return _estimate(config, progress)
    config, out = settings_of_run(
        arguments, config_type, "search", "--out DIR is needed: the folder for history, checkpoints and the genotype"
    )
    if arguments.estimate:
        return _estimate(config, progress)
    _say_scale(arguments, config)
    with exit_on_signal():
        from accelerate import PartialState

        from flair_nas.search.trainer import search_genotype

    result = search_genotype(config, out, progress=progress)
    if not PartialState().is_main_process:  # the main one says it
        return 0
    path = out / "genotype.json"
    figures = result.genotype.origin["figures"]
    print(result.genotype.one_line() if result.learned else result.verdict)
    measure = result.measure
    value = figures[f"supernet_{measure.key}"]
    of_supernet = ""
    if value is not None and config.strategy != "random-independent":  # whose supernet runs its last candidate
        of_supernet = f"; the supernet's valid {measure.title} is {measure.plain(value)}"
    print(f"genotype: {path}; epochs: {figures['epochs']}, {figures['seconds']:.0f} s{of_supernet}")
    history = f"history: {out / 'history.jsonl'}; picture: {out / 'progress.svg'}; " if result.history else ""
    print(f"{history}settings: {out / 'config.yaml'}")
    if not result.learned:
        return 1
    if result.verdict:
        print(f"verdict: {result.verdict}")
    rnn = typed(path)
    if isinstance(config, TaggingSearchConfig):
        tagger = config.tagger()
        tagger.rnn = TaggerConfig().rnn
        print(f"next: flair-nas select {as_flags(tagger, TaggerConfig)} --candidates {rnn} --out runs/select")
        return 0
    if isinstance(config, ClassificationSearchConfig):
        print(f'next, in Flair: flair_nas.DocumentRNNEmbeddings(..., rnn_type="{path}")')
        return 0
    small = "--embeddings one-hot char --hidden-size 64 --batch-size 8 --learning-rate 0.3 --epochs 16"
    corpus = "demo" if isinstance(config, SearchConfig) and config.text == "demo" else "YOUR_CORPUS"
    print(f"next: flair-nas tag train --corpus {corpus} {small} --rnn {rnn} --out runs/tagger")
    if isinstance(config, SearchConfig) and config.text is not None:
        like_it = as_flags(dataclasses.replace(config, epochs=SearchConfig.epochs), LanguageModelConfig)
        print(f"  or: flair-nas lm train {like_it} --rnn {rnn} --out runs/lm")
    return 0


def _say_scale(arguments: argparse.Namespace, config: SearchSettings) -> None:
    """Say that a search on text without a preset is as large as those of the papers."""
    chosen = arguments.resume or arguments.preset or arguments.config or changed(config, "hidden_size", "epochs")
    if not chosen and isinstance(config, SearchConfig):
        log.warning(
            "without --preset a search is as large as those of the papers: about seven hours for a million words on "
            "two CPU cores (--estimate measures it). These presets take minutes to an hour: %s",
            ", ".join(small_presets()),
        )


def _estimate(config: SearchSettings, progress: bool) -> int:
    with exit_on_signal():
        from flair_nas.runs.duration import duration
        from flair_nas.search.estimate import estimate_search

    found = estimate_search(config, progress=progress)
    print(f"parameters: {found.parameters:,} model weights, {found.architecture_parameters:,} architecture weights")
    print(f"peak memory so far: {found.peak_memory_mb:,.0f} MB")
    print(f"a step: {found.step_seconds:.2f} s; the evaluation after an epoch: {duration(found.evaluation_seconds)}")
    print(f"an epoch of {found.steps:,} steps, with it: {duration(found.epoch_seconds)}")
    rest = f"; {found.finishing} comes on top" if found.finishing else ""
    print(f"all {config.epochs} epochs: {duration(found.total_seconds)}{rest}")
    return 0
