"""flair-nas lm: train, evaluate and compare language models."""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flair_nas.cli.flags import add_action, add_output_flags, add_run_flags, add_setting_flags, count, settings_of_run
from flair_nas.cli.log import quiet_libraries, shows_progress
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.storage.paths import check_model, typed

if TYPE_CHECKING:
    from flair_nas.cli.flags import Actions
    from flair_nas.language_model.evaluation import Comparison, WordChange

log = logging.getLogger("flair_nas")

TRAIN_EXAMPLES = """examples:
  flair-nas lm train --text my_text/ --hidden-size 200 --epochs 10 --out runs/lm
  flair-nas lm train --preset ptb-small --text ptb/ --rnn lstm --hidden-size 144 --out runs/lstm
  flair-nas lm train --preset darts-ptb --text ptb/ --rnn runs/search/genotype.json --out runs/ptb
  flair-nas lm train --resume runs/ptb

Settings come from the defaults, then --preset, then --config, then flags; the later wins. A text is a folder with
train, valid and test files: one sentence per line, words separated by blanks.
Options of a searched cell follow its name and win over settings: --rnn darts-v2,recurrent_dropout=0.1. There,
dropout is the one between layers; --dropout is the one of the output."""

EVALUATE_EXAMPLES = """examples:
  flair-nas lm evaluate --model runs/lm --text ptb/
  flair-nas lm evaluate --model runs/lm --text more.txt --json
  flair-nas lm evaluate --model runs/lm --text more.txt --by-sentence

With --batch-size 1 each word is predicted once, from all words before it. A larger batch is faster but approximate:
each of its columns begins without context."""

COMPARE_EXAMPLES = """examples:
  flair-nas lm compare runs/lstm runs/lm --text ptb/
  flair-nas lm compare runs/lstm runs/lm --text ptb/ --part valid --top 8 --min-occurrences 5"""


def add_parser(verbs: Actions) -> None:
    """Add the verb and its actions."""
    lm = verbs.add_parser("lm", help="train, evaluate and compare language models", description=__doc__)
    actions = lm.add_subparsers(title="actions", metavar="ACTION", required=True)

    help = "Train a language model with a searched cell, an LSTM or another layer."
    parser = add_action(actions, "train", train, help, TRAIN_EXAMPLES)
    add_run_flags(parser, "language_model", "folder for model, settings, history, checkpoints and figures")
    add_setting_flags(parser, LanguageModelConfig)

    parser = add_action(
        actions, "evaluate", evaluate, "Compute the perplexity of a language model on a text.", EVALUATE_EXAMPLES
    )
    parser.add_argument("--model", required=True, metavar="PATH", help="folder of a training run, or its model.pt")
    _add_text(parser)
    help = "columns of text; more than 1 is approximate (default: 1)"
    parser.add_argument("--batch-size", type=count, default=1, metavar="N", help=help)
    parser.add_argument("--by-sentence", action="store_true", help="score each line by itself, and all lines together")
    add_output_flags(parser)

    parser = add_action(
        actions, "compare", compare, "List the words for which two language models differ most.", COMPARE_EXAMPLES
    )
    parser.add_argument("a", metavar="A", help="first model: folder of a training run, or its model.pt")
    parser.add_argument("b", metavar="B", help="second model")
    _add_text(parser)
    parser.add_argument("--top", type=count, default=20, metavar="N", help="words per table (default: 20)")
    parser.add_argument(
        "--min-occurrences", type=count, default=1, metavar="N", help="leave out rarer words (default: 1)"
    )
    add_output_flags(parser)


def train(arguments: argparse.Namespace) -> int:
    """Run ``flair-nas lm train``."""
    config, out = settings_of_run(arguments, LanguageModelConfig, "language_model", LanguageModelConfig.may_change)
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.language_model.training import train_language_model

    metrics = train_language_model(config, out, progress=shows_progress(arguments))
    print(format_metrics(metrics))
    print(f"model: {out / 'model.pt'}; figures: {out / 'metrics.json'}; history: {out / 'history.jsonl'}")
    if config.text is not None:
        print(f"next: flair-nas lm evaluate --model {typed(out)} --text {typed(config.text)}")
    return 0


def format_metrics(metrics: dict[str, Any]) -> str:
    """Return the figures of a run in a few lines."""
    lines = []
    for part in ("valid", "test"):
        if metrics[f"{part}_perplexity"] is not None:
            perplexity, tokens = metrics[f"{part}_perplexity"], metrics[f"{part}_tokens"]
            share = metrics.get(f"{part}_unknown_share")  # older runs did not count it
            how = _approximation(metrics["eval_batch_size"])
            lines.append(_score(part, perplexity, tokens, share, how, metrics.get("unit", "word")))
    averaged = f", averaged from epoch {metrics['averaged_from']}" if metrics["averaged_from"] else ""
    lines.append(
        f"epochs: {metrics['epochs']}, best on valid: {metrics['best_epoch']}{averaged}; "
        f"{metrics['seconds_per_epoch']:.1f} s per epoch ({metrics['cpu_seconds_per_epoch']:.1f} s of CPU time)"
    )
    lines.append(
        f"{metrics['parameters']:,} parameters, {metrics['rnn_parameters']:,} of them in the recurrent layer; "
        f"{metrics['vocabulary']:,} types; peak memory {metrics['peak_memory_mb']:,.0f} MB"
    )
    return "\n".join(lines)


def _score(part: str, perplexity: float, tokens: int, unknown_share: float | None, how: str, unit: str) -> str:
    words, bits = "words", ""
    if unit == "char":
        words, bits = "characters", f", {math.log2(perplexity):.3f} bits per character"
    unknown = "" if unknown_share is None else f", {100 * unknown_share:.1f} % of the {words} <unk>"
    return f"{part} perplexity: {perplexity:.2f}{bits} ({tokens:,} tokens{unknown}{how})".lstrip()


def _approximation(batch_size: int) -> str:
    return "" if batch_size == 1 else f", approximate: {batch_size} columns without context at their start"


def evaluate(arguments: argparse.Namespace) -> int:
    """Run ``flair-nas lm evaluate``."""
    check_model(arguments.model)
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.language_model.evaluation import evaluate_language_model
        from flair_nas.language_model.saved import is_one_file, load_language_model
        from flair_nas.runs.device import choose_device

    part = _part(arguments)
    saved = load_language_model(arguments.model, choose_device(arguments.device))
    score = evaluate_language_model(
        saved,
        arguments.text,
        part=part,
        batch_size=arguments.batch_size,
        by_sentence=arguments.by_sentence,
        progress=shows_progress(arguments),
    )
    whole, unit = is_one_file(arguments.text), saved.config.unit
    if arguments.json:
        figures = {"part": None if whole else part, **score._asdict(), "batch_size": arguments.batch_size}
        figures["sentences"] = [sentence._asdict() for sentence in score.sentences]
        print(json.dumps(figures, indent=2))
        return 0
    for line, sentence in enumerate(score.sentences, 1):
        print(f"line {line}: {_score('', sentence.perplexity, sentence.tokens, None, '', unit)}")
    how = ", each line by itself" if arguments.by_sentence else _approximation(arguments.batch_size)
    print(_score("" if whole else part, score.perplexity, score.tokens, score.unknown_share, how, unit))
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Run ``flair-nas lm compare``."""
    check_model(arguments.a)
    check_model(arguments.b)
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.language_model.evaluation import compare_language_models
        from flair_nas.runs.device import choose_device

    comparison = compare_language_models(
        arguments.a,
        arguments.b,
        arguments.text,
        part=_part(arguments),
        progress=shows_progress(arguments),
        device=choose_device(arguments.device),
    )
    if arguments.json:
        print(json.dumps(comparison.to_dict(arguments.top, arguments.min_occurrences), indent=2))
    else:
        print(f"A = {arguments.a}, B = {arguments.b}, on {arguments.text}")
        print(format_comparison(comparison, arguments.top, arguments.min_occurrences))
    return 0


def format_comparison(comparison: Comparison, top: int, min_occurrences: int = 1) -> str:
    """Return a comparison as tables of the `top` words."""
    figures = comparison.to_dict(0)
    lines = [
        f"{comparison.tokens:,} tokens: perplexity {figures['perplexity_a']:.2f} of A, "
        f"{figures['perplexity_b']:.2f} of B; mean loss {comparison.loss_a:.4f} and {comparison.loss_b:.4f}, "
        f"B - A {comparison.difference:+.4f}; {100 * comparison.unknown_share:.1f} % of the tokens <unk>"
    ]
    tables = (
        ("better in B", comparison.improved(top, min_occurrences)),
        ("worse in B", comparison.worsened(top, min_occurrences)),
        ("most frequent", comparison.frequent(top)),
    )
    for title, words in tables:
        lines += ["", *_format_table(title, words)]
    return "\n".join(lines)


def _format_table(title: str, words: Sequence[WordChange]) -> list[str]:
    labels = [word.word if word.word.strip() else repr(word.word) for word in words]  # blanks are characters, too
    width = max(map(len, [title, *labels]))
    heads = f"{'B - A':>8} {'loss A':>8} {'loss B':>8} {'here':>8} {'in train':>10}"
    lines = [f"{title:<{width}} {heads}"]
    for label, word in zip(labels, words):
        losses = f"{word.difference:>+8.3f} {word.loss_a:>8.3f} {word.loss_b:>8.3f}"
        lines.append(f"{label:<{width}} {losses} {word.occurrences:>8,} {word.train_count:>10,}")
    return lines if words else [*lines, "(none)"]


def _add_text(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text", required=True, metavar="PATH", help="folder with parts, or one file")
    parser.add_argument(
        "--part", choices=("train", "valid", "test"), help="part of a folder (default: test, else valid)"
    )


def _part(arguments: argparse.Namespace) -> str:
    """Return the part of ``--part``, else test, else valid with a warning."""
    from flair_nas.language_model.saved import is_one_file
    from flair_nas.language_model.text.sources import find_text

    if arguments.part is not None:
        return str(arguments.part)
    parts = () if is_one_file(arguments.text) else find_text(arguments.text).parts
    if parts and "test" not in parts and "valid" in parts:
        log.warning("%s has no test part; valid is used", arguments.text)
        return "valid"
    return "test"
