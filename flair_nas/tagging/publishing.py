"""The folder of a tagger that is published on the Hugging Face Hub, from the folder of its training run."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.card import (
    PICTURE,
    cell_section,
    front_matter,
    origin_section,
    prepare_folder,
    without_folders,
    write_picture,
)
from flair_nas.library.hugging_face import FILE
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.runs.run import read_figures
from flair_nas.settings.resolve import read_run_settings
from flair_nas.settings.yaml_files import to_yaml
from flair_nas.storage.files import copy_whole, write_text
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import NAMES
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.safe_file import CONFIG, WEIGHTS, NotData, write_safe

log = logging.getLogger("flair_nas")

PICKLE = "pytorch_model.bin"
"""What Flair's `SequenceTagger.load("owner/name")` fetches."""

_FILES = (PICKLE, WEIGHTS, CONFIG, FILE, PICTURE, "README.md")


def publish_tagger(
    run: Path, out: Path, repository: str, license: str | None, language: str | None
) -> tuple[list[Path], str]:
    """Writes the folder that is uploaded as it is.

    Args:
        run: the folder of a finished training run of one's own; its model is a pickle, and is read.
        out: a folder that is new, empty or of an earlier call.
        repository: ``owner/name`` that it will have there.
        license: as the Hub spells it; None leaves it out.
        language: of the text, as ``en``; None leaves it out.

    Returns:
        The files, and why there is no form without pickle (empty if there is).

    Raises:
        FlairNasError: it is no finished run, or the folder holds something else.
        OSError: it cannot be written.
    """
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
    except NotData as error:
        fault = str(error)
    layer: Any = getattr(tagger, "rnn", None)
    genotype: Genotype | None = layer.genotype if isinstance(layer, SearchedRNN) else None
    if genotype is not None:
        genotype = dataclasses.replace(genotype, origin=without_folders(genotype.origin))
    if genotype is not None:
        genotype.save(out / FILE)
        write_picture(genotype, out / PICTURE)
    cell = ""
    if genotype is not None:
        origin = f"Where it is from:\n\n{origin_section(genotype.origin)}\n"
        cell = f"## The cell\n\n{cell_section(genotype, PICTURE)}\n{origin}"
    write_text(out / "README.md", _card(config, metrics, repository, license, language, cell, fault))
    if places := [embedding for embedding in config.embeddings if embedding != without_folders(embedding)]:
        log.warning(
            "the model itself names its embeddings by the paths that they were read from, for everybody to see (%s); "
            "trained with relative paths, it would name these",
            ", ".join(places),
        )
    return [path for name in _FILES if (path := out / name).exists()], fault


def _card(
    config: TaggerConfig,
    metrics: dict[str, Any],
    repository: str,
    license: str | None,
    language: str | None,
    cell: str,
    fault: str,
) -> str:
    from huggingface_hub import EvalResult

    name = repository.partition("/")[2]
    config = _without_places(config)
    corpus = config.corpus
    kind, title = ("f1", "F1 (strict, micro)") if metrics["measure"] == "micro F1" else ("accuracy", "Accuracy")
    of_model = next(result for result in metrics["seeds"] if result["seed"] == metrics["model_seed"])
    results = [
        EvalResult(
            task_type="token-classification",
            dataset_type=corpus,
            dataset_name=corpus,
            dataset_split=part,
            metric_type=kind,
            metric_name=title,
            metric_value=round(of_model[f"{part}_f1"] / 100, 4),
        )
        for part in ("dev", "test")
        if of_model[f"{part}_f1"] is not None
    ]
    tags = ["flair", "flair-nas", "token-classification", "sequence-tagger-model"]
    head = front_matter(license, tags=tags, language=language, model_name=name, eval_results=results)
    rows = "\n".join(
        f"| {result['seed']}{' (this model)' if result is of_model else ''} | {_figure(result['dev_f1'])} "
        f"| {_figure(result['test_f1'])} | {result['best_epoch']} of {result['epochs']} |"
        for result in metrics["seeds"]
    )
    data = (
        f'Without running code of a pickle: `flair_nas.load_tagger("hf://{repository}")` reads `{WEIGHTS}`.'
        if not fault
        else f"It is a pickle alone, as its embeddings cannot be written as data ({fault})."
    )
    chance = "One seed: differences of several points are chance." if len(metrics["seeds"]) == 1 else ""
    return f"""{head}
# {name}

A sequence tagger for [Flair](https://github.com/flairNLP/flair), trained by flair-nas on {corpus}; its recurrent layer
is `{config.rnn}`.

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

{title} in percent, counted by seqeval. {metrics["parameters"]:,} trained parameters, {metrics["rnn_parameters"]:,} of
them in the recurrent layer. {chance}

{cell}
## Settings

```yaml
{to_yaml(config)}```
"""


def _without_places(config: TaggerConfig) -> TaggerConfig:
    """The settings without folders of the machine that it was trained on, which are nobody's business."""
    corpus = config.corpus if config.corpus in NAMES else Path(config.corpus).resolve().name
    embeddings = without_folders(config.embeddings)
    return dataclasses.replace(
        config, corpus=corpus, rnn=without_folders(config.rnn), embeddings=embeddings, data_root=None
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
