"""flair-nas tag: train, evaluate and use sequence taggers."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.cli.flags import (
    Actions,
    add_action,
    add_hub_flags,
    add_output_flags,
    add_run_flags,
    count,
    device,
    probability,
    settings_of_run,
)
from flair_nas.cli.log import format_size, quiet_flair, shows_progress
from flair_nas.errors import FlairNasError, brief
from flair_nas.library.downloads import PREFIX
from flair_nas.library.layer_spec import check_layer_spec
from flair_nas.runs.signals import exit_on_signal
from flair_nas.settings.fields import get_kinds
from flair_nas.settings.resolve import read_mapping
from flair_nas.storage.files import check_writable
from flair_nas.storage.paths import check_model, explain_not_utf8, typed, user_path
from flair_nas.tagging.config import NAMES, OF_THE_CORPUS, TaggerConfig, check_corpus
from flair_nas.tagging.data.column_rows import ColumnFormat

if TYPE_CHECKING:
    from flair.data import Sentence

TRAIN_EXAMPLES = """examples:
  flair-nas tag train --preset few-sentences --corpus demo --out runs/demo
  flair-nas tag train --corpus my_data/ --columns text=0,ner=1 --embeddings word:vectors.gensim char --out runs/mine
  flair-nas tag train --preset small-ner --corpus my_data/ --out runs/small
  flair-nas tag train --preset i-darts-ner --seeds 1,2,3 --out runs/conll03
  flair-nas tag train --resume runs/conll03

Options of a searched cell follow its name: --rnn small-relu-tanh,recurrent_dropout=0.25,init_range=0.06"""

PREDICT_EXAMPLES = """examples:
  flair-nas tag predict --model runs/demo "Dr Maria Lindqvist works at Northgate Rail in Leeds."
  flair-nas tag predict --model runs/demo --text notes.txt --format columns > notes.tagged
  cat notes.txt | flair-nas tag predict --model runs/demo --format jsonl"""

EXPORT_EXAMPLES = """examples:
  flair-nas tag export --model runs/mine --out exported/
  flair-nas tag export --model runs/mine --out exported/ --int8 --check my_corpus/"""

PUBLISH_EXAMPLES = """example:
  flair-nas tag publish --model runs/mine --repository owner/name --license mit --language en --out hub/"""

_MAX_BYTES = 1 << 20  # of text that are read at once

MODEL_HELP = (
    "folder of a training run, hf://owner/name, or model file; a .pt file is a pickle and can run code: load only "
    "files that you trust"
)


def add_parser(verbs: Actions) -> None:
    """Add the verb and its actions."""
    tag = verbs.add_parser("tag", help="train, evaluate and use sequence taggers", description=__doc__)
    actions = tag.add_subparsers(title="actions", metavar="ACTION", required=True)

    parser = add_action(actions, "train", train, TRAIN_EXAMPLES)
    add_run_flags(parser, TaggerConfig, "tagging", "folder for model, settings, figures and predictions")

    parser = add_action(actions, "evaluate", evaluate)
    parser.add_argument("--model", required=True, metavar="PATH", help=MODEL_HELP)
    data = parser.add_mutually_exclusive_group()
    corpus = "wnut_17, conll_03, conll_2000, demo, or a folder of column files"
    data.add_argument("--corpus", help=f"{corpus} (default: the corpus of the run)")
    data.add_argument("--file", help="one column file")
    parser.add_argument("--part", choices=("train", "dev", "test"), default="test", help="(default: test)")
    parser.add_argument("--label-type", help="gold label (default: that of the tagger)")
    default = "(default: as in the run)"
    parser.add_argument("--columns", help="as text=0,ner=3 (default: as in the run, else the last holds the label)")
    parser.add_argument("--delimiter", "--column-delimiter", metavar="TEXT", help=f"column separator {default}")
    parser.add_argument("--comment", "--comment-symbol", metavar="TEXT", help=f"start of a comment {default}")
    parser.add_argument("--data-root", metavar="DIR", help="folder of the named corpora (default: Flair's cache)")
    parser.add_argument("--predictions", metavar="FILE", help="write token, gold tag and predicted tag to this file")
    help = "fit a temperature on dev, store it in the model, and tell how reliable scores are before and after"
    parser.add_argument("--calibration", action="store_true", help=help)
    _add_computing(parser)
    add_output_flags(parser)

    parser = add_action(actions, "predict", predict, PREDICT_EXAMPLES)
    help = "sentences (default: standard input, which is answered whenever no more lines are waiting)"
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help=help)
    parser.add_argument("--model", required=True, metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--text", metavar="FILE", help="file with one sentence per line; - for standard input")
    parser.add_argument("--format", choices=("text", "columns", "jsonl"), default="text", help="default: text")
    parser.add_argument("--tokenized", action="store_true", help="split words at blanks and tabs only")
    help = "leave out labels whose probability is below P (tag evaluate --calibration makes it reliable)"
    parser.add_argument("--at-least", type=probability, default=0.0, metavar="P", help=help)
    _add_computing(parser)
    parser.add_argument("--device", type=device, help="cpu, cuda or cuda:N")

    parser = add_action(actions, "export", export, EXPORT_EXAMPLES)
    parser.add_argument("--model", required=True, metavar="PATH", help=MODEL_HELP)
    help = "folder for the exported tagger; an earlier export in it is replaced"
    parser.add_argument("--out", metavar="DIR", required=True, help=help)
    parser.add_argument("--int8", action="store_true", help="matrices in 8 bits: smaller, and often faster")
    help = f"compare labels and F1 with the tagger's on the dev part of a corpus: {corpus}"
    parser.add_argument("--check", metavar="CORPUS", help=help)
    parser.add_argument("--data-root", metavar="DIR", help="folder of the named corpora (default: Flair's cache)")
    parser.add_argument("--opset", type=count, default=17, metavar="N", help="version of ONNX (default: 17)")

    parser = add_action(actions, "publish", publish, PUBLISH_EXAMPLES)
    parser.add_argument("--model", metavar="DIR", required=True, help="folder of a finished training run of yours")
    parser.add_argument("--out", metavar="DIR", required=True, help="new folder for model, card and genotype")
    add_hub_flags(parser)
    parser.add_argument("--language", metavar="CODE", help="language of the text, such as en")


def train(arguments: argparse.Namespace) -> int:
    """Train a tagger with a searched cell, an LSTM or another layer."""
    config, out = settings_of_run(arguments, TaggerConfig, "tagging")
    check_corpus(config.corpus)
    check_layer_spec(config.rnn, name="--rnn")  # before Flair is loaded, which takes seconds
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.training import train_taggers

    metrics = train_taggers(config, out, progress=shows_progress(arguments), verbose=arguments.verbose)
    print(format_metrics(metrics), *suggest_next(metrics, config, out), sep="\n")
    return 0


def suggest_next(metrics: dict[str, Any], config: TaggerConfig, out: Path) -> list[str]:
    """Return the conclusions from the figures of a run, the files, and the next command."""
    longer = f"flair-nas tag train --resume {typed(out)} --epochs {2 * config.epochs}"
    knows_no_words = set(config.embeddings) <= {*OF_THE_CORPUS}
    if not any(result["dev_f1"] for result in metrics["seeds"]):
        first = "take --embeddings that know words before training (a new --out), " if knows_no_words else ""
        useless = "nothing was found on dev in any epoch, so this tagger is of no use yet"
        return [useless, f"next: {first}train longer ({longer}), with another learning rate, or on more sentences"]
    lines = []
    best_was_last = all(result["best_epoch"] == result["epochs"] == config.epochs for result in metrics["seeds"])
    if best_was_last and not config.train_with_dev:
        better = "; --embeddings that know words before training may find more, too" if knows_no_words else ""
        lines.append(f"the best epoch was the last one, so more epochs may find more: {longer}{better}")
    if len(metrics["seeds"]) == 1 and metrics["measure"] == "micro F1":
        seeds = ",".join(map(str, dict.fromkeys([config.seeds[0], 1, 2, 3])))
        more = f"flair-nas tag train --resume {typed(out)} --seeds {seeds}"
        lines.append(f"one seed: differences of several points can be chance; to measure them: {more}")
    why = "the first" if config.train_with_dev else "the best on dev"
    of_seed = f" (of seed {metrics['model_seed']}, {why})" if len(metrics["seeds"]) > 1 else ""
    parts = "dev.txt, test.txt" if "test_f1" in metrics["summary"] else "dev.txt"
    lines.append(
        f"model: {out / 'model.pt'}{of_seed}; figures: {out / 'metrics.json'}; predictions: {out}/seed-*/{parts}"
    )
    return [*lines, f'next: flair-nas tag predict --model {typed(out)} "A sentence to tag."']


def format_metrics(metrics: dict[str, Any]) -> str:
    """Return the figures of a run as a table."""
    metric = {"micro F1": "F1", "accuracy": "acc."}[metrics["measure"]]
    lines = [f"{'seed':>8} {'dev ' + metric:>8} {'test ' + metric:>9} {'epochs':>7} {'best':>5} {'s/epoch':>8}"]
    for result in metrics["seeds"]:
        dev, test = ("-" if result[name] is None else f"{result[name]:.2f}" for name in ("dev_f1", "test_f1"))
        lines.append(
            f"{result['seed']:>8} {dev:>8} {test:>9} {result['epochs']:>7} {result['best_epoch']:>5} "
            f"{result['seconds_per_epoch']:>8.1f}"
        )
    for part in ("dev", "test"):
        if row := metrics["summary"].get(f"{part}_f1"):
            deviation = f" ± {row['sd']:.2f}" if row["sd"] is not None else ""
            lines.append(f"{part} {metric}: {row['mean']:.2f}{deviation}")
    return "\n".join([*lines, format_size(metrics, "trained parameters")])


def evaluate(arguments: argparse.Namespace) -> int:
    """Count entity F1 of a tagger by type, with seqeval and with Flair (accuracy for token labels)."""
    if arguments.predictions is not None:
        check_writable(user_path(arguments.predictions))
    _check_model(arguments.model)
    if arguments.calibration and arguments.file is not None:
        raise FlairNasError("--calibration needs the dev part of a corpus; give --corpus in place of --file")
    if arguments.calibration and arguments.part == "dev":
        raise FlairNasError("--calibration fits the temperature on dev, so dev cannot measure it; give another --part")
    if arguments.calibration and arguments.model.startswith(PREFIX):
        raise FlairNasError(f"--calibration writes to the model, and {arguments.model} is not on this machine")
    settings = _read_run_settings(user_path(arguments.model))
    corpus_of_run = arguments.corpus is None and arguments.file is None
    if corpus_of_run:
        if not isinstance(settings.get("corpus"), str):
            missing = f"{arguments.model} has no settings of a tagger's training beside it, which would name its corpus"
            raise FlairNasError(f"--corpus or --file is needed: {missing}")
        arguments.corpus = settings["corpus"]
        arguments.data_root = arguments.data_root or settings.get("data_root")
    if arguments.predictions is not None:
        _check_predictions(user_path(arguments.predictions), arguments)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.runs.device import autocast
        from flair_nas.tagging.calibration import calibrate_tagger, describe_calibration, save_calibrated
        from flair_nas.tagging.evaluation import evaluate_tagger
        from flair_nas.tagging.prediction import load_tagger
        from flair_nas.tagging.quiet import flair_device

    with flair_device(arguments.device) as device:
        tagger = load_tagger(arguments.model)
        label_type = arguments.label_type or tagger.label_type
        sentences = _read_sentences(arguments, settings, label_type, corpus_of_run)
        with autocast(arguments.precision, device):
            evaluation = evaluate_tagger(
                tagger, sentences, label_type, batch_size=arguments.batch_size, predictions=arguments.predictions
            )
            if arguments.calibration:
                for_dev = argparse.Namespace(**{**vars(arguments), "part": "dev"})
                dev = _read_sentences(for_dev, settings, label_type, corpus_of_run)
                found = calibrate_tagger(tagger, dev, sentences, label_type)
    figures = evaluation.report
    if arguments.calibration:
        figures |= {"calibration": {"corpus": arguments.corpus, "part": arguments.part, **found}}
        save_calibrated(tagger, user_path(arguments.model), figures["calibration"])
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return 0
    source, size = arguments.file or f"{arguments.part} of {arguments.corpus}", len(sentences)
    print(f"{source}: {size:,} sentence{'s' * (size != 1)}")
    print(evaluation.text)
    if arguments.calibration:
        print(
            describe_calibration(found), f"{arguments.model} now has these scores; its labels are as before", sep="\n"
        )
    return 0


def _read_sentences(
    arguments: argparse.Namespace, settings: dict[str, Any], label_type: str, corpus_of_run: bool
) -> list[Sentence]:
    """Read the sentences of ``--file``, or of a part of ``--corpus``. By default their format is that of the run."""
    from flair_nas.tagging.data.column_files import parse_columns, read_column_file
    from flair_nas.tagging.data.corpora import load_corpus_of

    names = ("columns", *get_kinds(ColumnFormat))
    flags = {name: value for name in names if (value := vars(arguments).get(name))}
    from_run = {name: settings.get(name) for name in names} if arguments.corpus not in NAMES and settings else {}
    source = {"corpus": arguments.corpus or "demo", "label_type": label_type, "data_root": arguments.data_root}
    layout = TaggerConfig(**{**source, **from_run, **flags})
    columns = parse_columns(layout.columns) if layout.columns else None
    try:
        if arguments.file is not None:
            return read_column_file(arguments.file, columns, label_type, layout)
        corpus = load_corpus_of(layout).corpus
    except FlairNasError as error:
        notes = []
        if not flags and (kept := ", ".join(f"{name} {value}" for name, value in from_run.items() if value)):
            notes.append(f"{kept}, as the tagger was trained; --columns says others")
        if corpus_of_run and arguments.corpus not in NAMES:
            notes.append("as the run has it; --corpus says another")
        raise FlairNasError(f"{error} ({'; '.join(notes)})" if notes else str(error)) from None
    part = getattr(corpus, arguments.part)
    if not part:
        parts = ", ".join(name for name in ("train", "dev", "test") if getattr(corpus, name))
        raise FlairNasError(f"corpus {arguments.corpus} has no {arguments.part} part; --part takes {parts}")
    return list(part)


def _check_predictions(path: Path, arguments: argparse.Namespace) -> None:
    """Raise an error if predictions would replace the model or a file of the corpus."""
    model = user_path(arguments.model)
    inputs = [model, model / "model.pt"]
    for folder in map(user_path, filter(None, (arguments.file, arguments.corpus))):
        inputs += folder.iterdir() if folder.is_dir() else [folder]
    if path.exists() and any(file.exists() and path.samefile(file) for file in inputs):
        raise FlairNasError(f"--predictions {path} is the model or a file of the corpus; name another file")


def _read_run_settings(model: Path) -> dict[str, Any]:
    """Return the settings of the training or tuning of a model, or no settings."""
    folder = model.parent if model.is_file() else model
    folder = folder.parent if folder.name.startswith("seed-") else folder
    settings = folder / "config.yaml"
    return read_mapping(settings) if settings.exists() else {}


def export(arguments: argparse.Namespace) -> int:
    """Write a tagger for onnxruntime, which needs neither PyTorch nor Flair."""
    _check_model(arguments.model)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.onnx import check_export, export_tagger, quantize_tagger
        from flair_nas.tagging.prediction import load_tagger

    tagger, out = load_tagger(arguments.model), user_path(arguments.out)
    sentences: list[Sentence] = []
    if arguments.check is not None:
        chosen = argparse.Namespace(**vars(arguments), file=None, corpus=arguments.check, part="dev")
        settings = _read_run_settings(user_path(arguments.model))
        sentences = _read_sentences(chosen, settings, tagger.label_type, False)
    left_out = export_tagger(tagger, out, opset=arguments.opset)
    if left_out and sentences:
        raise FlairNasError(f"{out} is written, but --check cannot run it: {', '.join(left_out)} could not be exported")
    if sentences:
        print(check_export(tagger, out, sentences, arguments.int8))
    elif arguments.int8:
        quantize_tagger(out)
    print(f'in Python: flair_nas.onnx.Tagger({str(arguments.out)!r}).predict(["A sentence to tag."])')
    return 0


def publish(arguments: argparse.Namespace) -> int:
    """Write the folder of a tagger for the Hugging Face Hub."""
    check_model(arguments.model)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.publishing import publish_tagger

    run, out = user_path(arguments.model), user_path(arguments.out)
    files, fault = publish_tagger(run, out, arguments.repository, arguments.license, arguments.language)
    print(*files, sep="\n")
    if fault:
        print(f"as a pickle alone: {fault}")
    upload = f"hf upload {arguments.repository} {typed(out)}"
    print(f"models hold words of their training text; look through the card, then: {upload}")
    return 0


def predict(arguments: argparse.Namespace) -> int:
    """Tag text, one sentence per line."""
    _check_model(arguments.model)
    _check_sentences(arguments)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.runs.device import autocast
        from flair_nas.tagging.prediction import FORMATS, drop_unlikely, load_tagger, tag_lines
        from flair_nas.tagging.quiet import flair_device

    form = FORMATS[arguments.format]
    num_labels = num_sentences = 0
    with flair_device(arguments.device) as device:
        tagger = load_tagger(arguments.model)
        if not arguments.sentences and arguments.text in (None, "-") and sys.stdin.isatty() and not arguments.quiet:
            print("type one sentence per line; Ctrl-D ends", file=sys.stderr)
        with autocast(arguments.precision, device):
            for lines in [arguments.sentences] if arguments.sentences else _read_lines(arguments.text):
                tagged = tag_lines(tagger, lines, batch_size=arguments.batch_size, tokenized=arguments.tokenized)
                for line, sentence in zip(lines, tagged):
                    drop_unlikely(sentence, tagger.label_type, arguments.at_least)
                    print(form(line, sentence, tagger.label_type), flush=not arguments.text)
                    if sentence is not None:
                        num_labels += len(sentence.get_labels(tagger.label_type))
                        num_sentences += 1
    if num_sentences and not num_labels and not arguments.quiet:
        found = f"nothing found in {num_sentences:,} sentence{'s' * (num_sentences > 1)}"
        found += f" with a probability of {arguments.at_least:g} or more" * (arguments.at_least > 0)
        print(f"flair-nas: {found}; `flair-nas tag evaluate` says how much this tagger finds", file=sys.stderr)
    return 0


def _check_sentences(arguments: argparse.Namespace) -> None:
    """Refuse sentences beside --text, file names in place of sentences, and text that is not UTF-8."""
    from flair_nas.runtime.words import check_characters

    text = arguments.text
    if arguments.sentences and text:
        raise FlairNasError("give sentences as arguments or with --text, not both")
    if text not in (None, "-") and not (path := user_path(text)).is_file():
        raise FlairNasError(f"{path}: this is no file of text" if path.exists() else f"{path}: no such file")
    for sentence in check_characters(arguments.sentences):
        if os.path.isfile(sentence):
            raise FlairNasError(f"{brief(sentence)} is a file: --text {typed(sentence)} tags its lines")


def _read_lines(path: str | None) -> Iterator[list[str]]:
    """Yield the lines that wait, as soon as there are some. A program that asks line by line gets its answers."""
    source = "standard input" if path in (None, "-") else user_path(path or "")
    number, rest, knows_valid = 1, b"", False
    with sys.stdin.buffer if isinstance(source, str) else open(source, "rb") as stream:
        assert isinstance(stream, io.BufferedIOBase)
        while data := stream.read1(_MAX_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            yield _decode(lines, source, number, knows_valid)
            number += len(lines)
            knows_valid = knows_valid or not all(line.isascii() for line in lines)
        if rest:
            yield _decode([rest], source, number, knows_valid)


def _decode(lines: Sequence[bytes], source: str | Path, first: int, knows_valid: bool) -> list[str]:
    """Decode lines from UTF-8. The error names the broken ones."""
    try:
        return [line.decode("utf-8").rstrip("\r") for line in lines]
    except UnicodeDecodeError:
        error = explain_not_utf8(source, [b"\n".join(lines)], first, knows_valid=knows_valid)
        raise FlairNasError(error) from None


def _add_computing(parser: argparse.ArgumentParser) -> None:
    flags = ("--batch-size", "--mini-batch-size")
    parser.add_argument(*flags, type=count, default=32, metavar="N", help="sentences per batch (default: 32)")
    help = "float32, or bfloat16 by autocast: faster where the processor has it, and a few labels differ"
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help=help)


def _check_model(name: str) -> None:
    if not name.startswith(PREFIX):
        check_model(name)
