"""A run that is killed at any moments and resumed each time ends as one that was never stopped, to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_language_model
import small_tagging
from fuzzing import fuzzed
from hypothesis import strategies as st
from killing import Work, be_quiet, contents, differences, processes, run_killed, run_search, run_whole
from small_search import SMALL, no_picture, patched

from flair_nas.drawing import charts

pytestmark = pytest.mark.slow


def run_taggers(settings: dict[str, Any], out: str) -> None:
    """Taggers of two seeds."""
    from flair_nas.tagging.training import train_taggers

    be_quiet()
    train_taggers(small_tagging.settings(settings["corpus"], seeds=[1, 2]), out, progress=False)


def run_model(settings: dict[str, Any], out: str) -> None:
    """A language model."""
    from flair_nas.language_model.training import train_language_model

    be_quiet()
    train_language_model(small_language_model.settings(settings["text"], average_after=1), out, progress=False)


def run_search_alone(settings: dict[str, Any], out: str) -> None:
    """A search without its picture, which takes longer than the rest."""
    with patched(charts, "draw_progress", no_picture):
        run_search(settings, out)


class Whole:
    """A run that nobody stopped: how it is run, when its epochs ended, and what it left."""

    def __init__(self, context: Any, settings: dict[str, Any], out: Path, work: Work) -> None:
        self.context, self.settings, self.work = context, settings, work
        self.times = run_whole(context, settings, out, work)
        self.contents = contents(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_CACHE", str(path / "cache"))
        patch.setenv("PYTHONWARNINGS", "ignore:resource_tracker")  # what killed processes leave behind is no news
        yield path


@pytest.fixture(scope="module")
def context(folder: Path) -> Any:
    return processes("flair_nas.tagging.training", "flair_nas.language_model.training", "test_fuzz_kills")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return small_language_model.write_text_folder(folder / "text")


@pytest.fixture(scope="module")
def taggers(context: Any, folder: Path) -> Whole:
    corpus = small_tagging.write_corpus(folder / "corpus")
    return Whole(context, {"corpus": corpus}, folder / "taggers", run_taggers)


@pytest.fixture(scope="module")
def model(context: Any, folder: Path, text: str) -> Whole:
    return Whole(context, {"text": text}, folder / "model", run_model)


@pytest.fixture(scope="module")
def search(context: Any, folder: Path, text: str) -> Whole:
    return Whole(context, {**SMALL, "text": text, "epochs": 3}, folder / "search", run_search_alone)


# shares of the whole run's epochs: between them lie the starts, epochs, evaluations, files, and the end
MOMENTS = st.lists(st.floats(0, 0.999), min_size=1, max_size=3)


def check_killed(run: Whole, out: Path, moments: list[float]) -> None:
    shutil.rmtree(out, ignore_errors=True)
    run_killed(run.context, run.settings, out, run.times, [share * len(run.times) for share in moments], run.work)
    found = list(differences(run.contents, contents(out)))
    assert not found, found


@fuzzed("killed taggers", 2, shrink=False, moments=MOMENTS)
def test_killed_taggers_end_as_those_never_stopped(taggers: Whole, folder: Path, moments: list[float]) -> None:
    check_killed(taggers, folder / "killed", moments)


@fuzzed("killed models", 2, shrink=False, moments=MOMENTS)
def test_a_killed_language_model_ends_as_one_never_stopped(model: Whole, folder: Path, moments: list[float]) -> None:
    check_killed(model, folder / "killed", moments)


@fuzzed("killed searches", 2, shrink=False, moments=MOMENTS)
def test_a_killed_search_ends_as_one_never_stopped(search: Whole, folder: Path, moments: list[float]) -> None:
    check_killed(search, folder / "killed", moments)
