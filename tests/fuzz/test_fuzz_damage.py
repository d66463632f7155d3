"""A damaged file of a run or a cache: the same result as without the damage, or one clear error, and nothing else."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import small_language_model
import small_library
import small_tagging
import torch
from commands import Ended, run
from damage import DAMAGES, Damage, files_of
from fuzzing import check_message, fuzzed, outcome
from hypothesis import assume
from hypothesis import strategies as st
from killing import differences, untimed
from small_search import no_picture, small

from flair_nas.drawing import charts
from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.language_model.saved import load_language_model
from flair_nas.language_model.text.corpus import load_text
from flair_nas.language_model.training import train_language_model
from flair_nas.library.named import load_genotype
from flair_nas.nn.kernels.native import build
from flair_nas.runs.checkpoints import Checkpoints
from flair_nas.search.trainer import search_genotype
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.training import train_taggers

pytestmark = pytest.mark.slow

PLACES = st.integers(0, 99)  # of the damaged file among those of a run


@dataclass(frozen=True)
class Kind:
    """A kind of run."""

    verb: list[str]  # of the command that trains
    train: Callable[[Path, int], object]  # without the command, to an epoch
    evaluate: Callable[[Path], list[str]]  # the command that uses what is in a folder
    load: Callable[[Path], dict[str, torch.Tensor]]  # gives the weights in a model file


class Made:
    """A finished run, what is in it, what is in it after one more epoch, and what its use says."""

    def __init__(self, kind: Kind, out: Path) -> None:
        kind.train(out, 2)
        longer = Path(shutil.copytree(out, out.with_name(f"{out.name}-longer")))
        kind.train(longer, 3)
        self.kind, self.out = kind, out
        self.results, self.extended = results_of(kind, out), results_of(kind, longer)
        self.evaluated = run(kind.evaluate(out)).out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_CACHE", str(path / "cache"))
        patch.setattr(charts, "draw_progress", no_picture)
        patch.setattr("flair_nas.search.trainer.explain_failure", lambda *_: "")  # three epochs may learn nothing
        yield path


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return small_language_model.write_text_folder(folder / "text")


@pytest.fixture(scope="module")
def taggers(folder: Path) -> Made:
    corpus = small_tagging.write_corpus(folder / "corpus")

    def train(out: Path, epochs: int) -> None:
        train_taggers(small_tagging.settings(corpus, seeds=[1, 2], epochs=epochs), out, progress=False)

    def evaluate(out: Path) -> list[str]:
        return ["tag", "evaluate", "--quiet", "--json", "--model", str(out), "--corpus", corpus]

    return Made(
        Kind(["tag", "train"], train, evaluate, lambda path: load_tagger(path).state_dict()), folder / "taggers"
    )


@pytest.fixture(scope="module")
def model(folder: Path, text: str) -> Made:
    def train(out: Path, epochs: int) -> None:
        train_language_model(small_language_model.settings(text, epochs=epochs), out, progress=False)

    def evaluate(out: Path) -> list[str]:
        return ["lm", "evaluate", "--quiet", "--json", "--model", str(out), "--text", text]

    return Made(
        Kind(["lm", "train"], train, evaluate, lambda path: load_language_model(path).model.state_dict()),
        folder / "model",
    )


@pytest.fixture(scope="module")
def search(folder: Path, text: str) -> Made:
    def train(out: Path, epochs: int) -> None:
        search_genotype(small(Path(text), epochs=epochs), out, progress=False)

    def evaluate(out: Path) -> list[str]:
        return ["lm", "train", "--text", "nowhere", "--rnn", str(out), "--out", str(out / "nowhere")]

    return Made(Kind(["search"], train, evaluate, lambda path: {}), folder / "search")


def results_of(kind: Kind, out: Path) -> dict[str, Any]:
    """Figures, histories, genotypes and weights, by file, but for times and dates."""
    return {str(path.relative_to(out)): result_of(kind, path) for path in files_of(out) if is_result(path)}


def is_result(path: Path) -> bool:
    return path.name in ("metrics.json", "history.jsonl", "genotype.json", "model.pt")


def result_of(kind: Kind, path: Path) -> Any:
    if path.name == "model.pt":
        return kind.load(path)
    if path.name == "genotype.json":
        genotype = Genotype.load(path)
        return genotype.one_line(), genotype.options
    if path.name == "history.jsonl":
        return [untimed(json.loads(line)) for line in path.read_text().splitlines()]
    return untimed(json.loads(path.read_text()))


def damaged(made: Made, out: Path, place: int, damage: Damage) -> set[str]:
    """Makes a copy of a run with a damaged file; gives the names of the files that are not as they were."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(made.out, out)
    files = files_of(out)
    path = files[place % len(files)]
    # a model is not swapped with one of another seed, which is as whole: nothing says of which seed it is
    beside = [file for file in files if not path.name == file.name == "model.pt" or file.parent == path.parent]
    return {str(file.relative_to(out)) for file in damage.apply(path, beside)}


def check_resumed(made: Made, out: Path, epochs: int, place: int, damage: Damage, command: bool) -> None:
    """Resumes a damaged run: it is refused in one line, or its results are those of a run without the damage.

    What may legitimately differ:
    - the history of a finished seed has no sum, and nobody writes it again;
    - a model that was finished and is damaged may stay so, but then it cannot be loaded.
    Settings may not, since those that the run is given have to be those in the file; nor may checkpoints. (The command
    takes its settings from the file, which may say anything.)
    """
    spoilt = damaged(made, out, place, damage)
    if command:
        assume("config.yaml" not in spoilt)
        ended = run([*made.kind.verb, "--quiet", "--resume", str(out), "--epochs", str(epochs)])
        if ended.code:
            check_refused_in_a_line(ended)
            return
    else:
        found = outcome(lambda: made.kind.train(out, epochs), OSError)
        if isinstance(found, Exception):
            assert "\n" not in str(found)
            return
    expected = made.results if epochs == 2 else made.extended
    unsure = {name for name in spoilt if epochs == 2 and name.startswith("seed") and name.endswith("history.jsonl")}
    models = [name for name in spoilt if name.endswith("model.pt")]
    for name in expected.keys() - unsure:
        if models and name.endswith("model.pt"):
            weights = outcome(lambda name=name: made.kind.load(out / name))  # type: ignore[misc]
            assert isinstance(weights, FlairNasError) or not list(differences(expected[name], weights, name))
        else:
            different = list(differences(expected[name], result_of(made.kind, out / name), name))
            assert not different, different


def check_refused_in_a_line(ended: Ended) -> None:
    assert ended.code in (1, 2)
    check_message(ended.errors)
    assert ended.errors.strip().count("\n") == 0


def check_used(made: Made, out: Path, place: int, damage: Damage) -> None:
    """Uses what is in a damaged folder: it is refused in one line, or the answer is that without the damage.

    A genotype has no sum, and may turn into another one that can be used as well, as settings may.
    """
    spoilt = damaged(made, out, place, damage)
    ended = run(made.kind.evaluate(out))
    if ended.code:
        check_refused_in_a_line(ended)
    elif not spoilt & {"config.yaml", "genotype.json"}:
        assert ended.out == made.evaluated


EPOCHS = st.sampled_from([2, 2, 3])  # resumed as it is, or extended


@fuzzed("tagger's run", 12, epochs=EPOCHS, place=PLACES, damage=DAMAGES, command=st.booleans())
def test_a_damaged_run_of_taggers_is_resumed_or_refused(
    taggers: Made, folder: Path, epochs: int, place: int, damage: Damage, command: bool
) -> None:
    check_resumed(taggers, folder / "run", epochs, place, damage, command)


@fuzzed("model's run", 14, epochs=EPOCHS, place=PLACES, damage=DAMAGES, command=st.booleans())
def test_a_damaged_run_of_a_language_model_is_resumed_or_refused(
    model: Made, folder: Path, epochs: int, place: int, damage: Damage, command: bool
) -> None:
    check_resumed(model, folder / "run", epochs, place, damage, command)


@fuzzed("search", 16, epochs=EPOCHS, place=PLACES, damage=DAMAGES, command=st.booleans())
def test_a_damaged_search_is_resumed_or_refused(
    search: Made, folder: Path, epochs: int, place: int, damage: Damage, command: bool
) -> None:
    check_resumed(search, folder / "run", epochs, place, damage, command)


@fuzzed("tagger, used", 10, place=PLACES, damage=DAMAGES)
def test_a_damaged_tagger_is_used_as_it_was_or_refused(taggers: Made, folder: Path, place: int, damage: Damage) -> None:
    check_used(taggers, folder / "run", place, damage)


@fuzzed("model, used", 12, place=PLACES, damage=DAMAGES)
def test_a_damaged_language_model_is_used_as_it_was_or_refused(
    model: Made, folder: Path, place: int, damage: Damage
) -> None:
    check_used(model, folder / "run", place, damage)


@fuzzed("search, used", 15, place=PLACES, damage=DAMAGES)
def test_what_a_damaged_search_found_is_used_or_refused(search: Made, folder: Path, place: int, damage: Damage) -> None:
    spoilt = damaged(search, folder / "run", place, damage)
    found = outcome(lambda: load_genotype(folder / "run"))
    if "genotype.json" not in spoilt:
        assert (found.one_line(), found.options) == search.results["genotype.json"]
    assert isinstance(found, (Genotype, FlairNasError))


@pytest.fixture(scope="module")
def checkpoints(folder: Path) -> Path:
    """Two checkpoints of a few bytes, so that each bit has its turn."""
    out = folder / "checkpoints"
    out.mkdir()
    for number in (1.0, 2.0):
        Checkpoints(out).save({"number": number, "weights": torch.full((4,), number)})
    return out


@fuzzed("checkpoint", 40, newest=st.booleans(), damage=DAMAGES)
def test_of_two_checkpoints_one_damaged_the_other_is_read(
    checkpoints: Path, folder: Path, newest: bool, damage: Damage
) -> None:
    out = folder / "copy"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(checkpoints, out)
    kept = Checkpoints(out)
    path = kept.newest if newest else kept.previous
    damage.apply(path, [kept.newest, kept.previous])
    state = outcome(lambda: Checkpoints(out).load())
    assert torch.equal(state["weights"], torch.full((4,), state["number"]))
    assert state["number"] == 2.0 or newest or damage.kind == "swap"


@fuzzed("text cache", 30, place=PLACES, damage=DAMAGES)
def test_a_damaged_cache_of_token_ids_is_made_again(text: str, folder: Path, place: int, damage: Damage) -> None:
    def read() -> tuple[Any, ...]:
        corpus = load_text(text, cache=cache)
        ids = [part.tolist() for part in (corpus.train, corpus.valid, corpus.test)]
        return ids, corpus.vocabulary

    cache = folder / "ids"
    expected = read()
    files = files_of(cache)
    damage.apply(files[place % len(files)], files)
    assert read() == expected


def answer(sources: Path) -> None:
    """What a process of its own does with the library, since a damaged one can end it in any way."""
    build.built.cache_clear()
    library = build.library(sources)
    assert isinstance(library, ctypes.CDLL) and library.answer() == 41


def exitcode(sources: Path, cache: Path) -> int | None:
    """How such a process ends that finds the library in a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_KERNELS_CACHE", str(cache))
        process = multiprocessing.get_context("fork").Process(target=answer, args=(sources,))
        process.start()
    process.join(60)
    process.kill()
    return process.exitcode


@pytest.fixture(scope="module")
def sources(folder: Path) -> Path:
    """The sources of a small library, which is compiled."""
    if small_library.REAL is None:
        pytest.skip("needs a C++ compiler")
    path = folder / "native"
    path.mkdir()
    (path / "kernels.cpp").write_text(small_library.SOURCE)
    (path / "answer.h").write_text("#define ANSWER 41\n")
    assert exitcode(path, folder / "kernels-whole") == 0
    return path


@fuzzed("kernel cache", 6, shrink=False, place=PLACES, damage=DAMAGES)
def test_a_damaged_library_of_kernels_is_never_loaded(sources: Path, folder: Path, place: int, damage: Damage) -> None:
    cache = folder / "kernels"
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(folder / "kernels-whole", cache)
    files = [path for path in sorted(cache.rglob("*")) if path.is_file()]
    (library,) = [path for path in files if path.suffix == ".so"]
    whole = library.read_bytes()
    damage.apply(files[place % len(files)], files)
    assert exitcode(sources, cache) == 0
    if not library.is_dir():  # a folder in its place nobody takes away: each process then compiles for itself
        assert library.read_bytes() == whole  # also where what is damaged is not what it answers with
