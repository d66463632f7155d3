"""The task of taggers: jobs on the tags of a corpus."""

from __future__ import annotations

import functools
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flair_nas.experiments.config import Settings
from flair_nas.experiments.counts import count_file, pack_counts
from flair_nas.experiments.worker_setup import time_steps, train_step, train_timed
from flair_nas.nn.layers import LAYER_NAMES
from flair_nas.runs.device import choose_device
from flair_nas.settings.fields import get_kinds
from flair_nas.tagging.config import CorpusSettings, TaggerConfig

LAYERS = LAYER_NAMES
_FEW_LABELS = 100
_TIMED = 32  # sentences, a batch
_STEPS = 4  # batches measured together, as they differ in length
_DATA_SETTINGS = (*get_kinds(CorpusSettings), "taught")


def read(settings: Settings) -> Any:
    """Return the corpus, and check that its dev part has labels."""
    from flair_nas.tagging.data.corpora import check_labelled, load_corpus_of
    from flair_nas.tagging.training import with_taught

    config = TaggerConfig(**{name: settings[name] for name in _DATA_SETTINGS if name in settings})
    data = load_corpus_of(config)
    check_labelled(data)
    return with_taught(data, config)


@functools.lru_cache(maxsize=1)
def _read_once(names: str) -> tuple[Any, list[str]]:
    """Return a corpus, and the embeddings whose vectors its words have, for the next tagger of this process."""
    return read(json.loads(names)), []


def _corpus(settings: Settings) -> Any:
    """Return the corpus; vectors of other embeddings are forgotten, as their names may be the same."""
    from flair_nas.tagging.data.frozen_embeddings import all_sentences

    data, embedded = _read_once(json.dumps({name: settings[name] for name in _DATA_SETTINGS if name in settings}))
    if embedded != settings["embeddings"]:
        for sentence in all_sentences(data):
            sentence.clear_embeddings()
        embedded[:] = settings["embeddings"]
    return data


def seeded(seed: int) -> dict[str, Any]:
    """Return the settings of a seed; all runs read frozen embeddings from one file."""
    return {"seeds": [seed], "storage": "disk"}


def predictor(settings: Settings) -> tuple[Callable[[], object], int]:
    """Return a function that tags a few sentences, and their number; see `TaskModule`."""
    import flair
    from flair.data import Sentence

    from flair_nas.tagging.data.corpora import sentences_of
    from flair_nas.tagging.training import build_tagger

    config, data = TaggerConfig(**settings), _corpus(settings)
    if config.device is not None:
        flair.device = choose_device(config.device)
    tagger, dev = build_tagger(config, data).eval(), sentences_of(data.corpus.dev)
    few = random.Random(1).sample(dev, min(len(dev), _TIMED))
    words = [Sentence([token.text for token in sentence]) for sentence in few]
    predict = functools.partial(tagger.predict, words, label_name="timed", embedding_storage_mode="none")
    return predict, len(words)


def estimate(settings: Settings) -> dict[str, Any]:
    """Time a few batches; see `TaskModule`. Frozen embeddings are computed once, others for each batch."""
    import flair
    from flair.training_utils import store_embeddings

    from flair_nas.tagging.data.corpora import sentences_of
    from flair_nas.tagging.data.frozen_embeddings import all_sentences, frozen_members, is_kept
    from flair_nas.tagging.training import build_tagger, training_part

    config, data = TaggerConfig(**settings), _corpus(settings)
    if config.device is not None:
        flair.device = choose_device(config.device)
    started = time.perf_counter()
    tagger = build_tagger(config, data)
    around = time.perf_counter() - started
    parts = [sentences_of(part) for part in (data.corpus.train, data.corpus.dev)]
    train, dev = (random.Random(1).sample(part, min(len(part), _STEPS * config.batch_size)) for part in parts)
    started = time.perf_counter()
    tagger.embeddings.embed([*train, *dev])
    embedding = (time.perf_counter() - started) / len([*train, *dev]) * len(all_sentences(data))
    batches = [train[start : start + config.batch_size] for start in range(0, len(train), config.batch_size)]
    cycle = itertools.cycle(batches)

    def loss() -> torch.Tensor:
        batch = next(cycle)
        store_embeddings(batch, "cpu")  # drops embeddings that learn
        return tagger.forward_loss(batch)[0]

    step = train_step(tagger, loss, flair.device, config.precision)
    sentences = len(training_part(config, data))  # type: ignore[arg-type]  # a `ConcatDataset`
    training = time_steps(step, len(batches)) * sentences / len(train) * len(batches)
    tagger.eval()
    predict = functools.partial(tagger.predict, dev, 64, label_name="timed", embedding_storage_mode="cpu")
    evaluation = time_steps(predict, 1) * len(parts[1]) / len(dev)
    for sentence in [*train, *dev]:
        sentence.remove_labels("timed")
        sentence.clear_embeddings()
    is_done = not frozen_members(tagger.embeddings) or is_kept(tagger.embeddings, data)
    return {
        "seconds": [training + evaluation],
        "around_seconds": around,
        "embedding_seconds": 0.0 if is_done else embedding,
    }


def shortage(data: Any) -> str:
    """Return the number of labels of dev in words, if it is small."""
    from flair_nas.tagging.data.corpora import sentences_of

    labels = sum(len(s.get_labels(data.label_type)) for s in sentences_of(data.corpus.dev))
    return f"dev has {labels} labels in all" if labels < _FEW_LABELS else ""


def prepare(settings: Settings, data: Any, progress: bool) -> None:
    """Describe the corpus, and embed it for all processes."""
    from flair_nas.tagging.data.corpora import describe_corpus
    from flair_nas.tagging.data.embeddings import build_embeddings
    from flair_nas.tagging.data.frozen_embeddings import keep_frozen

    describe_corpus(data)
    embeddings = build_embeddings(TaggerConfig(**settings).embeddings, data.corpus)
    keep_frozen(embeddings, data, on_disk=True, progress=progress)


def train(settings: Settings, folder: str, score: bool) -> dict[str, Any]:
    """Train a tagger; see `TaskModule`."""
    from flair_nas.tagging.data.corpora import is_token_level, sentences_of
    from flair_nas.tagging.training import train_taggers  # here, as it loads Flair

    config = TaggerConfig(**settings)
    data, place = _corpus(settings), Path(folder) / f"seed-{config.seeds[0]}"

    def train_and_score() -> dict[str, Any]:
        parts = ("dev", "test") if score else ()
        (trained,) = train_taggers(config, folder, corpus=data, parts=parts, progress=False, as_data=False)["seeds"]
        figures = {
            "exhausted": trained["learning_rate_exhausted"],
            "parameters": trained["rnn_parameters"],
            "peak_memory_mb": trained["peak_memory_mb"],
        }
        if not score:
            return figures
        test = trained["test_f1"]
        spans = not is_token_level(sentences_of(data.corpus.train), data.label_type)
        counts = count_file(place / ("dev.txt" if test is None else "test.txt"), spans)
        return figures | {"test": test, "counts": pack_counts(counts)}

    return train_timed(train_and_score, place, "dev_f1")


def place(model: Path, folder: Path) -> None:
    """Copy a tagger, and write it as data, too."""
    from flair_nas.tagging.training import place_model, write_as_data

    place_model(model, folder)
    write_as_data(folder)


def usage(settings: Settings) -> list[str]:
    """Return a script for Flair."""
    from flair_nas.tagging.usage_script import flair_script

    return ["In Flair:", "", "```python", *flair_script(TaggerConfig(**settings)), "```"]
