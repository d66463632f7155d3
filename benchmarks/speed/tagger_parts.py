"""Speed of a tagger by part, beside the same tagger with LSTMs in place of its searched layers.

    python -m benchmarks.speed.tagger_parts RUN [--text SENTENCES] [--sentences 500] [--batch-size 32]

The table has milliseconds a sentence: each embedding, the recurrent layer, the CRF, the rest. Beside each stands the
time with LSTMs of the same sizes, also in character models. Without --text the sentences are those of the demo text.
Set OMP_NUM_THREADS to the number of threads.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from flair.embeddings import PooledFlairEmbeddings, TokenEmbeddings
from flair.models import LanguageModel, SequenceTagger
from torch import nn

from benchmarks.json_lines import as_table
from flair_nas import load_tagger, resource_path, tag_lines
from flair_nas.nn.recurrent_layer import RecurrentLayer
from flair_nas.tagging.data.frozen_embeddings import members_of

ROUNDS = 3
LAYER, DECODING, REST = "recurrent layer", "CRF decoding", "tokens, tags and the rest"


class Speed(NamedTuple):
    """The time of tagging, medians over rounds."""

    sentences: int
    seconds: dict[str, float]  # by part
    lstm_seconds: dict[str, float] | None  # with LSTMs of the same sizes; None if the tagger has no searched layer


def measure_tagger(tagger: SequenceTagger, lines: Sequence[str], batch_size: int = 32) -> Speed:
    """Measure the seconds that each part of a tagger takes on some lines; the tagger is the same afterwards.

    The tagger and the one with LSTMs take turns. The first round does not count. LSTMs with random weights find other
    spans than the tagger, and spans take time; so the rest counts for both as it is with the tagger's own.
    """
    searched = any(isinstance(getattr(module, "rnn", None), RecurrentLayer) for module in tagger.modules())
    rounds: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    sentences = 0
    with _pooled_words_kept(tagger):
        for number in range(ROUNDS + 1):
            for with_lstms in (False, True) if searched else (False,):
                with lstms_in_place(tagger) if with_lstms else contextlib.nullcontext():
                    sentences, seconds = _time_round(tagger, lines, batch_size)
                if number:
                    rounds[with_lstms].append(seconds)
    medians = {kind: _take_medians(found) for kind, found in rounds.items() if found}
    own, other = medians[False], medians.get(True)
    return Speed(sentences, own, other and {**other, REST: own[REST]})


@contextlib.contextmanager
def _pooled_words_kept(tagger: SequenceTagger) -> Iterator[None]:
    """Have pooled embeddings forget the words that they met within the block."""
    pooled = [module for module in tagger.modules() if isinstance(module, PooledFlairEmbeddings)]
    held = [(member.word_embeddings.copy(), member.word_count.copy()) for member in pooled]
    try:
        yield
    finally:
        for member, (vectors, counts) in zip(pooled, held, strict=True):
            member.word_embeddings, member.word_count = vectors, counts


def _take_medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {part: statistics.median(seconds[part] for seconds in rounds) for part in rounds[0]}


def _time_round(tagger: SequenceTagger, lines: Sequence[str], batch_size: int) -> tuple[int, dict[str, float]]:
    """Tag all lines once; return the number of sentences and the seconds by part."""
    seconds: dict[str, float] = defaultdict(float)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[part] += time.perf_counter() - start
            return result

        return run

    with contextlib.ExitStack() as stack:
        for name, member in name_members(tagger).items():
            stack.enter_context(mock.patch.object(member, "embed", timed(name, member.embed)))
            seconds[name] = 0.0
        if tagger.use_rnn:
            stack.enter_context(mock.patch.object(tagger.rnn, "forward", timed(LAYER, tagger.rnn.forward)))
        if tagger.use_crf:
            decoder = tagger.viterbi_decoder
            stack.enter_context(mock.patch.object(decoder, "decode", timed(DECODING, decoder.decode)))
        start = time.perf_counter()
        tagged = [*tag_lines(tagger, lines, batch_size=batch_size)]
        whole = time.perf_counter() - start
    seconds[REST] = whole - sum(seconds.values())
    return sum(sentence is not None for sentence in tagged), dict(seconds)


def name_members(tagger: SequenceTagger) -> dict[str, TokenEmbeddings]:
    """Return the embeddings of a tagger by name; those of a stack one by one."""
    members = enumerate(members_of(tagger.embeddings), 1)
    return {f"embeddings {number}, {_shorten(member.name)}": member for number, member in members}


def _shorten(name: str) -> str:
    """Return the name of a file without its folders; those called model keep the last one."""
    parts = name.split("/")
    return "/".join(parts[-2:] if parts[-1].startswith("model.") else parts[-1:])


@contextlib.contextmanager
def lstms_in_place(tagger: SequenceTagger) -> Iterator[None]:
    """Have LSTMs of the same sizes in place of a tagger's searched layers within the block, character models' too."""
    with contextlib.ExitStack() as stack:
        for owner in [*tagger.modules()]:
            layer = getattr(owner, "rnn", None)
            if isinstance(layer, RecurrentLayer):
                stack.enter_context(_replaced(owner, _make_lstm(layer)))
                if isinstance(owner, LanguageModel):
                    stack.enter_context(mock.patch.object(owner, "state_count", 2))
        yield


@contextlib.contextmanager
def _replaced(owner: nn.Module, layer: nn.Module) -> Iterator[None]:
    held, owner.rnn = owner.rnn, layer
    try:
        yield
    finally:
        owner.rnn = held


def _make_lstm(layer: RecurrentLayer) -> nn.LSTM:
    parameter = next(layer.parameters())
    sizes = layer.input_size, layer.hidden_size, layer.num_layers
    lstm = nn.LSTM(*sizes, batch_first=layer.batch_first, bidirectional=layer.bidirectional)
    return lstm.to(parameter.device, parameter.dtype).eval()


def to_table(speed: Speed) -> str:
    """Return milliseconds a sentence by part, and sentences a second, as a table in Markdown."""
    columns = [speed.seconds, *([speed.lstm_seconds] if speed.lstm_seconds else [])]
    whole = [sum(column.values()) for column in columns]
    rows = [["part", "ms a sentence", "share", *(["ms with LSTMs"] if speed.lstm_seconds else [])]]
    for part, seconds in (*speed.seconds.items(), ("all", whole[0])):
        row = [part, f"{1000 * seconds / speed.sentences:.3f}", f"{100 * seconds / whole[0]:.0f} %"]
        if speed.lstm_seconds:
            other = {**speed.lstm_seconds, "all": whole[-1]}[part]
            row.append(f"{1000 * other / speed.sentences:.3f}")
        rows.append(row)
    rates = [f"{speed.sentences / total:,.0f}" for total in whole]
    return as_table([*rows, ["sentences a second", rates[0], "", *rates[1:]]])


def main() -> None:
    """Time a tagger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="RUN", help="folder of a training run, hf://owner/name, or model file")
    parser.add_argument("--text", type=Path, default=resource_path("demo_text", "train.txt"), metavar="FILE")
    parser.add_argument("--sentences", type=int, default=500, metavar="N")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    arguments = parser.parse_args()
    lines = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    print(to_table(measure_tagger(load_tagger(arguments.model), lines, arguments.batch_size)))


if __name__ == "__main__":
    main()
