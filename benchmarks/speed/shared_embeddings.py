"""Memory and seconds of taggers that train side by side on one corpus, by where the vectors of its words are kept.

    python -m benchmarks.speed.shared_embeddings --data-root DATASETS --embeddings NAME ... [--processes 2] [--out FILE]

flair: as Flair keeps them itself, each process its own. memory: computed once by each process, in one array. disk: in
one file that all processes map (`tag train --storage disk`), made by the first that needs it, in a cache that is empty
at the start. The taggers have an LSTM, one thread and a seed each, and train for --epochs from loading to the last
figure on dev. Memory is the most that all processes held at one moment, pages that they share counted once (PSS), as
Linux gives it twice a second. A mode that would not leave a tenth of the machine's memory free is stopped, and said to
be. A JSON line for each mode goes to standard output and to --out.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.json_lines import lines_in, put

RESULTS = Path(__file__).parents[1] / "results" / "shared_embeddings.jsonl"
MODES = ("flair", "memory", "disk")


def train(mode: str, seed: int, arguments: argparse.Namespace) -> None:
    """Trains a tagger in this process, and prints what it came to."""
    from flair_nas.tagging import training
    from flair_nas.tagging.config import TaggerConfig

    if mode == "flair":
        training.keep_frozen = lambda *_, **__: None  # Flair stores what it has computed
    config = TaggerConfig(
        corpus=arguments.corpus, data_root=arguments.data_root, embeddings=arguments.embeddings, rnn="lstm",
        epochs=arguments.epochs, seeds=[seed], storage="disk" if mode == "disk" else "cpu",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (result,) = training.train_taggers(config, Path(folder) / "run", parts=("dev",), progress=False)["seeds"]
        lines = (Path(folder) / "run" / f"seed-{seed}" / "history.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    print(json.dumps({"dev_f1": result["dev_f1"], "last_epoch_seconds": last["seconds"]}))


def measure(mode: str, processes: int, arguments: argparse.Namespace) -> dict:
    """Trains so many taggers side by side, and watches their memory."""
    import psutil

    given = ["--corpus", arguments.corpus, "--data-root", arguments.data_root, "--epochs", str(arguments.epochs),
             "--embeddings", *arguments.embeddings]  # fmt: skip
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "FLAIR_NAS_CACHE": cache}
        started, most, short = time.perf_counter(), 0, False
        children = [
            subprocess.Popen([sys.executable, "-m", __spec__.name, "--train", mode, str(seed), *given], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for seed in range(1, processes + 1)
        ]  # fmt: skip
        while any(child.poll() is None for child in children):
            time.sleep(0.5)
            held = 0
            for child in children:
                with contextlib.suppress(psutil.Error):  # it has just ended
                    held += psutil.Process(child.pid).memory_full_info().pss
            most = max(most, held)
            memory = psutil.virtual_memory()
            if memory.available < memory.total / 10:
                short = True
                for child in children:
                    child.kill()
        seconds = time.perf_counter() - started
        printed = [child.communicate()[0] for child in children]
        on_disk = sum(path.stat().st_size for path in Path(cache).rglob("vectors.bin"))
    found = {"mode": mode, "processes": processes, "most_mb": most / 1e6, "memory_short": short}
    if short:
        return found
    if any(child.returncode for child in children):
        raise SystemExit(f"mode {mode}: a tagger could not be trained")
    lines = [json.loads(text.splitlines()[-1]) for text in printed]
    return found | {"seconds": seconds, "file_mb": on_disk / 1e6, "epochs": arguments.epochs,
                    "last_epoch_seconds": [line["last_epoch_seconds"] for line in lines],
                    "dev_f1": [line["dev_f1"] for line in lines]}  # fmt: skip


def table() -> str:
    """The figures as a table."""
    rows = ["| vectors kept by | processes | most memory, MB | file, MB | s in all | s of the last epoch | dev F1 |",
            "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for line in lines_in(RESULTS):
        name = {"flair": "Flair", "memory": "each process", "disk": "one file for all"}[line["mode"]]
        if line["memory_short"]:
            rows.append(f"| {name} | {line['processes']} | stopped at {line['most_mb']:,.0f} | - | - | - | - |")
            continue
        epochs = ", ".join(f"{seconds:.0f}" for seconds in line["last_epoch_seconds"])
        figures = ", ".join(f"{figure:.2f}" for figure in line["dev_f1"])
        rows.append(f"| {name} | {line['processes']} | {line['most_mb']:,.0f} | {line['file_mb']:,.0f} | "
                    f"{line['seconds']:.0f} | {epochs} | {figures} |")  # fmt: skip
    return "\n".join(rows)


def main() -> None:
    """Measures the modes in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="conll_03")
    parser.add_argument("--data-root", help="folder with the named corpora")
    parser.add_argument("--embeddings", nargs="+", default=["glove"], metavar="EMBEDDING", help="as for tag train")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--processes", type=int, nargs="+", default=[2], metavar="N", help="one mode after the other")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--out", type=Path, help="file to which JSON lines are added")
    parser.add_argument("--train", nargs=2, metavar=("MODE", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train[0], int(arguments.train[1]), arguments)
    else:
        for processes in arguments.processes:
            for mode in arguments.modes:
                put(measure(mode, processes, arguments), arguments.out)


if __name__ == "__main__":
    main()
