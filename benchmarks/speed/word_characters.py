"""Embeddings of an epoch by Flair's `CharacterEmbeddings` and by `CharacterRNNEmbeddings`, in turn.

    python -m benchmarks.speed.word_characters [--corpora CORPUS ...] [--data-root DATASETS] [--out FILE]

Each batch of 8 sentences of train is embedded, and a gradient is computed, by both, one after the other, in one thread.
Figures are CPU seconds of the whole epoch, and the ratio is that of these.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import flair
import torch
from flair.data import Sentence
from flair.embeddings import TokenEmbeddings

from benchmarks.json_lines import RESULTS, as_table, lines_in, put
from flair_nas import build_embeddings, load_corpus
from flair_nas.tagging.data.corpora import sentences_of
from flair_nas.tagging.data.embeddings import FORMER_CHAR

KEPT = RESULTS / "beside_flair.jsonl"
PART = "characters of words"
BATCH = 8


def time_step(embeddings: TokenEmbeddings, batch: list[Sentence]) -> float:
    """Embed a batch, compute a gradient, and return the CPU seconds."""
    started = time.process_time()
    embeddings.embed(batch)
    vectors = torch.stack([token.get_embedding([embeddings.name]) for sentence in batch for token in sentence])
    vectors.sum().backward()
    seconds = time.process_time() - started
    embeddings.zero_grad()
    for sentence in batch:
        sentence.clear_embeddings()
    return seconds


def measure(name: str, data_root: str | None = None, limit: int | None = None) -> dict[str, Any]:
    """Measure the seconds of both for an epoch of a corpus, or for its first sentences."""
    torch.set_num_threads(1)
    flair.set_seed(1)
    data = load_corpus(name, data_root=data_root)
    ways = [build_embeddings([spec], data.corpus).embeddings[0] for spec in (FORMER_CHAR, "char")]
    sentences = sentences_of(data.corpus.train)[:limit]
    seconds = [0.0, 0.0]
    for way in ways:  # the first step warms up
        time_step(way.train(), sentences[:BATCH])
    for start in range(0, len(sentences), BATCH):
        for number in sorted((0, 1), reverse=start // BATCH % 2 == 1):
            seconds[number] += time_step(ways[number], sentences[start : start + BATCH])
    size = {"sentences": len(sentences), "words": sum(map(len, sentences))}
    times = {"flair": seconds[0], "flair_nas": seconds[1], "ratio": seconds[0] / seconds[1]}
    return {"part": PART, "corpus": Path(name).name, **size, **times}


def table() -> str:
    """Return the kept figures as a table."""
    rows = [["corpus", "sentences", "words", "CPU s an epoch, Flair", "`char`", "times as fast", "processor"]]
    for line in lines_in(KEPT):
        if line["part"] == PART:
            sizes = [f"{line[key]:,}" for key in ("sentences", "words")]
            times = [f"{line['flair']:.1f}", f"{line['flair_nas']:.2f}", f"{line['ratio']:.0f}"]
            rows.append([line["corpus"], *sizes, *times, line["processor"]])
    return as_table(rows)


def main() -> None:
    """Measure corpora in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", nargs="+", default=["demo"], metavar="CORPUS", help="as for tag train")
    parser.add_argument("--data-root", help="folder with the named corpora")
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    arguments = parser.parse_args()
    for corpus in arguments.corpora:
        put(measure(corpus, arguments.data_root), arguments.out)


if __name__ == "__main__":
    main()
