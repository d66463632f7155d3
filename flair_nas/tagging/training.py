"""Training of taggers: several seeds, an exact checkpoint after each epoch, figures and predictions in one folder.

OUT/config.yaml      the resolved settings          OUT/model.pt        the model of the seed best on dev; the same as
                                                                        data: model.safetensors, config.json
OUT/metrics.json     mean and deviation, each seed  OUT/seed-N/         checkpoint.pt, checkpoint-previous.pt, model.pt,
                                                                        history.jsonl, metrics.json, dev.txt, test.txt
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import statistics
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import flair
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer
from torch.utils.data import ConcatDataset, Dataset

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype.order import is_order
from flair_nas.library.layer_spec import advised_learning_rate, parse_layer_spec, warn_of_risks
from flair_nas.nn.layers import is_named
from flair_nas.runs.checkpoints import is_whole, read_checkpoint
from flair_nas.runs.device import check_precision
from flair_nas.runs.epoch_record import describe_cost
from flair_nas.runs.memory import check_fits
from flair_nas.runs.run import Run, open_run, read_figures
from flair_nas.settings.fields import check_config
from flair_nas.settings.optimizer import ADAM_RATE, OPTIMIZERS
from flair_nas.settings.resolve import read_run_settings
from flair_nas.storage.files import copy_whole
from flair_nas.storage.paths import user_path
from flair_nas.tagging.calibration import FIGURES
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import TaggingCorpus, check_labelled, describe_corpus, load_corpus_of, sentences_of
from flair_nas.tagging.data.embeddings import FORMER_CHAR, build_embeddings
from flair_nas.tagging.data.frozen_embeddings import keep_frozen
from flair_nas.tagging.distillation.soft_loss import use_soft_loss
from flair_nas.tagging.distillation.targets import read_targets
from flair_nas.tagging.epochs import EpochPlugin
from flair_nas.tagging.evaluation import TaggerEvaluation, evaluate_tagger
from flair_nas.tagging.patches.span_scores import use_probabilities
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.quiet import flair_device, logs_from, no_flair_bars, no_flair_remarks
from flair_nas.tagging.registration import Width
from flair_nas.tagging.safe_file import NotDataError, forget_safe, write_safe

log = logging.getLogger("flair_nas")

_LONG_FOR_CRF = 4000 * 32  # tokens times sentences: with 25 tags 0.4 GB a step, with 100 tags 5 GB


def train_taggers(
    config: TaggerConfig,
    out: str | Path,
    *,
    corpus: TaggingCorpus | None = None,
    parts: Sequence[str] = ("dev", "test"),
    progress: bool | None = None,
    verbose: bool = False,
    as_data: bool = True,
) -> dict[str, Any]:
    """Train a tagger for each seed and write everything to one folder.

    Args:
        config: the settings.
        out: a folder that is new or empty, or that of an unfinished call with the same settings. Training resumes from
            the last checkpoint, with the same result as if it had never stopped. `epochs` and `seeds` may grow. If
            fewer are asked for, those that are done stay.
        corpus: the result of `load_corpus` for these settings, if it is loaded already.
        parts: labelled parts of the corpus, dev and test, that the best model is evaluated on at the end.
        progress: draw progress bars on standard error. Default: only if that is a terminal.
        verbose: show the log of Flair's trainer.
        as_data: also write the best model as ``model.safetensors`` and ``config.json``, if its embeddings allow it.

    Returns:
        The content of ``metrics.json``: F1 on dev and test in percent, per seed and as mean and standard deviation, or
        accuracy for labels of tokens (``measure`` names the metric). The metric on dev picks the best epoch; the loss
        on dev breaks ties. Also parameters, seconds per epoch, and the peak memory of the process so far.
        ``model_seed`` is the seed best on dev, and ``model.pt`` is its model.

    Raises:
        FlairNasError: settings, corpus, embeddings or folder cannot be used, or a loss or gradient is NaN.
        RunStopped: after Ctrl-C, with a checkpoint on disk.
        OSError: the folder cannot be written, or the disk is full; the last good checkpoint is kept.

    Example:
        >>> from flair_nas import TaggerConfig, train_taggers
        >>> sizes = {"hidden_size": 16, "batch_size": 64, "epochs": 1}
        >>> config = TaggerConfig(corpus="demo", embeddings=["one-hot"], device="cpu", **sizes)
        >>> metrics = train_taggers(config, "runs/first", progress=False)
        >>> metrics["seeds"][0]["epochs"]
        1
    """
    check_config(config, TaggerConfig)
    rnn = rnn_type(config)  # fails on an unknown name before the corpus is loaded
    if corpus is not None and not isinstance(corpus, TaggingCorpus):
        raise FlairNasError(f"corpus must be what flair_nas.load_corpus returns, got {brief(corpus)}")
    config = _with_learning_rate(config, user_path(out))
    sizes = f"hidden_size {config.hidden_size}" + (f", layers {config.layers}" if config.layers > 1 else "")
    with flair_device(config.device), logs_from(logging.NOTSET if verbose else logging.WARNING):
        check_precision(config.precision, flair.device)
        check_fits(
            lambda: SequenceTagger.RNN(rnn, config.layers, config.hidden_size, True, config.input_size(1)),
            flair.device,
            sizes,
        )
        with open_run(out, config, may_change=config.may_change, command="flair-nas tag train") as run:
            bars = sys.stderr.isatty() if progress is None else progress
            metrics = _train_seeds(run, with_taught(corpus or load_corpus_of(config), config), parts, bars)
            if as_data:
                write_as_data(run.folder)
            return metrics


def _with_learning_rate(config: TaggerConfig, out: Path) -> TaggerConfig:
    """Return the settings with their own learning rate, or that of the run in the folder, or the usual one."""
    if config.learning_rate is not None:
        return config
    with contextlib.suppress(FlairNasError):  # `open_run` says what is wrong with the folder
        if (written := out / "config.yaml").exists():
            return dataclasses.replace(config, learning_rate=read_run_settings(written, TaggerConfig).learning_rate)
    is_sgd = config.optimizer == "sgd"
    rate, what = (advised_learning_rate(config.rnn), brief(config.rnn)) if is_sgd else (ADAM_RATE, config.optimizer)
    log.info("learning rate %g, as advised for %s (--learning-rate sets another)", rate, what)
    return dataclasses.replace(config, learning_rate=rate)


def _train_seeds(run: Run[TaggerConfig], corpus: TaggingCorpus, parts: Sequence[str], progress: bool) -> dict[str, Any]:
    """Train the unfinished seeds, copy the best model, and return the metrics."""
    run.config = config = _extend_settings(run)
    check_labelled(corpus)
    describe_corpus(corpus)
    _warn_of_length(config, corpus)
    warn_of_risks(config.rnn, config.optimizer)
    runs = {seed: run.part(f"seed-{seed}") for seed in config.seeds}
    done = {seed: _read_result(runs[seed], corpus, seed, parts) for seed in config.seeds}
    former = "char" in config.embeddings and any(map(_has_former_char, runs.values()))
    specs = [FORMER_CHAR if former and spec == "char" else spec for spec in config.embeddings]
    results = [done[seed] or _train_seed(runs[seed], corpus, seed, parts, progress, specs) for seed in config.seeds]
    if all(done.values()):
        epochs = ", ".join(str(result["epochs"]) for result in results)
        hint = "more --epochs or --seeds extend it"
        log.warning("%s is finished (epochs: %s), so nothing was trained; %s", run.folder, epochs, hint)
    metrics = summarise(config, results)
    for seed, part in runs.items():
        if done[seed] and seed != metrics["model_seed"] and not is_whole(part.folder / "model.pt"):
            log.warning("%s is missing or damaged; the figures of seed %d stay", part.folder / "model.pt", seed)
    if without := [str(result["seed"]) for result in results if result["dev_f1"] == 0]:
        seeds = f"seed{'s' * (len(without) > 1)} {', '.join(without)}"
        log.warning("%s found nothing on dev in any epoch: train longer, or with another learning rate", seeds)
    _place_best(run, runs[metrics["model_seed"]])
    run.accept()  # not yet done if all seeds were finished
    return run.finish(metrics)


def _has_former_char(run: Run[TaggerConfig]) -> bool:
    """Return True if the checkpoint of a seed has the weights of Flair's `CharacterEmbeddings`."""
    for path in (run.checkpoints.newest, run.checkpoints.previous):
        with contextlib.suppress(FlairNasError, KeyError):  # damaged, or not there
            return any(".char_rnn." in name for name in read_checkpoint(path)["model"])
    return False


def _extend_settings(run: Run[TaggerConfig]) -> TaggerConfig:
    """Merge in the folder's seeds and epochs, so that a run only grows."""
    config: TaggerConfig = run.config
    written = run.folder / "config.yaml"
    if not written.exists():
        return config
    before = read_run_settings(written, TaggerConfig)
    is_longer = set(before.seeds) <= set(config.seeds)
    parts = {seed: run.part(f"seed-{seed}") for seed in (config.seeds if is_longer else [*before.seeds, *config.seeds])}
    seeds = [seed for seed in parts if seed in config.seeds or (parts[seed].folder / "metrics.json").exists()]
    figures = [parts[seed].figures("epochs", "learning_rate_exhausted") for seed in seeds]
    is_finished = all(row and (row["learning_rate_exhausted"] or row["epochs"] >= before.epochs) for row in figures)
    epochs = max([config.epochs, before.epochs if is_finished else 0, *(row["epochs"] for row in figures if row)])
    return dataclasses.replace(config, seeds=seeds, epochs=epochs)


def with_taught(corpus: TaggingCorpus, config: TaggerConfig) -> TaggingCorpus:
    """Return a corpus with the sentences that teachers have labelled, unless it has them."""
    if config.taught is None or corpus.taught is not None:
        return corpus
    return corpus._replace(taught=read_targets(config.taught))


def _warn_of_length(config: TaggerConfig, corpus: TaggingCorpus) -> None:
    """Warn of a sentence so long that Flair's CRF takes gigabytes. It pads the whole batch to that length."""
    longest = max(len(sentence) for sentence in sentences_of(training_part(config, corpus)))
    if config.crf and longest * config.batch_size > _LONG_FOR_CRF:
        log.warning(
            "train has a sentence of %d tokens, to which Flair's CRF pads its whole batch; part it (an empty line ends "
            "it), or use --batch-size 1 or --no-crf",
            longest,
        )


def rnn_type(config: TaggerConfig) -> str:
    """Return Flair's `rnn_type` for `rnn` and `init_range`. Flair's own types are in capitals."""
    if is_named(config.rnn):
        return config.rnn if is_order(config.rnn) else config.rnn.upper()
    numbers = parse_layer_spec(config.rnn)[1]
    if config.init_range is None or "init_range" in numbers:
        return config.rnn
    return f"{config.rnn},init_range={config.init_range}"


def build_tagger(config: TaggerConfig, corpus: TaggingCorpus) -> SequenceTagger:
    """Return an untrained tagger with random weights and the labels of the training part."""
    with no_flair_bars():
        learned = Corpus(train=_gold_part(config, corpus.corpus), sample_missing_splits=False)
        dictionary = learned.make_label_dictionary(label_type=corpus.label_type, add_unk=False)
    reproject = config.reproject
    tagger = SequenceTagger(
        embeddings=build_embeddings(config.embeddings, corpus.corpus),
        tag_dictionary=dictionary,
        tag_type=corpus.label_type,
        rnn_type=rnn_type(config),
        hidden_size=config.hidden_size,
        rnn_layers=config.layers,
        use_crf=config.crf,
        reproject_embeddings=cast(bool, reproject if isinstance(reproject, bool) else Width(reproject)),
        dropout=config.dropout,
        word_dropout=config.word_dropout,
        locked_dropout=config.locked_dropout,
    )
    if corpus.taught is not None and config.taught_weight:
        use_soft_loss(tagger, corpus.taught, config.taught_weight)
    return use_probabilities(tagger)  # decodes faster, too


def summarise(config: TaggerConfig, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the metrics of all seeds, with mean and sample standard deviation (None for one seed)."""
    summary: dict[str, Any] = {}
    for name in ("dev_f1", "test_f1", "seconds_per_epoch", "cpu_seconds_per_epoch", "epochs"):
        if values := [result[name] for result in results if result[name] is not None]:
            deviation = statistics.stdev(values) if len(values) > 1 else None
            summary[name] = {"mean": statistics.mean(values), "sd": deviation}
    shared = {name: results[0][name] for name in ("measure", "parameters", "rnn_parameters")}
    peak = max(result["peak_memory_mb"] for result in results)
    # dev cannot rank seeds that have learned from it
    best = results[0] if config.train_with_dev else max(results, key=lambda result: result["dev_f1"])
    return {"corpus": config.corpus, "rnn": config.rnn, **shared, "peak_memory_mb": peak, "summary": summary,
            "model_seed": best["seed"], "seeds": results}  # fmt: skip


def _read_result(
    run: Run[TaggerConfig], corpus: TaggingCorpus, seed: int, parts: Sequence[str]
) -> dict[str, Any] | None:
    """Return the result of a seed, or None if epochs or parts are missing."""
    result = run.figures("seed", "corpus_sha256", "learning_rate_exhausted", "scored")
    if result is None or result["seed"] != seed or not set(parts) <= set(result["scored"]):
        return None  # the checkpoint restores damaged figures
    before = {"corpus": result["corpus_sha256"], "labelled sentences": result.get("taught_sha256")}
    run.check_same(before, {"corpus": corpus.sha256, "labelled sentences": corpus.taught and corpus.taught.sha256})
    return result if result["learning_rate_exhausted"] or result["epochs"] >= run.config.epochs else None


def _place_best(run: Run[TaggerConfig], best: Run[TaggerConfig]) -> None:
    """Copy the model of the best seed to the run's folder; if it is lost, copy it back from there."""
    own, placed = best.folder / "model.pt", run.folder / "model.pt"
    if is_whole(own):
        place_model(own, run.folder)
        return
    is_placed = False
    with contextlib.suppress(OSError, ValueError):
        before = read_figures(run.folder / "metrics.json")
        figures = best.figures("seed")
        is_placed = bool(figures and figures in before["seeds"] and figures["seed"] == before["model_seed"])
    if not (is_placed and is_whole(placed)):
        remedy = f"give it back, or delete {best.folder} to train this seed again"
        raise FlairNasError(f"{own} is missing or damaged, and this seed is the best on dev; {remedy}")
    log.warning("%s was missing or damaged, so it is copied from %s", own, placed)
    copy_whole(placed, own)


def place_model(model: Path, folder: Path) -> None:
    """Copy a tagger to the ``model.pt`` of a folder."""
    forget_safe(folder)  # it may hold another tagger, and `load_tagger` would prefer it
    (folder / FIGURES).unlink(missing_ok=True)
    copy_whole(model, folder / "model.pt")


def write_as_data(folder: Path) -> None:
    """Write a folder's ``model.pt`` as ``model.safetensors`` and ``config.json``, if its embeddings allow it."""
    try:
        write_safe(load_tagger(folder / "model.pt"), folder)
    except NotDataError as error:
        log.info("model.pt is written, and no model.safetensors: %s", error)


def _train_seed(
    run: Run[TaggerConfig], corpus: TaggingCorpus, seed: int, parts: Sequence[str], progress: bool, specs: list[str]
) -> dict[str, Any]:
    """Train one seed with embeddings by their specs, or go on with it, and return its result."""
    config: TaggerConfig = run.config
    flair.set_seed(seed)
    tagger = build_tagger(dataclasses.replace(config, embeddings=specs), corpus)
    if config.embeddings_storage_mode == "cpu":
        on_disk = None if config.storage is None else config.storage == "disk"
        keep_frozen(tagger.embeddings, corpus, on_disk=on_disk, progress=progress)
    plugin = EpochPlugin(run, tagger, corpus, seed, progress)
    start = run.resume(plugin.restore) or 0
    run.accept()
    if start < config.epochs:
        _run_trainer(plugin, start)
        if plugin.interrupted:
            raise KeyboardInterrupt(f"stopped in epoch {plugin.epoch + 1} of {config.epochs} (seed {seed})")
    best = load_tagger(run.folder / "model.pt")
    scores: dict[str, TaggerEvaluation] = {}
    for part in parts:
        sentences = sentences_of(getattr(corpus.corpus, part))
        if any(sentence.get_labels(corpus.label_type) for sentence in sentences):
            storage, file = config.embeddings_storage_mode, run.folder / f"{part}.txt"
            scores[part] = evaluate_tagger(best, sentences, corpus.label_type, storage=storage, predictions=file)
    result = {
        "seed": seed,
        "measure": "micro F1" if best.predict_spans else "accuracy",
        "dev_f1": scores["dev"].f1 if "dev" in scores else plugin.best[0],
        "test_f1": scores["test"].f1 if "test" in scores else None,
        "best_epoch": plugin.best_epoch,
        "epochs": plugin.epoch,
        "learning_rate_exhausted": plugin.exhausted,
        **describe_cost(tagger, tagger.rnn, run.history),
        "corpus_sha256": corpus.sha256,
        "taught_sha256": corpus.taught and corpus.taught.sha256,
        "scored": list(parts),
        "reports": {part: score.report for part, score in scores.items()},
    }
    return run.finish(result)


def _gold_part(config: TaggerConfig, corpus: Corpus[Sentence]) -> Dataset[Sentence]:
    """Return the sentences with gold labels that a tagger learns from."""
    return ConcatDataset([corpus.train, corpus.dev]) if config.train_with_dev else corpus.train  # type: ignore[list-item, return-value]


def training_part(config: TaggerConfig, corpus: TaggingCorpus) -> Dataset[Sentence]:
    """Return all sentences that a tagger learns from."""
    gold = _gold_part(config, corpus.corpus)
    if corpus.taught is None or not config.taught_weight:
        return gold
    taught = FlairDatapointDataset([sentence for sentence, _ in corpus.taught.sentences])
    return ConcatDataset([gold, taught])


def _run_trainer(plugin: EpochPlugin, start: int) -> None:
    """Run Flair's trainer with a plugin that evaluates, anneals and saves.

    Flair's own state cannot be resumed exactly.
    """
    config = plugin.config
    train_only = Corpus(train=training_part(config, plugin.tagging_corpus), sample_missing_splits=False)
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_flair_remarks("Corpus: ", "Test data not provided"))  # the trainer sees one part only
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", category=FutureWarning, module="flair.trainers")  # of Flair's own calls
        if config.precision == "bfloat16":  # a surrounding autocast would keep its cached weights
            stack.callback(torch.set_autocast_gpu_dtype, torch.get_autocast_gpu_dtype())
            torch.set_autocast_gpu_dtype(torch.bfloat16)
        ModelTrainer(plugin.tagger, train_only).train_custom(
            plugin.run.folder,
            learning_rate=cast(float, config.learning_rate),
            mini_batch_size=config.batch_size,
            max_epochs=config.epochs,
            optimizer=getattr(torch.optim, OPTIMIZERS[config.optimizer]),
            max_grad_norm=config.clip,
            embeddings_storage_mode=config.embeddings_storage_mode,
            use_amp=config.precision == "bfloat16",
            epoch=start,
            use_final_model_for_eval=True,
            save_final_model=False,
            create_file_logs=False,
            create_loss_file=False,
            plugins=[plugin],
        )
