"""Taggers and their exports: labels, F1, speed, memory, size.

    python -m benchmarks.speed.exported_taggers --data-root DATASETS --runs wnut_17=RUN conll_2000=RUN ... --out WORK

RUN is the folder of a training run of that corpus. Each run is exported, and once more in 8 bits. All labels
of dev and test must be equal. Then 500 sentences are tagged by PyTorch, by onnxruntime and in 8 bits, on one and
on two threads. Every measurement is a process of its own, which tags once to warm up and then three times. The median
counts. The figures go to results/exported_taggers.json;
`table` makes the table of docs/export.md. Run it on a quiet machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "exported_taggers.json"
MOST = 500
"""Sentences whose tagging is timed."""

ENGINES = {"PyTorch": "run", "onnxruntime": "float", "int8": "int8"}


def measure(engine: str, folder: str, lines: str, threads: int) -> None:
    """Tags lines in this process, and prints seconds, peak memory and labels as JSON."""
    texts = json.loads(Path(lines).read_text(encoding="utf-8"))
    if engine == "PyTorch":
        from flair_nas.tagging.prediction import load_tagger, tag_lines, to_json_line

        tagger = load_tagger(folder)

        def tag() -> list[Any]:
            tagged = tag_lines(tagger, texts, tokenized=True)
            return [json.loads(to_json_line(*pair, tagger.label_type)) for pair in zip(texts, tagged)]
    else:
        from flair_nas.onnx import Tagger

        exported = Tagger(folder, threads=threads)

        def tag() -> list[Any]:
            return exported.predict(texts, tokenized=True)

    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        results = tag()
        seconds.append(time.perf_counter() - start)
    labels = [[(label["label"], label["start"], label["end"]) for label in result["labels"]] for result in results]
    status = Path("/proc/self/status").read_text(encoding="utf-8")  # the peak of getrusage may be that of the parent
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": statistics.median(seconds[1:]), "peak_mb": peak, "labels": labels}))


def run_engine(engine: str, folder: Path, lines: Path, threads: int) -> dict[str, Any]:
    """The figures of `measure` in a new process."""
    arguments = [engine, str(folder), str(lines), str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", __spec__.name, "--measure", *arguments]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    figures: dict[str, Any] = json.loads(output.splitlines()[-1])
    return figures


def compare(corpus: str, run: Path, work: Path, data_root: str | None) -> dict[str, Any]:
    """Everything about one run."""
    from flair_nas.onnx import check_export, export_tagger, quantize_tagger
    from flair_nas.tagging.data.corpora import load_corpus
    from flair_nas.tagging.prediction import load_tagger

    parts = load_corpus(corpus, data_root=data_root).corpus
    tagger = load_tagger(run)
    folders = {"PyTorch": run, **{engine: work / name for engine, name in [*ENGINES.items()][1:]}}
    for engine in ("onnxruntime", "int8"):
        export_tagger(tagger, folders[engine])
    quantize_tagger(folders["int8"])
    found: dict[str, Any] = {"sentences": 0, "rnn": tagger.rnn_type[:40]}
    for part in ("dev", "test"):  # an error if any label differs
        found[part] = check_export(tagger, folders["onnxruntime"], list(getattr(parts, part)))
    sentences = [*parts.dev, *parts.test][:MOST]
    lines = work / "lines.json"
    lines.write_text(json.dumps([" ".join(token.text for token in sentence) for sentence in sentences]))
    found["sentences"] = len(sentences)
    for threads in (1, 2):
        results = {engine: run_engine(engine, folder, lines, threads) for engine, folder in folders.items()}
        expected = {(n, *label) for n, labels in enumerate(results["PyTorch"]["labels"]) for label in labels}
        for engine, result in results.items():
            labels = {(n, *label) for n, some in enumerate(result.pop("labels")) for label in some}
            result["changed"] = len(labels ^ expected) / max(1, len(labels | expected))
            result["bytes"] = sum(file.stat().st_size for file in folders[engine].glob("*.*"))
        found[f"{threads} threads"] = results
    return found


def table() -> str:
    """The kept figures as Markdown."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| tagger | engine | labels changed | sentences a second, 1 thread | 2 threads | peak memory | size |"]
    lines.append("| --- |" + " --- |" * 6)
    for name, of in kept.items():
        for engine in ENGINES:
            one, two = (of[f"{threads} threads"][engine] for threads in (1, 2))
            rates = [f"{of['sentences'] / result['seconds']:,.0f}" for result in (one, two)]
            size = "-" if engine == "PyTorch" else f"{one['bytes'] / 1e6:.1f} MB"
            cells = [name, engine, f"{100 * one['changed']:.1f} %", *rates, f"{one['peak_mb']:,.0f} MB", size]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures all runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--runs", nargs="+", metavar="CORPUS=RUN", default=[])
    parser.add_argument("--names", nargs="+", help="names of the runs in the table (default: corpus and layer)")
    parser.add_argument("--data-root")
    parser.add_argument("--out", type=Path, help="folder for the exports")
    arguments = parser.parse_args()
    if arguments.measure:
        engine, folder, lines, threads = arguments.measure
        return measure(engine, folder, lines, int(threads))
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for number, run in enumerate(arguments.runs):
        corpus, _, folder = run.partition("=")
        work = arguments.out / str(number)
        work.mkdir(parents=True, exist_ok=True)
        found = compare(corpus, Path(folder), work, arguments.data_root)
        kept[arguments.names[number] if arguments.names else f"{corpus}, {found['rnn']}"] = found
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
