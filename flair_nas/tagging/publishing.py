"""Folder of a tagger for the Hugging Face Hub, made from its run folder."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.errors import FlairNasError, as_markdown
from flair_nas.library.card import CARD, describe_genotype, without_folders, write_card, write_genotype
from flair_nas.nn.recurrent_layer import RecurrentLayer
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.runs.run import read_figures
from flair_nas.settings.resolve import read_run_settings, to_yaml
from flair_nas.storage.files import whole_file
from flair_nas.storage.folders import whole_files
from flair_nas.storage.paths import user_path
from flair_nas.tagging.config import NAMES, TaggerConfig
from flair_nas.tagging.data.character_models import find_contextual
from flair_nas.tagging.data.frozen_embeddings import members_of
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.registration import FAST_TEXT, SavedText, describe_rnn
from flair_nas.tagging.safe_file import WEIGHTS, NotDataError, write_safe

if TYPE_CHECKING:
    from flair.models import SequenceTagger

PICKLE = "pytorch_model.bin"
"""The file that Flair's `SequenceTagger.load("owner/name")` fetches."""

_LOCAL_NAME = re.compile(r"(\d+-)?(/.*)")
"""A name of embeddings that is a path. In a stack, a number stands before it."""

_CODE = """from flair.data import Sentence
from flair.models import SequenceTagger

tagger = SequenceTagger.load("{}")
sentence = Sentence("A sentence to tag.")
tagger.predict(sentence)
print(sentence.to_tagged_string())"""


def publish_tagger(
    run: Path, out: Path, repository: str, license: str | None, language: str | None
) -> tuple[list[Path], str]:
    """Write the tagger of a finished run to the folder `out`, for upload as ``owner/name``.

    The run's pickle is loaded, so it must be your own. Return the files, and the reason if there is no form without
    pickle (else empty).
    """
    config = read_run_settings(run / "config.yaml", TaggerConfig)
    try:
        metrics = read_figures(run / "metrics.json")
    except (OSError, ValueError) as error:
        raise FlairNasError(f"{run}: is no finished run, its metrics.json cannot be read ({error})") from None
    with whole_files(out, CARD) as part:
        tagger = load_tagger(run / "model.pt")
        sources = [entry.partition(":")[2] for entry in config.embeddings]
        local = {str(user_path(source).parent) for source in sources if source.startswith(("/", "~"))}
        folders = local | _cut_paths(tagger)
        with whole_file(part / PICKLE) as temporary:
            tagger.save(temporary)
        fault, cell = "", dict[str, str]()
        try:
            write_safe(tagger, part)
        except NotDataError as error:
            fault = str(error)
        if tagger.use_rnn and isinstance(layer := tagger.rnn, SearchedRNN):
            cell = describe_genotype(write_genotype(layer.genotype, part))
        _write_card(part, config, metrics, repository, cell, fault, license=license, language=language)
        _check_paths(part, folders)
        names = sorted(file.name for file in part.iterdir())
    return [out / name for name in names], fault


def _cut_paths(tagger: SequenceTagger) -> set[str]:
    """Cut local paths out of a tagger's names of embeddings and provenance of layers; return their folders.

    The order of the names stays, since Flair joins the vectors of a word in this order.
    """
    members, folders = members_of(tagger.embeddings), set[str]()
    for rank, member in enumerate(sorted(members, key=lambda member: str(member.name))):
        named = getattr(member, "context_embeddings", member)  # Flair names pooled embeddings by these
        match = _LOCAL_NAME.fullmatch(str(named.name))
        if match is None or named.name == FAST_TEXT:
            continue
        number, path = match.groups(default="")
        folders.add(str(Path(path).parent))
        named.name = (number or f"/{'~' * (path > FAST_TEXT)}{rank:03}-") + without_folders(path)
    for layer in tagger.modules():
        if isinstance(layer, SearchedRNN):
            layer.genotype = dataclasses.replace(layer.genotype, origin=without_folders(layer.genotype.origin))
    for model in (contextual.lm for contextual in find_contextual(members)):
        if isinstance(model.rnn, RecurrentLayer):
            model.recurrent_type = SavedText(describe_rnn(model.rnn))
    return folders


def _check_paths(out: Path, folders: Collection[str]) -> None:
    """Refuse to publish files that name a folder of this machine. The bytes of tensors are not searched."""
    for file in out.iterdir():
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                content = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".pkl"))
        else:
            content = b"" if file.name == WEIGHTS else file.read_bytes()
        if names := [folder for folder in folders if folder != "/" and f"{folder}/".encode() in content]:
            raise FlairNasError(f"{file.name} would show {names[0]} to everybody; train it by relative paths")


def _write_card(
    out: Path,
    config: TaggerConfig,
    metrics: Mapping[str, Any],
    repository: str,
    cell: Mapping[str, str],
    fault: str,
    **header: Any,
) -> None:
    from huggingface_hub import EvalResult

    corpus = config.corpus if config.corpus in NAMES else Path(config.corpus).resolve().name  # without private paths
    rnn, embeddings = without_folders(config.rnn), without_folders(config.embeddings)
    config = dataclasses.replace(config, corpus=corpus, rnn=rnn, embeddings=embeddings, data_root=None)
    kind, metric = ("f1", "F1 (strict, micro)") if metrics["measure"] == "micro F1" else ("accuracy", "Accuracy")
    best = next(result for result in metrics["seeds"] if result["seed"] == metrics["model_seed"])
    task: dict[str, Any] = {"task_type": "token-classification", "dataset_type": corpus, "dataset_name": corpus}
    task |= {"metric_type": kind, "metric_name": metric}
    results = [
        EvalResult(**task, dataset_split=part, metric_value=round(value / 100, 4))
        for part in ("dev", "test")
        if (value := best[f"{part}_f1"]) is not None
    ]
    about = f"A sequence tagger, trained on {as_markdown(corpus)}, with the recurrent layer `{rnn}`. "
    about += "The code below reads a pickle, which can run code: load it only if you trust its author. "
    if fault:
        about += f"It is a pickle alone, as its embeddings cannot be written as data ({fault})."
    else:
        about += f'Without a pickle: `flair_nas.load_tagger("hf://{repository}")` reads `{WEIGHTS}`.'
    rows = ""
    for result in metrics["seeds"]:
        dev, test = ("-" if value is None else f"{value:.2f}" for value in (result["dev_f1"], result["test_f1"]))
        seed = f"{result['seed']}{' (this model)' if result is best else ''}"
        rows += f"| {seed} | {dev} | {test} | {result['best_epoch']} of {result['epochs']} |\n"
    figures = f"""| seed | dev | test | best epoch |
| --- | --- | --- | --- |
{rows}
{metric} in percent, counted by seqeval. {metrics["parameters"]:,} trained parameters, {metrics["rnn_parameters"]:,} of
them in the recurrent layer. Differences of several points between single seeds are chance."""
    sections = {"Figures": figures, **cell, "Settings": f"```yaml\n{to_yaml(config)}```"}
    header |= {"model_name": repository.partition("/")[2], "eval_results": results}
    tags = ["token-classification", "sequence-tagger-model"]
    write_card(out, repository, about, _CODE.format(repository), sections, tags, **header)
