"""flair-nas charlm: train and evaluate character language models for Flair."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from flair_nas.cli.flags import Actions, add_action, add_output_flags, add_run_flags, count, settings_of_run
from flair_nas.cli.log import format_size, quiet_libraries, shows_progress
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.runs.signals import exit_on_signal
from flair_nas.storage.paths import check_model, typed

TRAIN_EXAMPLES = """examples:
  flair-nas charlm train --preset small --text my_text/ --direction both --out runs/char
  flair-nas charlm train --preset flair --text my_text/ --rnn i-darts-ptb --out runs/large
  flair-nas charlm train --preset small --text my_text/ --out runs/char --estimate
  flair-nas charlm train --resume runs/char --epochs 20
  flair-nas tag train --embeddings flair:runs/char/forward/model.pt flair:runs/char/backward/model.pt --out runs/tagger

A text is a folder with train, valid and test files, or Flair's folder: train/ with any number of files, valid.txt,
test.txt."""

EVALUATE_EXAMPLES = """examples:
  flair-nas charlm evaluate --model runs/char/forward/model.safetensors --text my_text/
  flair-nas charlm evaluate --model news-forward.pt --text more.txt --json

A .pt file is a pickle and can run code: load only files that you trust. A .safetensors file runs none."""


def add_parser(verbs: Actions) -> None:
    """Add the verb and its actions."""
    verb = verbs.add_parser("charlm", help="train and evaluate character models for Flair", description=__doc__)
    actions = verb.add_subparsers(title="actions", metavar="ACTION", required=True)

    parser = add_action(actions, "train", train, TRAIN_EXAMPLES)
    out, estimate = "folder for models, settings, checkpoints and figures", "time a few steps, show the cost, and exit"
    add_run_flags(parser, CharacterModelConfig, "character_model", out, estimate=estimate)
    parser._option_string_actions["--lowercase"].help = argparse.SUPPRESS  # the settings refuse it

    parser = add_action(actions, "evaluate", evaluate, EVALUATE_EXAMPLES)
    parser.add_argument("--model", required=True, metavar="FILE", help="model.safetensors, or a model of Flair's (.pt)")
    parser.add_argument("--text", required=True, help="a text, as for training, or one file")
    parser.add_argument("--part", default="test", help="train, valid or test (default: test)")
    help = "columns of text, which begin without context (default: 10)"
    parser.add_argument("--batch-size", type=count, default=10, metavar="N", help=help)
    add_output_flags(parser)


def train(arguments: argparse.Namespace) -> int:
    """Train character language models of Flair's, forward, backward or both."""
    config, out = settings_of_run(arguments, CharacterModelConfig, "character_model")
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.embedding.character_model.training import measure_cost, train_character_models

    if arguments.estimate:
        print(measure_cost(config, progress=shows_progress(arguments))[1])
        return 0
    for direction, figures in train_character_models(config, out, progress=shows_progress(arguments)).items():
        print(f"{direction}:")
        for part in ("dev", "test"):
            if figures[f"{part}_bits"] is not None:
                print(f"{part}: {_format_score(figures, f'{part}_')}")
        seconds = f"{figures['cpu_seconds_per_epoch']:.1f} s of CPU time per epoch"
        print(f"epochs: {figures['epochs']}, best on dev: {figures['best_epoch']}; {seconds}")
        print(format_size(figures))
        path = out / direction / "model.pt"
        print(f'next: FlairEmbeddings("{path}"), or --embeddings {typed(f"flair:{path}")}')
    return 0


def _format_score(figures: Mapping[str, Any], prefix: str = "") -> str:
    """Format a score, whose keys begin with a prefix."""
    share, characters = figures[f"{prefix}unknown_share"], figures[f"{prefix}characters"]
    unknown = f", {100 * share:.2f} % unknown" if share else ""
    loss = f"loss as Flair counts: {figures[f'{prefix}flair_loss']:.4f}"
    return f"{figures[f'{prefix}bits']:.4f} bits per character ({characters:,} characters{unknown}; {loss})"


def evaluate(arguments: argparse.Namespace) -> int:
    """Compute the bits per character of a model on a text."""
    check_model(arguments.model)
    quiet_libraries(arguments)
    with exit_on_signal():
        from flair_nas.embedding.character_model.evaluation import evaluate_character_model
        from flair_nas.tagging.quiet import flair_device

    with flair_device(arguments.device):
        score = evaluate_character_model(
            arguments.model,
            arguments.text,
            part=arguments.part,
            batch_size=arguments.batch_size,
            progress=shows_progress(arguments),
        )
    if arguments.json:
        print(json.dumps(score._asdict() | {"batch_size": arguments.batch_size}, indent=2))
        return 0
    print(_format_score(score._asdict()))
    return 0
