"""A tagger's settings as a script for Flair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flair_nas.nn.layers import FLAIR_LAYERS
from flair_nas.settings.fields import changed, get_kinds
from flair_nas.tagging.config import CorpusSettings, TaggerConfig
from flair_nas.tagging.data.column_files import parse_columns
from flair_nas.tagging.training import rnn_type

_OF_TAGGER = ("layers", "dropout", "word_dropout", "locked_dropout", "crf", "reproject")
_OF_TRAINING = ("anneal_factor", "patience", "min_learning_rate", "clip")


def flair_script(config: TaggerConfig) -> list[str]:
    """Return the lines of a script that trains a tagger with Flair's own classes. It leaves out default settings.

    Flair cannot learn from the sentences of teachers, so with these `train_taggers` trains.
    """
    if config.taught is not None and config.taught_weight:
        given = [f"    {argument}," for argument in _arguments(changed(config, *get_kinds(TaggerConfig)))]
        head = "from flair_nas import TaggerConfig, train_taggers"
        return [head, "", "config = TaggerConfig(", *given, ")", 'train_taggers(config, "tagger")']
    places = {k: v for k, v in changed(config, *get_kinds(CorpusSettings)).items() if v and k != "corpus"}
    if "columns" in places:
        places["columns"] = parse_columns(config.columns or "")
    narrow = not isinstance(config.reproject, bool)
    tagger = {
        "rnn_type": rnn_type(config),
        "hidden_size": config.hidden_size,
        **_by_flair_names(changed(config, *_OF_TAGGER)),
    }
    arguments = _arguments(tagger)
    if narrow:
        arguments[-1] = f"reproject_embeddings=Width({config.reproject})"  # it is the last of _OF_TAGGER
    training = {
        "learning_rate": config.learning_rate,
        "mini_batch_size": config.batch_size,
        "max_epochs": config.epochs,
        **_by_flair_names(changed(config, *_OF_TRAINING)),
    }
    is_adamw, warmup = config.optimizer == "adamw", config.warmup_steps
    of_training = [*_arguments(training), *(["optimizer=AdamW"] if is_adamw else [])]
    return [
        *([f"# without the warm-up of {warmup} steps that the figures above have"] if warmup else []),
        *(["# in float32; the figures above are of bfloat16"] if config.precision == "bfloat16" else []),
        *(["import flair_nas  # makes the layer known to Flair"] if tagger["rnn_type"] not in FLAIR_LAYERS else []),
        "from flair.models import SequenceTagger",
        "from flair.trainers import ModelTrainer",
        "from flair_nas import build_embeddings, load_corpus",
        *(["from flair_nas.tagging.registration import Width"] if narrow else []),
        *(["from torch.optim import AdamW"] if is_adamw else []),
        "",
        f"data = load_corpus({', '.join([repr(config.corpus), *_arguments(places)])})",
        "tagger = SequenceTagger(",
        f"    embeddings=build_embeddings({config.embeddings!r}, data.corpus),",
        "    tag_dictionary=data.corpus.make_label_dictionary(data.label_type, add_unk=False),",
        "    tag_type=data.label_type,",
        *(f"    {argument}," for argument in arguments),
        ")",
        f'ModelTrainer(tagger, data.corpus).train("tagger", {", ".join(of_training)})',
    ]


def _by_flair_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {get_kinds(TaggerConfig)[name].flair or name: value for name, value in settings.items()}


def _arguments(named: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in named.items()]
