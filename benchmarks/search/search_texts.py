"""Do the search presets train on texts of any vocabulary?

    python -m benchmarks.search.search_texts make --text TEXT --out TEXTS
    python -m benchmarks.search.search_texts run demo TEXTS/5000 ... --out RUNS [--presets PRESET ...] [FLAG ...]
    python -m benchmarks.search.search_texts table

TEXT is a folder of files with "train" in their paths: lines with blanks between the words, some five million words of
ordinary prose for the largest vocabulary. `make` writes a text for each of SIZES. `run` starts ``flair-nas search`` for
each text and preset, with further flags as they are, and goes on where it was stopped. It adds what each search did to
benchmarks/results/search_texts.jsonl, which `table` prints.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.json_lines import lines_in, put
from flair_nas.settings.resolve import preset_names, read_mapping
from flair_nas.storage.resources import resource_path

RESULTS = Path(__file__).parents[1] / "results" / "search_texts.jsonl"


class Size(NamedTuple):
    """Of a text: types, training words at most, and the least share of new types in a line until all types are in."""

    types: int
    words: int
    fresh: float = 0.0


SIZES = [Size(5_000, 60_000), Size(12_000, 171_000), Size(30_000, 171_000), Size(100_000, 300_000, 0.3)]
LONGEST = 60  # words in a line


def lines_of(folder: Path) -> Iterator[list[str]]:
    """Return the lines of all files with "train" in their path, as words."""
    files = [file for file in folder.rglob("*") if file.is_file() and "train" in str(file.relative_to(folder))]
    for file in sorted(files):
        with file.open(encoding="utf-8") as lines:
            yield from (words for line in lines if 0 < len(words := line.split()) <= LONGEST)


def make(source: Path, out: Path) -> None:
    """Write a text for each of SIZES: lines of the source in their order, but for those that bring too many types."""
    for size in SIZES:
        seen: set[str] = set()
        kept: list[str] = []
        words = 0
        for line in lines_of(source):
            fresh = set(line) - seen
            full = len(seen) >= 0.999 * size.types
            if len(seen) + len(fresh) > size.types or (not full and len(fresh) < size.fresh * len(line)):
                continue
            seen |= fresh
            kept.append(" ".join(line))
            words += len(line)
            if words >= size.words / 0.9:
                break
        folder = out / str(size.types)
        folder.mkdir(parents=True, exist_ok=True)
        valid = kept[9::10]
        train = [line for number, line in enumerate(kept) if number % 10 != 9]
        for part, some in (("train", train), ("valid", valid)):
            (folder / f"{part}.txt").write_text("\n".join(some) + "\n", encoding="utf-8")
        print(f"{folder}: {len(seen):,} types, {words:,} words")


PRESETS = [
    name
    for name in preset_names("search")
    if name.endswith("-small")
    and read_mapping(resource_path("presets", "search", f"{name}.yaml")).get("objective", "text") == "text"
]


def run(texts: list[str], presets: list[str], out: Path, flags: list[str]) -> None:
    """Search with each preset on each text, and add what came of it to RESULTS."""
    done = {(line["text"], line["preset"], line["flags"]) for line in lines_in(RESULTS)}
    for text, preset in ((text, preset) for text in texts for preset in presets):
        name, added = Path(text).name, " ".join(flags)
        if (name, preset, added) in done:
            continue
        folder = out / "-".join([name, preset, *flags]).replace("--", "")
        command = [sys.executable, "-m", "flair_nas", "search", "--preset", preset, "--text", text, "--device", "cpu"]
        print("#", *command[1:], *flags, flush=True)
        code = subprocess.run([*command, "--out", str(folder), *flags]).returncode
        history = lines_in(folder / "history.jsonl")
        last = history[-1]
        line = {
            "text": name,
            "preset": preset,
            "flags": added,
            "exit_code": code,
            "steps": sum(line["steps"] for line in history),
            "seconds": round(sum(line["seconds"] + line["evaluation_seconds"] for line in history), 1),
            "unigram_perplexity": round(last["unigram_perplexity"], 1),
            "dev_perplexity": [line["dev_perplexity"] and round(line["dev_perplexity"], 1) for line in history],
            "training_perplexity": [round(math.exp(line["train_loss"]), 1) for line in history],
            "verdict": json.loads((folder / "genotype.json").read_text())["origin"].get("verdict", ""),
        }
        put(line, RESULTS)


def table() -> None:
    """Print what each preset ends at on each text, then the searches with further flags."""
    lines = {(line["text"], line["preset"], line["flags"]): line for line in lines_in(RESULTS)}
    texts = ["demo", *(str(size.types) for size in SIZES)]
    print("| preset |", " | ".join(texts), "|\n|", " | ".join(["---"] * (1 + len(texts))), "|")
    guesses = {text: line["unigram_perplexity"] for (text, _, _), line in lines.items()}
    print("| word frequencies alone |", " | ".join(str(guesses.get(text, "-")) for text in texts), "|")
    for preset in PRESETS:
        print(f"| `{preset}` |", " | ".join(_end(lines.get((text, preset, ""))) for text in texts), "|")
    print("\n| text | preset and flags | steps | perplexity |\n| --- | --- | --- | --- |")
    for (text, preset, flags), line in lines.items():
        if flags:
            print(f"| {text} | `{preset} {flags}` | {line['steps']} | {_end(line)} |")


def _end(line: dict[str, Any] | None) -> str:
    """Return the perplexity at the end of a search, of the training part where cells are sampled."""
    if line is None:
        return "-"
    key = "training_perplexity" if line["preset"] == "gdas-small" else "dev_perplexity"
    return f"{line[key][-1]}{'' if line['exit_code'] == 0 else ', learned nothing'}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make")
    maker.add_argument("--text", type=Path, required=True)
    maker.add_argument("--out", type=Path, required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("texts", nargs="+", help="folders that make wrote, or demo")
    runner.add_argument("--presets", nargs="+", default=PRESETS)
    runner.add_argument("--out", type=Path, required=True)
    verbs.add_parser("table")
    arguments, flags = parser.parse_known_args()
    if arguments.verb == "make":
        make(arguments.text, arguments.out)
    elif arguments.verb == "run":
        run(arguments.texts, arguments.presets, arguments.out, flags)
    else:
        table()
