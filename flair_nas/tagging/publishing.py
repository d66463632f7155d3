"""Folder of a tagger for the Hugging Face Hub, made from the folder of its training run."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, as_markdown
from flair_nas.library.card import (
    CARD,
    PICTURE,
    describe_cell,
    describe_origin,
    prepare_folder,
    without_folders,
    write_card,
    write_genotype,
)
from flair_nas.library.downloads import FILE
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.runs.run import read_figures
from flair_nas.settings.resolve import read_run_settings, to_yaml
from flair_nas.storage.files import copy_whole
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import NAMES
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.safe_file import CONFIG, WEIGHTS, NotDataError, write_safe

log = logging.getLogger("flair_nas")

PICKLE = "pytorch_model.bin"
"""The file that Flair's `SequenceTagger.load("owner/name")` fetches."""

_FILES = (PICKLE, WEIGHTS, CONFIG, FILE, PICTURE, CARD)

_TEMPLATE = """
# {name}

A sequence tagger for [Flair](https://github.com/flairNLP/flair), trained by flair-nas on {corpus}; its recurrent
layer is `{config.rnn}`.

```python
import flair_nas  # has to be installed, as Flair does not know the layer by itself
from flair.data import Sentence
from flair.models import SequenceTagger

tagger = SequenceTagger.load("{repository}")
sentence = Sentence("A sentence to tag.")
tagger.predict(sentence)
print(sentence.to_tagged_string())
```

`SequenceTagger.load` reads a pickle, which can run code: load it only if you trust its author. {data}

## Figures

| seed | dev | test | best epoch |
| --- | --- | --- | --- |
{rows}

{metric} in percent, counted by seqeval. {metrics[parameters]:,} trained parameters, {metrics[rnn_parameters]:,} of
them in the recurrent layer. {chance}

{cell}
## Settings

```yaml
{settings}```
"""


def publish_tagger(
    run: Path, out: Path, repository: str, license: str | None, language: str | None
) -> tuple[list[Path], str]:
    """Write the folder of a tagger, ready for upload.

    Args:
        run: the folder of a finished training run of your own; its model is a pickle, which is loaded.
        out: a folder that is new, empty or of an earlier call.
        repository: ``owner/name`` on the Hub.
        license: as the Hub spells it, or None.
        language: of the text, such as ``en``, or None.

    Returns:
        The files, and why there is no form without pickle (empty if there is).

    Raises:
        FlairNasError: it is no finished run, or the folder holds other files.
        OSError: it cannot be written.
    """
    if not (run / "config.yaml").exists():
        raise FlairNasError(f"{run}: no config.yaml in it; only a run of flair-nas tag train can be published")
    config = read_run_settings(run / "config.yaml", TaggerConfig)
    try:
        metrics = read_figures(run / "metrics.json")
    except (OSError, ValueError) as error:
        raise FlairNasError(f"{run}: is no finished run, its metrics.json cannot be read ({error})") from None
    tagger = load_tagger(run / "model.pt")
    prepare_folder(out, _FILES)
    copy_whole(run / "model.pt", out / PICKLE)
    fault = ""
    try:
        write_safe(tagger, out)
    except NotDataError as error:
        fault = str(error)
    cell = ""
    if isinstance(layer := getattr(tagger, "rnn", None), SearchedRNN):
        genotype = write_genotype(layer.genotype, out)
        origin = describe_origin(genotype.origin)
        cell = f"## The cell\n\n{describe_cell(genotype)}\nWhere it is from:\n\n{origin}\n"
    _write_card(out, config, metrics, repository, cell, fault, license=license, language=language)
    if places := [entry for entry in config.embeddings if entry.partition(":")[2].startswith(("/", "~"))]:
        log.warning(
            "the model itself names its embeddings by the paths that they were read from, for everybody to see (%s); "
            "trained with relative paths, it would name these",
            ", ".join(places),
        )
    return [path for name in _FILES if (path := out / name).exists()], fault


def _write_card(
    out: Path, config: TaggerConfig, metrics: Mapping[str, Any], repository: str, cell: str, fault: str, **header: Any
) -> None:
    from huggingface_hub import EvalResult

    name = repository.partition("/")[2]
    corpus = config.corpus if config.corpus in NAMES else Path(config.corpus).resolve().name  # without private paths
    rnn, embeddings = without_folders(config.rnn), without_folders(config.embeddings)
    config = dataclasses.replace(config, corpus=corpus, rnn=rnn, embeddings=embeddings, data_root=None)
    kind, metric = ("f1", "F1 (strict, micro)") if metrics["measure"] == "micro F1" else ("accuracy", "Accuracy")
    best = next(result for result in metrics["seeds"] if result["seed"] == metrics["model_seed"])
    task: dict[str, Any] = {"task_type": "token-classification", "dataset_type": corpus, "dataset_name": corpus}
    results = [
        EvalResult(**task, dataset_split=part, metric_type=kind, metric_name=metric, metric_value=round(value / 100, 4))
        for part in ("dev", "test")
        if (value := best[f"{part}_f1"]) is not None
    ]
    data = f'Without running code of a pickle: `flair_nas.load_tagger("hf://{repository}")` reads `{WEIGHTS}`.'
    text = _TEMPLATE.format(
        name=name,
        repository=repository,
        corpus=as_markdown(corpus),
        config=config,
        metrics=metrics,
        metric=metric,
        data=f"It is a pickle alone, as its embeddings cannot be written as data ({fault})." if fault else data,
        rows="\n".join(_row(result, result is best) for result in metrics["seeds"]),
        chance="One seed: differences of several points are chance." if len(metrics["seeds"]) == 1 else "",
        cell=cell,
        settings=to_yaml(config),
    )
    tags = ["flair-nas", "token-classification", "sequence-tagger-model"]
    write_card(out, text, tags=tags, model_name=name, eval_results=results, **header)


def _row(result: Mapping[str, Any], is_best: bool) -> str:
    dev, test = ("-" if value is None else f"{value:.2f}" for value in (result["dev_f1"], result["test_f1"]))
    seed = f"{result['seed']}{' (this model)' if is_best else ''}"
    return f"| {seed} | {dev} | {test} | {result['best_epoch']} of {result['epochs']} |"
