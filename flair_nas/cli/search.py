"""flair-nas search: from plain text to a genotype."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.cli.flags import Actions, add_action, add_run_flags, peek_setting, refuse_flags_of, settings_of_run
from flair_nas.cli.log import quiet_flair, quiet_libraries, shows_progress
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.search.config import SearchConfig, SearchSettings
from flair_nas.search.flair_config import ClassificationSearchConfig, FlairSearchConfig, TaggingSearchConfig
from flair_nas.search.several_config import OBJECTIVES, SeveralSearchConfig, settings_class
from flair_nas.settings.fields import as_flags, changed
from flair_nas.storage.paths import typed
from flair_nas.tagging.config import TaggerConfig, check_corpus

if TYPE_CHECKING:
    from flair_nas.search.trainer import SearchResult

log = logging.getLogger("flair_nas")

EXAMPLES = """examples:
  flair-nas search --preset i-darts-small --text demo --out runs/first
  flair-nas search --preset i-darts-ptb --text my_text/ --out runs/mine --estimate
  flair-nas search --preset ess-ptb --text my_text/ --out runs/ess --precision bfloat16
  flair-nas search --objective tagging --corpus wnut_17 --hidden-size 64 --epochs 10 --out runs/tags
  flair-nas search --objective classification --corpus my_texts/ --epochs 10 --out runs/classes
  flair-nas search --preset several-small --tasks wnut.yaml conll2000.yaml my_text.yaml --out runs/several
  flair-nas search --resume runs/mine
  torchrun --nproc-per-node 2 -m flair_nas search --preset i-darts-ptb --text my_text/ --out runs/two

A text is a folder with train and valid files: one sentence per line, words separated by blanks. A search never learns
from the test file. With --objective tagging the supernet is the recurrent layer of a tagger, in both directions, and
learns on train alone; with --objective classification it is that of a classifier of lines such as: __label__NAME some
text."""


def add_parser(verbs: Actions) -> None:
    """Add the verb."""
    parser = add_action(verbs, "search", run, EXAMPLES)
    out, estimate = "folder for settings, checkpoints and the genotype", "time a few steps, show the cost, and exit"
    variants = {name: settings_class(name) for name in OBJECTIVES}
    add_run_flags(parser, SearchSettings, "search", out, estimate=estimate, variants=variants, prefix="objective ")


def run(arguments: argparse.Namespace) -> int:
    """Search a recurrent cell, its gates, or both, on text, tags or classes, or several."""
    progress = shows_progress(arguments)
    config_type = settings_class(arguments.objective or peek_setting("objective", "search", arguments) or "text")
    refuse_flags_of(arguments, {f"--objective {name}": settings_class(name) for name in OBJECTIVES}, config_type)
    config, out = settings_of_run(arguments, config_type, "search", "search")
    if isinstance(config, TaggingSearchConfig):
        check_corpus(config.corpus)
    if isinstance(config, (FlairSearchConfig, SeveralSearchConfig)):
        quiet_flair(arguments)
    else:
        quiet_libraries(arguments)
    chosen = arguments.resume or arguments.preset or arguments.config or changed(config, "hidden_size", "epochs")
    if not chosen and isinstance(config, SearchConfig):
        log.warning(
            "without --preset a search is as large as those of the papers: about seven hours for a million words on "
            "two CPU cores (--estimate measures it). The presets on -small take minutes to an hour (--list-presets)"
        )
    if arguments.estimate:
        return _estimate(config, progress)
    with exit_on_signal():
        from accelerate import PartialState

        from flair_nas.search.trainer import search_genotype

    result = search_genotype(config, out, progress=progress)
    if PartialState().is_main_process:
        _print_result(result, config, out)
        return 0 if result.learned else 1
    return 0


def _print_result(result: SearchResult, config: SearchSettings, out: Path) -> None:
    """Print the genotype, the files of the run and the next command."""
    path = out / "genotype.json"
    figures = result.genotype.origin["figures"]
    print(result.genotype.one_line() if result.learned else result.verdict)
    metric = result.metric
    value = figures[f"supernet_{metric.key}"]
    supernet = ""
    if value is not None and not config.own.trained_alone:  # else the supernet is the last candidate
        supernet = f"; the supernet's valid {metric.title} is {metric.plain(value)}"
    print(f"genotype: {path}; epochs: {figures['epochs']}, {figures['seconds']:.0f} s{supernet}")
    history = f"history: {out / 'history.jsonl'}; picture: {out / 'progress.svg'}; " if result.history else ""
    print(f"{history}settings: {out / 'config.yaml'}")
    if result.learned:
        if result.verdict:
            print(f"verdict: {result.verdict}")
        print(*_suggest_next(config, path, result.genotype.spec()), sep="\n")
    print(f"report: flair-nas report {typed(out)}")


def _suggest_next(config: SearchSettings, path: Path, spec: str) -> list[str]:
    """Return the commands that use a genotype, or an order of sublayers by its layer spec."""
    rnn, is_order = typed(path), config.transformer.sublayers is not None
    if isinstance(config, TaggingSearchConfig):
        tagger = config.tagger()
        tagger.rnn = TaggerConfig().rnn
        like_it = as_flags(tagger, TaggerConfig)
        if is_order:
            return [f"next: flair-nas tag train {like_it} --rnn {spec} --optimizer adamw --out runs/tagger"]
        return [f"next: flair-nas tune {like_it} --candidates {rnn} --vary layer --out runs/tune"]
    if isinstance(config, ClassificationSearchConfig):
        return [f'next, in Flair: flair_nas.DocumentRNNEmbeddings(..., rnn_type="{path}")']
    if isinstance(config, SeveralSearchConfig):
        return [f"next: flair-nas tune --corpus YOUR_CORPUS --candidates {rnn} --vary layer --out runs/tune"]
    if is_order:
        return [f"next: flair-nas lm train {_as_lm_flags(config)} --rnn {spec} --out runs/lm"]
    corpus = "demo" if isinstance(config, SearchConfig) and config.text == "demo" else "YOUR_CORPUS"
    lines = [f"next: flair-nas tag train --preset few-sentences --corpus {corpus} --rnn {rnn} --out runs/tagger"]
    if isinstance(config, SearchConfig) and config.text is not None:
        lines.append(f"  or: flair-nas lm train {_as_lm_flags(config)} --rnn {rnn} --out runs/lm")
    return lines


def _as_lm_flags(config: SearchSettings) -> str:
    """Return the flags of a language model like that of a search on text."""
    return as_flags(dataclasses.replace(config, epochs=SearchConfig.epochs), LanguageModelConfig)


def _estimate(config: SearchSettings, progress: bool) -> int:
    with exit_on_signal():
        from flair_nas.runs.duration import duration
        from flair_nas.search.estimate import estimate_search

    cost = estimate_search(config, progress=progress)
    print(f"parameters: {cost.parameters:,} model weights, {cost.architecture_parameters:,} architecture weights")
    print(f"peak memory so far: {cost.peak_memory_mb:,.0f} MB")
    print(f"a step: {cost.step_seconds:.2f} s; the evaluation after an epoch: {duration(cost.evaluation_seconds)}")
    print(f"an epoch of {cost.steps:,} steps, with it: {duration(cost.epoch_seconds)}")
    rest = f"; {cost.finishing} comes on top" if cost.finishing else ""
    print(f"all {config.epochs} epochs: {duration(cost.total_seconds)}{rest}")
    return 0
