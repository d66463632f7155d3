"""Run folders: one process at a time, the same settings; history, figures and checkpoints of a run and its parts."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from own_process import python

import flair_nas
from flair_nas.errors import FlairNasError
from flair_nas.runs.run import Run, RunStopped, open_run
from flair_nas.settings.fields import find_problems, raise_problems, setting
from flair_nas.settings.resolve import to_yaml


@dataclass
class Walk:
    """Settings of a run."""

    steps: int = setting(3, "how many", low=1)
    pace: float = setting(1.0, "how fast")
    epochs: int = setting(2, "how often", low=0)

    def __post_init__(self) -> None:
        raise_problems(find_problems(self))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


HOLD = """
import signal
with open_run(sys.argv[1], Walk()):
    print("open", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has tmp_path / "run" open."""
    process = python(__name__, HOLD, tmp_path / "run")
    assert process.stdout is not None and process.stdout.readline() == "open\n", process.communicate()[1]
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_a_folder_in_use_by_another_process_is_refused_until_that_is_killed(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    out = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(FlairNasError, match="is in use by another process") as caught, open_run(out, Walk()):
            pytest.fail("it was opened")
    assert str(out) in str(caught.value) and f"({holder.pid})" in str(caught.value)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert names_in(out) == [".lock"]  # which a killed process cannot take away, and which is in nobody's way
    with open_run(out, Walk()) as opened:
        assert opened.folder == out
    assert names_in(out) == []


def test_a_folder_is_free_again_after_the_block_however_it_ends(tmp_path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), open_run(tmp_path / "run", Walk()):
            raise error
    with (
        open_run(tmp_path / "run", Walk()),
        pytest.raises(FlairNasError, match="in use"),
        open_run(tmp_path / "run", Walk()),
    ):
        pytest.fail("opened twice in one process")


@pytest.mark.parametrize("left", (True, False), ids=("a run", "nothing"))
def test_a_folder_that_another_process_changes_meanwhile_is_not_one_with_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    listed = Path.iterdir

    def changing(folder: Path) -> Iterator[Path]:
        """Another process begins a run just before the folder is listed, or takes a file away just after."""
        monkeypatch.undo()
        with open_run(folder, Walk()) as run:
            (folder / "probe").touch()
            if left:
                run.accept()
            found = list(listed(folder))
            if not left:
                (folder / "probe").unlink()
        return iter(found)

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(Path, "iterdir", changing)
    with open_run(tmp_path / "run", Walk()) as run:
        run.accept()
    assert ("probe" in names_in(tmp_path / "run")) == left


def test_a_folder_with_something_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "thesis.tex").write_text("mine")
    for out, expected in (
        (file, "is a file"),
        (full, "is not empty, and holds no search to go on with"),
        (file / "below", "cannot write to the folder"),
    ):
        with pytest.raises(FlairNasError, match=expected) as caught, open_run(out, Walk(), quantity="search"):
            pytest.fail("it was opened")
        assert str(out) in str(caught.value)
    assert names_in(full) == ["thesis.tex"] and file.read_text() == "mine"


def test_a_run_that_is_refused_leaves_no_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("new", "there"):
        with pytest.raises(ValueError), open_run(tmp_path / folder, Walk()):
            raise ValueError
    assert names_in(tmp_path) == ["there"]
    with open_run(tmp_path / "new", Walk()) as run:
        run.accept()
    assert names_in(tmp_path) == ["new", "there"]


def test_the_settings_of_the_run_that_is_there_have_to_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(Walk()))
    with open_run(tmp_path, Walk(steps=9), may_change=["steps"]):
        pass
    with (
        pytest.raises(FlairNasError, match="holds a walk with other settings: steps was 3 and is now 9; pace was 1.0"),
        open_run(tmp_path, Walk(steps=9, pace=2), quantity="walk"),
    ):
        pytest.fail("it was opened")
    for content in ("steps: 0\n", "hidden_size: 3\n", ""):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(FlairNasError, match=r"holds no run to go on with.*choose"), open_run(tmp_path, Walk()):
            pytest.fail("it was opened")
    assert names_in(tmp_path) == ["config.yaml"]


def test_what_a_killed_process_left_half_written_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".config.yaml.abcd1234.flair-nas.part").write_text("steps")
    with open_run(tmp_path, Walk()) as run:
        assert names_in(tmp_path) == [".lock"]
        run.accept()
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / ".checkpoint.pt.abcd_234.flair-nas.part").write_text("half")
    (tmp_path / "seed-1" / "checkpoint.pt").write_text("whole")
    with open_run(tmp_path, Walk()):
        assert names_in(tmp_path / "seed-1") == ["checkpoint.pt"]


def test_files_of_others_stay(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "notes", tmp_path / "notes" / "deep"):
        folder.mkdir(exist_ok=True)
        for name in (".thesis.chapter1.part", "model.pt.flair-nas.part", ".model.pt.part"):
            (folder / name).write_text("mine")
    (tmp_path / "notes" / "deep" / ".model.pt.12345678.flair-nas.part").write_text("mine")
    (tmp_path / "config.yaml").write_text(to_yaml(Walk()))
    before = sorted(tmp_path.rglob("*"))
    with open_run(tmp_path, Walk()):
        pass
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["metrics.json", "history.jsonl"])
def test_figures_are_not_read_from_a_pipe_or_a_device(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path, Walk())
    epoch(run, 1)
    run.finish({"epochs": 1})
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert run.figures() is None
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    assert run.figures() is None


@pytest.mark.parametrize("history", ["text", [1], [{}], None, [{"epoch": 2}], [{"epoch": 1}, {"epoch": 2}]])
def test_a_checkpoint_whose_history_is_another_one_is_refused(tmp_path: Path, history: Any) -> None:
    run = Run(tmp_path, Walk())
    run.checkpoints.save({"epoch": 1, "history": history})
    with pytest.raises(FlairNasError, match="this checkpoint cannot be read"):
        Run(tmp_path, Walk()).resume(dict)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "my run"
    with pytest.raises(RunStopped, match="^stopped; run it again$"), open_run(out, Walk(), command="walk"):
        raise KeyboardInterrupt
    with pytest.raises(RunStopped) as caught, open_run(out, Walk(), command="flair-nas walk") as run:
        run.accept()
        raise KeyboardInterrupt("stopped in step 2")
    assert str(caught.value) == (f"stopped in step 2; in this directory, go on with: flair-nas walk --resume '{out}'")
    assert isinstance(caught.value, KeyboardInterrupt)


def test_a_disk_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with open_run(tmp_path / "run", Walk()):
        assert "cannot be locked (No locks available)" in caplog.text
    assert names_in(tmp_path) == []


def lines_in(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def epoch(run: Run, number: int) -> None:
    """What a run writes after an epoch."""
    run.history.append({"epoch": number})
    run.save({"epoch": number})


def test_history_and_checkpoints_of_a_run(tmp_path: Path) -> None:
    with open_run(tmp_path, Walk()) as run:
        assert run.resume(dict) is None
        for number in (1, 2):
            epoch(run, number)
    assert names_in(tmp_path) == ["checkpoint-previous.pt", "checkpoint.pt", "history.jsonl"]
    assert lines_in(tmp_path) == [{"epoch": 1}, {"epoch": 2}]
    again = Run(tmp_path, Walk())
    assert again.resume(dict) == {"epoch": 2, "history": [{"epoch": 1}, {"epoch": 2}]} and again.history == run.history


def test_a_line_of_the_history_that_no_checkpoint_knows_is_gone_when_the_run_goes_on(tmp_path: Path) -> None:
    """As when a process is killed between the two, or the newest checkpoint is damaged."""
    run = Run(tmp_path, Walk())
    for number in (1, 2):
        epoch(run, number)
    (tmp_path / "checkpoint.pt").unlink()
    again = Run(tmp_path, Walk())
    again.resume(dict)
    assert len(lines_in(tmp_path)) == 2  # nothing is written before the run is accepted
    again.accept()
    assert lines_in(tmp_path) == again.history == [{"epoch": 1}]


def signed(written: dict[str, Any]) -> dict[str, str]:
    """The version and the sum that stand beside the figures."""
    figures = {name: value for name, value in written.items() if name != "sha256"}
    return {
        "flair_nas": flair_nas.__version__,
        "sha256": hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest(),
    }


def test_the_parts_of_a_run_have_folders_histories_and_figures_of_their_own(tmp_path: Path) -> None:
    with open_run(tmp_path, Walk()) as run:
        run.finish({"best": "a"})  # which stay while a further part is added
        for name in ("a", "b"):
            part = run.part(name)
            assert part.resume(dict) is None and not part.folder.exists()
            part.accept()
            epoch(part, 1)
            written = part.finish({"epochs": 1, "name": name})
    assert names_in(tmp_path) == ["a", "b", "config.yaml", "metrics.json"]
    assert names_in(tmp_path / "a") == ["checkpoint.pt", "history.jsonl", "metrics.json"]
    assert Run(tmp_path, Walk()).part("b").figures() == written == {"epochs": 1, "name": "b", **signed(written)}


def test_figures_are_those_of_the_last_epoch(tmp_path: Path) -> None:
    run = Run(tmp_path, Walk())
    assert run.figures() is None
    epoch(run, 1)
    written = run.finish({"epochs": 1, "score": 7})
    assert written == {"epochs": 1, "score": 7, **signed(written)}
    assert run.figures() == written
    epoch(run, 2)  # the model may be another now
    assert run.figures() is None
    for damage in ('{"epochs": 2', "[]", '{"score": 7}', "2"):
        (tmp_path / "metrics.json").write_text(damage)
        assert run.figures() is None
    written = run.finish({"epochs": 2, "score": 8})
    (tmp_path / "history.jsonl").unlink()  # somebody keeps the figures alone
    assert run.figures() == written


@pytest.mark.parametrize("ending", ["metrics.json", "a second epoch"])
def test_a_run_without_its_checkpoints_is_not_begun_anew(tmp_path: Path, ending: str) -> None:
    run = Run(tmp_path, Walk())
    run.accept()
    epoch(run, 1)
    run.finish({"epochs": 1}) if ending == "metrics.json" else epoch(run, 2)
    for path in tmp_path.glob("checkpoint*.pt"):
        path.unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FlairNasError, match="its checkpoints are gone, so this run cannot go on; what it holds stays"):
        Run(tmp_path, Walk()).resume(dict)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    run = Run(tmp_path, Walk())
    epoch(run, 1)
    run.checkpoints.newest.unlink()
    again = Run(tmp_path, Walk())
    assert again.resume(dict) is None
    again.accept()
    assert names_in(tmp_path) == ["config.yaml"]


def test_figures_that_have_changed_are_none(tmp_path: Path) -> None:
    with open_run(tmp_path, Walk()) as run:
        run.accept()
        written = run.finish({"epochs": 2, "loss": 1.25, "words": "ü"})
        assert run.figures() == written and written["loss"] == 1.25
        path = tmp_path / "metrics.json"
        whole = path.read_text()
        for damaged in (whole.replace("1.25", "1.35"), whole.replace("loss", "losz"), whole.replace("2", "3", 1)):
            path.write_text(damaged)
            assert damaged != whole and run.figures() is None
