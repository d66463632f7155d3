"""flair-nas lm: train and evaluate language models."""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from flair_nas.cli.flags import Actions, add_action, add_output_flags, add_run_flags, count, settings_of_run
from flair_nas.cli.log import format_size, quiet_libraries, shows_progress
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.storage.paths import check_model, typed

log = logging.getLogger("flair_nas")

TRAIN_EXAMPLES = """examples:
  flair-nas lm train --text my_text/ --hidden-size 200 --epochs 10 --out runs/lm
  flair-nas lm train --preset ptb-small --text ptb/ --rnn lstm --hidden-size 144 --out runs/lstm
  flair-nas lm train --preset darts-ptb --text ptb/ --rnn runs/search/genotype.json --out runs/ptb
  flair-nas lm train --resume runs/ptb

A text is a folder with train, valid and test files: one sentence per line, words separated by blanks.
Options of a searched cell follow its name and win over settings: --rnn darts-v2,recurrent_dropout=0.1. There,
dropout is the one between layers; --dropout is the one of the output."""

EVALUATE_EXAMPLES = """examples:
  flair-nas lm evaluate --model runs/lm --text ptb/
  flair-nas lm evaluate --model runs/lm --text more.txt --json
  flair-nas lm evaluate --model runs/lm --text more.txt --by-sentence

With --batch-size 1 each word is predicted once, from all words before it. A larger batch is faster but approximate:
each of its columns begins without context."""


def add_parser(verbs: Actions) -> None:
    """Add the verb and its actions."""
    lm = verbs.add_parser("lm", help="train and evaluate language models", description=__doc__)
    actions = lm.add_subparsers(title="actions", metavar="ACTION", required=True)

    parser = add_action(actions, "train", train, TRAIN_EXAMPLES)
    add_run_flags(parser, LanguageModelConfig, "language_model", "folder for model, settings, checkpoints and figures")

    parser = add_action(actions, "evaluate", evaluate, EVALUATE_EXAMPLES)
    parser.add_argument("--model", required=True, metavar="PATH", help="folder of a training run, or its model.pt")
    parser.add_argument("--text", required=True, metavar="PATH", help="folder with parts, or one file")
    parser.add_argument("--part", choices=("train", "valid", "test"), help="part of a folder (default: test or valid)")
    help = "columns of text; more than 1 is approximate (default: 1)"
    parser.add_argument("--batch-size", type=count, default=1, metavar="N", help=help)
    parser.add_argument("--by-sentence", action="store_true", help="score each line by itself, and all lines together")
    add_output_flags(parser)


def train(arguments: argparse.Namespace) -> int:
    """Train a language model with a searched cell, an LSTM or another layer."""
    config, out = settings_of_run(arguments, LanguageModelConfig, "language_model")
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.language_model.training import train_language_model

    metrics = train_language_model(config, out, progress=shows_progress(arguments))
    for part in ("dev", "test"):
        if metrics[f"{part}_perplexity"] is not None:
            names = ("perplexity", "tokens", "unknown_share")
            score = {name: metrics[f"{part}_{name}"] for name in names}
            print(_format_score(part, score, config.unit, _describe_columns(metrics["eval_batch_size"])))
    averaged = f", averaged from epoch {metrics['averaged_from']}" if metrics["averaged_from"] else ""
    seconds = f"{metrics['seconds_per_epoch']:.1f} s per epoch ({metrics['cpu_seconds_per_epoch']:.1f} s of CPU time)"
    print(f"epochs: {metrics['epochs']}, best on dev: {metrics['best_epoch']}{averaged}; {seconds}")
    print(f"{format_size(metrics)}; {metrics['vocabulary']:,} types")
    print(f"model: {out / 'model.pt'}; figures: {out / 'metrics.json'}; history: {out / 'history.jsonl'}")
    if config.text is not None:
        print(f"next: flair-nas lm evaluate --model {typed(out)} --text {typed(config.text)}")
    return 0


def _format_score(name: str, score: Mapping[str, Any], unit: str, note: str = "") -> str:
    words, bits = "words", ""
    if unit == "char":
        words, bits = "characters", f", {math.log2(score['perplexity']):.3f} bits per character"
    if "unknown_share" in score:
        note = f", {100 * score['unknown_share']:.1f} % of the {words} <unk>{note}"
    return f"{name} perplexity: {score['perplexity']:.2f}{bits} ({score['tokens']:,} tokens{note})".lstrip()


def _describe_columns(batch_size: int) -> str:
    return "" if batch_size == 1 else f", approximate: {batch_size} columns without context at their start"


def evaluate(arguments: argparse.Namespace) -> int:
    """Compute the perplexity of a language model on a text."""
    check_model(arguments.model)
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.language_model.evaluation import evaluate_language_model
        from flair_nas.language_model.saved import is_one_file, load_language_model
        from flair_nas.language_model.text.sources import find_text
        from flair_nas.runs.device import choose_device

    whole, part = is_one_file(arguments.text), arguments.part or "test"
    if not whole and arguments.part is None:
        parts = find_text(arguments.text).parts
        if "test" not in parts and "valid" in parts:
            log.warning("%s has no test part; valid is used", arguments.text)
            part = "valid"
    saved = load_language_model(arguments.model, choose_device(arguments.device))
    score = evaluate_language_model(
        saved,
        arguments.text,
        part=part,
        batch_size=arguments.batch_size,
        by_sentence=arguments.by_sentence,
        progress=shows_progress(arguments),
    )
    unit = saved.config.unit
    if arguments.json:
        figures = {"part": None if whole else part, **score._asdict(), "batch_size": arguments.batch_size}
        figures["sentences"] = [sentence._asdict() for sentence in score.sentences]
        print(json.dumps(figures, indent=2))
        return 0
    for line, sentence in enumerate(score.sentences, 1):
        print(_format_score(f"line {line}:", sentence._asdict(), unit))
    note = ", each line by itself" if arguments.by_sentence else _describe_columns(arguments.batch_size)
    print(_format_score("" if whole else part, score._asdict(), unit, note))
    return 0
