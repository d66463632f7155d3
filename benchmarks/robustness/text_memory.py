"""Time and memory of turning a text of WikiText-103's size into token ids.

    python -m benchmarks.robustness.text_memory [--words 103227021] [--types 267735] [--out FILE]

The text is made up: words are drawn by Zipf's law (rank r with a probability as 1/r), seeded, each at least once,
frequent words shorter; lines are as long on average as those of WikiText-103. Text and token ids lie in a temporary
folder (about 1 GB, $TMPDIR chooses the disk). A fresh process loads the text, and then loads it again from the cache;
its peak memory is the kernel's figure for the most that it ever held (VmHWM). One JSON line goes to standard output and
to --out.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.json_lines import lines_in, put
from flair_nas.language_model.text.corpus import load_text
from flair_nas.runs.memory import peak_memory_mb

RESULTS = Path(__file__).parents[1] / "results" / "text_memory.jsonl"
PARTS = {"valid": 217_646, "test": 245_569}  # words of WikiText-103's parts, with <eos>
LINE = 57  # words of an average line, with <eos>
LETTERS = "etaoin"
BLOCK = 1 << 20


def word(rank: int) -> str:
    """The word of that rank, from 1; words are as long on average as English ones."""
    letters = ""
    while rank:
        rank, place = divmod(rank - 1, len(LETTERS))
        letters = LETTERS[place] + letters
    return letters


def write_part(path: Path, words: int, types: int, random: np.random.Generator) -> None:
    """Writes a part of so many words, those that end lines among them."""
    names = np.array([word(rank) for rank in range(1, types + 1)], dtype=object)
    chances = np.cumsum(1 / np.arange(1, types + 1))
    chances /= chances[-1]
    unseen = random.permutation(types)  # a word from here now and then, so that all are there in the end
    every = max(words // (types + 1), 2)
    written = 0
    with open(path, "w", encoding="ascii") as stream:
        while written < words:
            count = min(BLOCK, words - written)
            drawn = np.searchsorted(chances, random.random(count))
            ends = random.random(count) < 1 / LINE
            places = np.arange(-written % every, count, every)
            drawn[places] = unseen[(written + places) // every % types]
            ends[places] = False
            ends[-1] |= written + count == words  # the part ends in a line end
            text = names[drawn]
            text[ends] = "\n"
            written += count
            stream.write(" ".join(text.tolist()) + " " * (written < words))


def measure(folder: Path) -> dict:
    """Loads the text twice, the second time from the cache; to be called in a process of its own."""
    start, start_cpu = time.perf_counter(), time.process_time()
    corpus = load_text(folder / "text", cache=folder / "cache", progress=sys.stderr.isatty())
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    peak = peak_memory_mb()
    start = time.perf_counter()
    again = load_text(folder / "text", cache=folder / "cache")
    assert again.vocabulary == corpus.vocabulary and len(again.train) == len(corpus.train)
    return {
        "train_tokens": len(corpus.train),
        "vocabulary": len(corpus.vocabulary),
        "text_mb": sum(path.stat().st_size for path in (folder / "text").iterdir()) / 1e6,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "seconds_from_cache": time.perf_counter() - start,
        "peak_mb": peak,
    }


def table() -> str:
    """The figures as a table."""
    rows = ["| words | types | text MB | s | CPU s | from the cache, s | peak MB of the process |",
            "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for of in lines_in(RESULTS):
        rows.append(f"| {of['train_tokens']:,} | {of['vocabulary']:,} | {of['text_mb']:.0f} | {of['seconds']:.1f} | "
                    f"{of['cpu_seconds']:.1f} | {of['seconds_from_cache']:.1f} | {of['peak_mb']:.0f} |")  # fmt: skip
    return "\n".join(rows)


def main() -> None:
    """Makes the text, and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=103_227_021, help="words of the training part (WikiText-103's)")
    parser.add_argument("--types", type=int, default=267_735, help="size of the vocabulary (WikiText-103's)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="file to which the JSON line is added")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as name:
        text = Path(name, "text")
        text.mkdir()
        random = np.random.default_rng(arguments.seed)
        for part, words in {"train": arguments.words, **PARTS}.items():
            write_part(text / f"{part}.txt", words, arguments.types - 2, random)  # <unk>, <eos>
        command = [sys.executable, "-m", __spec__.name, "--measure", name]
        figures = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert figures["train_tokens"] == arguments.words and figures["vocabulary"] == arguments.types
    figures |= {"seed": arguments.seed, "python": platform.python_version(), "numpy": np.__version__}
    put(figures, arguments.out)


if __name__ == "__main__":
    main()
