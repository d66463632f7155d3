"""Native kernels are compiled once, whole or not at all; if they cannot be, one warning says so and nothing fails."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_library import REAL, SOURCE

from flair_nas.nn.kernels.native import build
from flair_nas.nn.kernels.native.build import built, library

ROOT = Path(__file__).resolve().parents[3]
X86 = platform.machine() in ("x86_64", "AMD64")
compiles = pytest.mark.skipif(REAL is None, reason="needs a C++ compiler")


# Prints the answer of the library in the folder of the argument, or None.
USER = """
import sys
from pathlib import Path
from flair_nas.nn.kernels.native.build import library
found = library(Path(sys.argv[1]))
print(found and found.answer())
"""

# A compiler that writes each command line to a file, then does ACTION.
COMPILER = """#!/bin/sh
case "$*" in *-shared*) echo "$*" >> {notes}; {action};; esac
exec {real} "$@"
"""


# damage that ended each process that loaded it: SIGBUS, SIGSEGV, a wrong answer
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda whole: b"",
    "cut short": lambda whole: whole[: len(whole) // 2],
    "zeros": lambda whole: whole[: len(whole) // 4] + bytes(len(whole) // 2) + whole[-(len(whole) // 4) :],
    "one bit": lambda whole: whole.replace(b"\x29", b"\x2b", 1) if b"\x29" in whole else whole[:-1],
}


@pytest.fixture(autouse=True)
def warnings_are_new() -> None:
    build._warn_once.cache_clear()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "kernels.cpp").write_text(SOURCE)
    (folder / "answer.h").write_text("#define ANSWER 41\n")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of compiled libraries, which does not exist yet."""
    folder = tmp_path / "cache" / "kernels"
    monkeypatch.setenv("FLAIR_NAS_KERNELS_CACHE", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which a compiler writes each of its command lines."""
    return use_compiler(tmp_path, monkeypatch, ":")


def use_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, action: str) -> Path:
    notes, path = folder / "notes.txt", folder / "compiler"
    path.write_text(COMPILER.format(notes=notes, action=action, real=REAL))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return notes


def start(sources: Path, code: str = USER) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(sources)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    """Return the output of a process, and its lines on standard error."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output.strip(), errors.splitlines()


def libraries(cache: Path) -> list[Path]:
    """Return the libraries in a cache that holds nothing else but their manifests."""
    folders = sorted(cache.iterdir())
    assert all({path.name for path in folder.iterdir()} == {build.LIBRARY, "corpus.json"} for folder in folders)
    return [folder / build.LIBRARY for folder in folders]


def until(path: Path) -> None:
    """Wait for a file that is not empty."""
    for _ in range(600):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


@pytest.mark.slow
@compiles
def test_a_processor_that_the_compiler_is_told_is_the_one_compiled_for(
    sources: Path, cache: Path, compilations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", f"{os.environ['CXX']} -march=x86-64-v3" if X86 else f"{os.environ['CXX']} -mcpu=generic")
    assert ended(start(sources))[0] == "41"
    (line,) = compilations.read_text().splitlines()
    assert "=native" not in line and ("=x86-64-v3" if X86 else "=generic") in line


@pytest.mark.slow
@compiles
def test_a_library_is_compiled_once_and_then_loaded(sources: Path, cache: Path, compilations: Path) -> None:
    output, errors = ended(start(sources))
    (path,) = libraries(cache)
    assert output == "41" and len(errors) == 2
    assert errors[0].startswith("compiling native kernels") and errors[1].startswith("compiled native kernels in")
    assert len(compilations.read_text().splitlines()) == 1

    before = path.stat().st_mtime_ns
    assert ended(start(sources)) == ("41", [])
    assert libraries(cache) == [path] and path.stat().st_mtime_ns == before
    assert len(compilations.read_text().splitlines()) == 1


@compiles
@pytest.mark.parametrize("name", ["kernels.cpp", "answer.h"])
def test_a_changed_source_is_compiled_again(sources: Path, cache: Path, name: str) -> None:
    assert library(sources) is not None
    with open(sources / name, "a") as stream:
        stream.write("// changed\n")
    built.cache_clear()
    assert library(sources) is not None and len(libraries(cache)) == 2


@compiles
def test_another_processor_has_its_own_library(sources: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library(sources) is not None
    monkeypatch.setattr(build, "_processor", lambda: ["another"])
    built.cache_clear()
    assert library(sources) is not None and len(libraries(cache)) == 2


@pytest.mark.slow
@compiles
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_never_loaded_and_compiled_again(
    sources: Path, cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert library(sources) is not None
    (path,) = libraries(cache)
    whole = path.read_bytes()
    path.unlink()  # this process keeps the library that it has loaded
    path.write_bytes(DAMAGE[damage](whole))
    path.chmod(0o700)
    built.cache_clear()
    found = library(sources)
    assert found is not None and found.answer() == 41
    assert f"{path.parent}: this cache of native kernels is damaged" in caplog.text
    assert path.read_bytes() == whole
    caplog.clear()
    built.cache_clear()
    assert library(sources) is not None and caplog.records == []


@compiles
def test_a_library_that_others_can_write_to_is_not_loaded(
    sources: Path, cache: Path, compilations: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert library(sources) is not None
    (path,) = libraries(cache)
    assert path.stat().st_mode & 0o077 == 0 and cache.stat().st_mode & 0o077 == 0  # whatever the umask
    path.chmod(0o666)
    built.cache_clear()
    assert library(sources) is not None
    assert "can be written to by others" in caplog.text and len(compilations.read_text().splitlines()) == 2
    assert path.stat().st_mode & 0o022 == 0


@compiles
@pytest.mark.parametrize("whose", ["writable by others", "another user's", "a link of another user"])
def test_a_folder_that_others_may_have_filled_is_left_alone(
    sources: Path,
    cache: Path,
    compilations: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    whose: str,
) -> None:
    assert library(sources) is not None
    before = sorted(cache.iterdir())
    if whose == "writable by others":
        cache.chmod(0o777)
    elif os.getuid() != 0:
        pytest.skip("only root can give files away")
    elif whose == "another user's":
        os.chown(cache, 12345, -1)
    else:
        monkeypatch.setenv("FLAIR_NAS_KERNELS_CACHE", str(tmp_path / "link"))
        (tmp_path / "link").symlink_to(cache)
        os.chown(tmp_path / "link", 12345, -1, follow_symlinks=False)
    built.cache_clear()
    caplog.clear()
    found = library(sources)
    assert found is not None and found.answer() == 41
    fault = "can be written to by others" if whose == "writable by others" else "belongs to another user (12345)"
    assert fault in caplog.text and "FLAIR_NAS_KERNELS_CACHE" in caplog.text
    assert sorted(cache.iterdir()) == before and len(compilations.read_text().splitlines()) == 2


def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the home folder, as in a container whose user is a mere number."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


@compiles
def test_a_user_without_a_home_has_a_folder_of_their_own(
    sources: Path, compilations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_home(monkeypatch)
    for variable in ("FLAIR_NAS_KERNELS_CACHE", "FLAIR_NAS_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert library(sources) is not None
    folder = tmp_path / f"flair-nas-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700 and len(libraries(folder / "kernels")) == 1
    built.cache_clear()
    assert library(sources) is not None and len(compilations.read_text().splitlines()) == 1
    # the folder of somebody else who knew the name
    folder.chmod(0o777)
    built.cache_clear()
    assert library(sources) is not None and len(compilations.read_text().splitlines()) == 2
    # no other folder can be written
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    built.cache_clear()
    assert library(sources) is None


@pytest.mark.slow
@compiles
def test_a_compiler_that_hangs_is_ended(
    sources: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_compiler(tmp_path, monkeypatch, 'trap "" TERM; sleep 30 & wait')
    monkeypatch.setattr(build, "_COMPILE_SECONDS", 1)
    assert library(sources) is None
    assert "did not end within 1 s" in caplog.text and "CXX" in caplog.text
    assert list(cache.iterdir()) == []


@pytest.mark.slow
@compiles
def test_of_two_processes_one_compiles_and_both_have_the_library(
    sources: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    notes = use_compiler(tmp_path, monkeypatch, f"for _ in $(seq 300); do [ -e {go} ] && break; sleep 0.1; done")
    first = start(sources)
    until(notes)
    second = start(sources)
    assert second.stderr is not None
    assert "waiting for another process that is making these native kernels" in second.stderr.readline()
    go.touch()
    (output, errors), (other_output, other_errors) = ended(first), ended(second)
    assert output == other_output == "41"
    assert (len(errors), len(other_errors)) == (2, 0)
    assert len(notes.read_text().splitlines()) == 1
    assert len(libraries(cache)) == 1


@pytest.mark.slow
@compiles
def test_a_killed_process_keeps_no_other_waiting(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = tmp_path / "number"
    use_compiler(tmp_path, monkeypatch, f"if [ ! -e {number} ]; then echo $$ > {number}; exec sleep 100; fi")
    first = start(sources)
    until(number)
    second = start(sources)
    first.kill()
    first.wait()
    try:
        output, errors = second.communicate(timeout=60)
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)  # what the first process was waiting for
    assert output == "41\n", errors


@pytest.mark.slow
@compiles
def test_an_interrupted_compilation_leaves_nothing(
    sources: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # half a file, and a child of the compiler that writes on after its parent has ended
    action = f'eval out=\\${{$#}}; echo half > "$out"; (echo > {tmp_path}/on; sleep 3; echo more > "$out")'
    use_compiler(tmp_path, monkeypatch, action)
    process = start(sources)
    until(tmp_path / "on")
    (part,) = cache.glob(".*.part")
    assert (part / build.LIBRARY).read_text() == "half\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert list(cache.iterdir()) == []
    time.sleep(3)
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_importing_compiles_nothing(cache: Path, compilations: Path) -> None:
    native = "flair_nas.nn.kernels.native.build"
    code = f"import {native}, flair_nas.nn.kernels.dispatch, flair_nas.nn.searched_rnn; print('imported')"
    assert ended(start(cache, code)) == ("imported", [])
    assert not cache.exists() and not compilations.exists()


def test_without_a_compiler_one_line_says_what_to_do(
    sources: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "")
    assert library(sources) is None and library(sources) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING" and "\n" not in record.getMessage()
    for words in (
        "no C++ compiler found (g++ or clang++); install one",
        "PyTorch's operators",
        "FLAIR_NAS_KERNELS=columns",
    ):
        assert words in record.getMessage()


@pytest.mark.parametrize("named", ["/nowhere/g++ -x", "false"], ids=["not there", "cannot be run"])
def test_a_compiler_named_in_the_environment_is_the_only_one(
    sources: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    monkeypatch.setenv("CXX", named)
    assert library(sources) is None
    assert f"CXX, {named}, cannot be run" in caplog.text and len(caplog.records) == 1


@compiles
def test_the_message_of_the_compiler_is_shown_once(
    sources: Path, cache: Path, compilations: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (sources / "answer.h").write_text("#error there is no answer\n")
    assert library(sources) is None and library(sources) is None
    warning = caplog.records[-1].getMessage()
    assert len(caplog.records) == 2 and "CXX" in warning.partition("\n")[0]
    assert "there is no answer" in warning and len(warning.splitlines()) < 10
    assert list(cache.iterdir()) == []
    tried = compilations.read_text().splitlines()
    assert len(tried) == len(build._ATTEMPTS) and len(set(tried)) == len(tried)


@compiles
def test_flags_that_the_compiler_does_not_know_are_left_out(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(tmp_path, monkeypatch, 'case "$*" in *-march*) echo "error: -march" >&2; exit 1;; esac')
    found = library(sources)
    assert found is not None and found.answer() == 41


@compiles
def test_a_cache_that_cannot_be_written_costs_a_compilation_in_this_process_alone(
    sources: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.write_text("a file where the folder should be")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    found = library(sources)
    assert found is not None and found.answer() == 41
    warning = caplog.records[0].getMessage()
    assert str(cache) in warning and "FLAIR_NAS_KERNELS_CACHE" in warning
    assert list(temporary.iterdir()) == [] and cache.parent.is_file()


@pytest.mark.parametrize(
    ("kernels", "all_caches", "expected"),
    [("~/a", "/b", "HOME/a"), ("", "/b", "/b/kernels"), ("", "", "HOME/.cache/flair-nas/kernels")],
)
def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, kernels: str, all_caches: str, expected: str
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS_CACHE", kernels)
    monkeypatch.setenv("FLAIR_NAS_CACHE", all_caches)
    assert build._folder() == Path(expected.replace("HOME", str(Path.home())))


def test_there_is_nothing_for_windows(
    sources: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert library(sources) is None
    assert "Windows" in caplog.text and len(caplog.records) == 1


@pytest.mark.slow
@compiles
def test_the_threads_are_those_of_torch(sources: Path, cache: Path) -> None:
    """A library linked with its own runtime would ignore torch's number of threads."""
    code = """
import sys, torch
from pathlib import Path
from flair_nas.nn.kernels.native.build import library
found = library(Path(sys.argv[1]))
torch.set_num_threads(3)
print(found.default_threads(), found.threads(2))
maps = Path("/proc/self/maps")
print(len({line.split()[-1] for line in maps.read_text().splitlines() if "omp" in line}) if maps.exists() else 1)
"""
    output, _ = ended(start(sources, code))
    threads, runtimes = output.splitlines()
    if threads == "-1 1":
        pytest.skip("this compiler and this torch have no OpenMP in common")
    assert (threads, runtimes) == ("3 2", "1")
    (path,) = libraries(cache)
    assert b"omp.so" not in path.read_bytes()
