"""flair-nas tag: train, evaluate and use sequence taggers."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.cli.flags import (
    add_action,
    add_hub_flags,
    add_run_flags,
    add_setting_flags,
    check_batch_size,
    repository_of,
    settings_of_run,
)
from flair_nas.cli.log import quiet_flair
from flair_nas.errors import FlairNasError, brief
from flair_nas.library.hugging_face import PREFIX
from flair_nas.library.layer_spec import parse_rnn
from flair_nas.runs.signals import exit_on_signal
from flair_nas.settings.yaml_files import read_mapping
from flair_nas.storage.files import check_writable
from flair_nas.storage.paths import how_to_convert, no_model, typed, user_path
from flair_nas.tagging.config import FLAIR_TYPES, OF_THE_CORPUS, TaggerConfig

if TYPE_CHECKING:
    from flair.models import SequenceTagger

TRAIN_EXAMPLES = """examples:
  flair-nas tag train --corpus demo --rnn i-darts-ptb --embeddings one-hot char --epochs 20 --out runs/demo
  flair-nas tag train --corpus my_data/ --columns text=0,ner=1 --embeddings word:vectors.gensim char --out runs/mine
  flair-nas tag train --preset i-darts-ner --seeds 1,2,3 --out runs/conll03
  flair-nas tag train --resume runs/conll03

Settings come from the defaults, then --preset, then --config, then flags; the later wins.
Options of a searched cell follow its name: --rnn i-darts-ptb,recurrent_dropout=0.25,init_range=0.06"""

PREDICT_EXAMPLES = """examples:
  flair-nas tag predict --model runs/demo "Dr Maria Lindqvist works at Northgate Rail in Leeds."
  flair-nas tag predict --model runs/demo --text notes.txt --format columns > notes.tagged
  cat notes.txt | flair-nas tag predict --model runs/demo --format jsonl"""


PUBLISH_EXAMPLES = """example:
  flair-nas tag publish --model runs/mine --repository owner/name --license mit --language en --out hub/"""

MODEL_HELP = (
    "the folder of a training run, hf://owner/name, or a model file; Flair's files (.pt) are pickles, and reading one "
    "runs the code in it: take them only from where you trust"
)


def add_parser(verbs: Any) -> None:
    """Adds the verb with its sub-verbs to the command's parser."""
    tag = verbs.add_parser("tag", help="train, evaluate and use sequence taggers", description=__doc__)
    actions = tag.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_train(actions)
    _add_evaluate(actions)
    _add_predict(actions)
    _add_publish(actions)


# --- train ---


def _add_train(actions: Any) -> None:
    parser = add_action(actions, "train", "Train a tagger with a searched cell, an LSTM or a GRU.", TRAIN_EXAMPLES)
    parser.set_defaults(run=train)
    add_run_flags(parser, "tagging", "folder for model, settings, figures and predictions")
    add_setting_flags(parser, TaggerConfig)


def train(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas tag train``."""
    message = "--out DIR is needed: the folder for model, settings, figures and predictions"
    config, out = settings_of_run(arguments, TaggerConfig, "tagging", message)
    if config.rnn.upper() not in FLAIR_TYPES:
        parse_rnn(config.rnn, FLAIR_TYPES, "--rnn")  # before Flair is loaded, which takes seconds
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.training import train_taggers

    progress = not arguments.quiet and sys.stderr.isatty()
    metrics = train_taggers(config, out, progress=progress, verbose=arguments.verbose)
    print(format_metrics(metrics))
    for line in what_next(metrics, config, out):
        print(line)
    return 0


def what_next(metrics: dict[str, Any], config: TaggerConfig, out: Path) -> list[str]:
    """What the figures of a run want its user to know and to do.

    Args:
        metrics: what `train_taggers` returned.
        config: its settings.
        out: its folder.
    """
    longer = f"flair-nas tag train --resume {typed(out)} --epochs {2 * config.epochs}"
    knows_no_words = set(config.embeddings) <= {*OF_THE_CORPUS}
    if not any(result["dev_f1"] for result in metrics["seeds"]):
        # of warnings that scrolled by and a table of zeros, nobody should go on to tagging
        what = [f"train longer ({longer})", "with another learning rate", "on more sentences"]
        if knows_no_words:
            what.insert(0, "take --embeddings that know words before training (a new --out)")
        useless = "nothing was found on dev in any epoch, so this tagger is of no use yet"
        return [useless, f"next: {', '.join(what[:-1])}, or {what[-1]}"]
    lines = []
    was_last = all(result["best_epoch"] == result["epochs"] == config.epochs for result in metrics["seeds"])
    if was_last and not config.train_with_dev:
        better = "; --embeddings that know words before training may find more, too" if knows_no_words else ""
        lines.append(f"the best epoch was the last one, so more epochs may find more: {longer}{better}")
    if len(metrics["seeds"]) == 1 and metrics["measure"] == "micro F1":
        more = f"flair-nas tag train --resume {typed(out)} --seeds {_more_seeds(config.seeds[0])}"
        lines.append(f"one seed: differences of several points are chance; how large they are: {more}")
    why = "the first" if config.train_with_dev else "the best on dev"
    of_seed = f" (of seed {metrics['model_seed']}, {why})" if len(metrics["seeds"]) > 1 else ""
    parts = "dev.txt, test.txt" if "test_f1" in metrics["summary"] else "dev.txt"
    lines.append(
        f"model: {out / 'model.pt'}{of_seed}; figures: {out / 'metrics.json'}; predictions: {out}/seed-*/{parts}"
    )
    return [*lines, f'next: flair-nas tag predict --model {typed(out)} "A sentence to tag."']


def _more_seeds(seed: int) -> str:
    return ",".join(map(str, dict.fromkeys([seed, 1, 2, 3])))


def format_metrics(metrics: dict[str, Any]) -> str:
    """The figures of a run as a table.

    Args:
        metrics: what `train_taggers` returned.
    """

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    name_of = {"micro F1": "F1", "accuracy": "acc."}[metrics["measure"]]
    lines = [f"{'seed':>8} {'dev ' + name_of:>8} {'test ' + name_of:>9} {'epochs':>7} {'best':>5} {'s/epoch':>8}"]
    for result in metrics["seeds"]:
        lines.append(
            f"{result['seed']:>8} {figure(result['dev_f1']):>8} {figure(result['test_f1']):>9} "
            f"{result['epochs']:>7} {result['best_epoch']:>5} {result['seconds_per_epoch']:>8.1f}"
        )
    summary = metrics["summary"]
    for name, label in (("dev_f1", f"dev {name_of}"), ("test_f1", f"test {name_of}")):
        if name in summary:
            deviation = f" ± {summary[name]['sd']:.2f}" if summary[name]["sd"] is not None else ""
            lines.append(f"{label}: {summary[name]['mean']:.2f}{deviation}")
    lines.append(
        f"{metrics['parameters']:,} trained parameters, {metrics['rnn_parameters']:,} of them in the recurrent layer; "
        f"peak memory {metrics['peak_memory_mb']:,.0f} MB"
    )
    return "\n".join(lines)


# --- evaluate ---


def _add_evaluate(actions: Any) -> None:
    parser = add_action(
        actions,
        "evaluate",
        "Entity F1 of a tagger, by type, counted by seqeval and by Flair (accuracy for token labels).",
    )
    parser.set_defaults(run=evaluate)
    parser.add_argument("--model", required=True, metavar="PATH", help=MODEL_HELP)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--corpus", help="wnut_17, conll_03, conll_2000, demo, or a folder of column files (that of the run)"
    )
    what.add_argument("--file", help="one column file")
    parser.add_argument(
        "--part", choices=("train", "dev", "test"), default="test", help="part of the corpus (default: test)"
    )
    parser.add_argument("--label-type", help="gold label (default: the tagger's own)")
    parser.add_argument(
        "--columns", help="columns of the files, from 0: text=0,ner=3 (those of the run; else the last holds the label)"
    )
    parser.add_argument(
        "--delimiter",
        "--column-delimiter",
        metavar="TEXT",
        help="what parts columns (that of the run; see tag train)",
    )
    parser.add_argument(
        "--comment", "--comment-symbol", metavar="TEXT", help="how comments begin (as in the run; see tag train)"
    )
    parser.add_argument("--data-root", metavar="DIR", help="folder with the named corpora (Flair's cache)")
    parser.add_argument("--predictions", metavar="FILE", help="write token, gold tag, predicted tag")
    _add_batch_size(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--device", help="cpu, cuda or cuda:N")


def evaluate(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas tag evaluate``."""
    if arguments.predictions is not None:
        _check_predictions(user_path(arguments.predictions), user_path(arguments.model))  # not after minutes of work
    _check_model(arguments.model)
    of_run = _settings_of(user_path(arguments.model))
    corpus_of_run = arguments.corpus is None and arguments.file is None
    if corpus_of_run:
        if not isinstance(of_run.get("corpus"), str):
            what = f"{arguments.model} has no settings of a tagger's training beside it, which would tell its corpus"
            raise FlairNasError(f"--corpus or --file is needed: {what}")
        arguments.corpus = of_run["corpus"]
        arguments.data_root = arguments.data_root or of_run.get("data_root")
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.data.column_files import parse_columns, read_column_file
        from flair_nas.tagging.data.corpora import NAMES, load_corpus
        from flair_nas.tagging.evaluation import evaluate_tagger

    tagger = _load_tagger(arguments)
    names = ("columns", "delimiter", "comment")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    of_own = of_run and arguments.corpus not in NAMES  # files of one's own are laid out as in training
    layout = TaggerConfig(**{**({name: of_run.get(name) for name in names} if of_own else {}), **given})
    columns = parse_columns(layout.columns) if layout.columns else None
    how: dict[str, Any] = {"delimiter": layout.delimiter, "comment": layout.comment}
    label_type = arguments.label_type or tagger.label_type
    try:
        if arguments.file is not None:
            sentences = read_column_file(arguments.file, columns, label_type, **how)
        else:
            corpus = load_corpus(
                arguments.corpus, label_type=label_type, columns=columns, **how, data_root=arguments.data_root
            ).corpus
    except FlairNasError as error:
        notes = []
        if of_own and (kept := ", ".join(f"{name} {of_run[name]}" for name in names if of_run.get(name))) and not given:
            notes.append(f"{kept}, as the tagger was trained; --columns says others")
        if arguments.corpus not in (None, *NAMES):
            notes.append("as the run has it; --corpus says another" if corpus_of_run else "a single file: --file")
        raise FlairNasError(f"{error} ({'; '.join(notes)})" if notes else str(error)) from None
    if arguments.corpus is not None:
        part = getattr(corpus, arguments.part)
        if not part:
            there = ", ".join(name for name in ("train", "dev", "test") if getattr(corpus, name))
            raise FlairNasError(f"corpus {arguments.corpus} has no {arguments.part} part; --part takes {there}")
        sentences = list(part)
    evaluation = evaluate_tagger(
        tagger, sentences, label_type, batch_size=arguments.batch_size, predictions=arguments.predictions
    )
    if not arguments.json:
        what, count = arguments.file or f"{arguments.part} of {arguments.corpus}", len(sentences)
        print(f"{what}: {count:,} sentence{'s' * (count != 1)}")
    print(json.dumps(evaluation.report, indent=2) if arguments.json else evaluation.text)
    return 0


def _add_batch_size(parser: argparse.ArgumentParser) -> None:
    flags = ("--batch-size", "--mini-batch-size")
    parser.add_argument(*flags, type=int, default=32, metavar="N", help="sentences per batch (default: 32)")


# --- publish ---


def _add_publish(actions: Any) -> None:
    parser = add_action(actions, "publish", "Write the folder of a tagger for the Hugging Face Hub.", PUBLISH_EXAMPLES)
    parser.set_defaults(run=publish)
    parser.add_argument("--model", metavar="DIR", required=True, help="the folder of a finished training run of yours")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for model, card and genotype")
    add_hub_flags(parser)
    parser.add_argument("--language", metavar="CODE", help="of the text, as en (left out without)")


def publish(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas tag publish``."""
    repository = repository_of(arguments)
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.publishing import publish_tagger

    run, out = user_path(arguments.model), user_path(arguments.out)
    files, fault = publish_tagger(run, out, repository, arguments.license, arguments.language)
    for path in files:
        print(path)
    if fault:
        print(f"as a pickle alone: {fault}")
    print(f"models hold words of their training text; look through the card, then: hf upload {repository} {typed(out)}")
    return 0


# --- predict ---


def _add_predict(actions: Any) -> None:
    parser = add_action(actions, "predict", "Tag text, one sentence a line.", PREDICT_EXAMPLES)
    parser.set_defaults(run=predict)
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences (standard input without any)")
    parser.add_argument("--model", required=True, metavar="PATH", help=MODEL_HELP)
    parser.add_argument("--text", metavar="FILE", help="file with one sentence a line; - for standard input")
    parser.add_argument("--format", choices=("text", "columns", "jsonl"), default="text", help="default: text")
    parser.add_argument("--tokenized", action="store_true", help="words are separated by blanks or tabs already")
    _add_batch_size(parser)
    parser.add_argument("--device", help="cpu, cuda or cuda:N")


def _check_predictions(path: Path, model: Path) -> None:
    check_writable(path)
    if path.exists() and any(file.exists() and path.samefile(file) for file in (model, model / "model.pt")):
        raise FlairNasError(f"--predictions {path} is the model itself; name another file")


def predict(arguments: argparse.Namespace) -> int:
    """Runs ``flair-nas tag predict``."""
    _check_model(arguments.model)
    if arguments.sentences and arguments.text:
        raise FlairNasError("give sentences as arguments or with --text, not both")
    if arguments.text not in (None, "-") and not (path := user_path(arguments.text)).is_file():
        raise FlairNasError(f"{path}: this is no file of text" if path.exists() else f"{path}: no such file")
    for number, sentence in enumerate(arguments.sentences, start=1):
        if os.path.isfile(sentence):
            raise FlairNasError(
                f"{brief(sentence)} is a file: --text {typed(sentence)} tags what is in it; a sentence that reads like "
                "that can be given on standard input"
            )
        if any("\ud800" <= character <= "\udfff" for character in sentence):  # bytes that are not UTF-8
            raise FlairNasError(f"sentence {number}, {brief(sentence)}: not UTF-8")
    with exit_on_signal():
        quiet_flair(arguments)
        from flair_nas.tagging.prediction import FORMATS, tag_lines

    tagger = _load_tagger(arguments)
    lines = iter(arguments.sentences) if arguments.sentences else _lines(arguments.text)
    lines, given = itertools.tee(lines)
    written = FORMATS[arguments.format]
    by_hand = not arguments.sentences and arguments.text in (None, "-") and sys.stdin.isatty()
    batch_size = 1 if by_hand else arguments.batch_size  # one who types wants the answer to each line
    if by_hand and not arguments.quiet:
        print("type one sentence a line; Ctrl-D ends", file=sys.stderr)
    found, read = 0, 0
    tagged = tag_lines(tagger, lines, batch_size=batch_size, tokenized=arguments.tokenized)
    for line, sentence in zip(given, tagged):
        print(written(line, sentence, tagger.label_type), flush=not arguments.text)
        if sentence is not None:
            found, read = found + len(sentence.get_labels(tagger.label_type)), read + 1
    if read and not found and not arguments.quiet:
        print(
            f"flair-nas: nothing found in {read:,} sentence{'s' * (read > 1)}; `flair-nas tag evaluate` says how "
            "much this tagger finds in labelled ones",
            file=sys.stderr,
        )
    return 0


def _lines(path: str | None) -> Iterator[str]:
    name = "standard input" if path in (None, "-") else path
    with sys.stdin.buffer if path is None or path == "-" else open(user_path(path), "rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise FlairNasError(
                    f"{name}, line {number}: not UTF-8 ({error.reason}); {how_to_convert(line)}"
                ) from None


# --- shared ---


def _check_model(name: str) -> None:
    """Refuses a path that leads nowhere, before Flair is loaded, which takes seconds."""
    if not name.startswith(PREFIX) and not user_path(name).exists():
        raise FlairNasError(no_model(user_path(name)))


def _settings_of(model: Path) -> dict[str, Any]:
    """What the settings of a run say, training or selection, whose folder, file or seed this is; empty without."""
    folder = model.parent if model.is_file() else model
    folder = folder.parent if folder.name.startswith("seed-") else folder
    settings = folder / "config.yaml"
    return read_mapping(settings) if settings.exists() else {}


def _load_tagger(arguments: argparse.Namespace) -> SequenceTagger:
    check_batch_size(arguments.batch_size)
    from flair_nas.tagging.prediction import load_tagger
    from flair_nas.tagging.quiet import set_flair_device

    set_flair_device(arguments.device)
    return load_tagger(arguments.model)
