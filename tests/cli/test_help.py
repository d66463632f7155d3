"""Help: it comes at once, because asking for it loads neither torch nor Flair."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import flair_nas
from flair_nas.cli import main
from flair_nas.search.config import SearchConfig
from flair_nas.settings.resolve import resolve
from flair_nas.storage.resources import resource_path

ROOT = Path(__file__).resolve().parents[2]

# Runs `python -m flair_nas` in this process, then tells on stderr's last line how it ended and what it loaded.
PROBE = """
import json, runpy, sys
try:
    runpy.run_module("flair_nas", run_name="__main__", alter_sys=True)
    code = "no exit"
except SystemExit as stop:
    code = stop.code
loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "flair", "transformers", "plotly"})
print("\\n" + json.dumps([code, loaded]), file=sys.stderr)
"""

VERBS = (
    *("search", "tune", "lm train", "tag train", "tag predict", "report"),
    *("genotypes list", "convert"),
)


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    loaded: list[str]
    output: str
    errors: str


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def probe(*arguments: str) -> Ended:
    done = run_python(PROBE, *arguments)
    assert done.returncode == 0, done.stderr
    errors, _, last = done.stderr.rstrip().rpartition("\n")
    code, loaded = json.loads(last)
    return Ended(code, loaded, done.stdout, errors)


def test_help_of_the_command_names_its_verbs_and_loads_nothing_heavy() -> None:
    ended = probe("--help")
    assert (ended.code, ended.loaded) == (0, [])
    assert ended.output.startswith("usage: flair-nas ") and "exit codes: 0 done" in ended.output
    assert "find them on text" in ended.output and all(
        re.search(rf"\n    {verb}\s", ended.output) for verb in ("search", "tune", "lm", "tag", "genotypes")
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_loads_nothing_heavy(verb: str) -> None:
    ended = probe(*verb.split(), "--help")
    assert (ended.code, ended.loaded) == (0, []) and ended.output.startswith(f"usage: flair-nas {verb} ")


def test_help_of_a_search_begins_with_what_all_need_and_has_sections() -> None:
    lines = probe("search", "--help").output.splitlines()
    assert lines[2] == "" and lines[3].startswith("Search a recurrent cell")  # two lines of usage, not a page
    section, found = "", {}
    for line in lines:
        section = line.rstrip(":") if re.fullmatch(r"[a-z].*:", line) else section
        found.update(dict.fromkeys(re.findall(r"^  (--[a-z-]+)", line), section))
    expected = {"--out": "options", "--epochs": "options", "--nodes": "cell and gates",
                "--strategy": "strategy", "--rungs": "strategy random-independent",
                "--samples": "strategy random-shared, random-independent or enas", "--after": "continual search",
                "--clip": "model weights", "--arch-clip": "strategy gradient",
                "--bptt": "objective text"}  # fmt: skip
    assert {flag: found[flag] for flag in expected} == expected


def test_the_version_is_that_of_the_package() -> None:
    ended = probe("--version")
    assert (ended.code, ended.loaded, ended.output) == (0, [], f"flair-nas {flair_nas.__version__}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            ["tga"],
            "unknown: 'tga'; did you mean tag? there are search, forgetting, tune, distil, convert, tag, lm, charlm, "
            "embed, report, genotypes;",
        ),
        (["tag", "trian"], "did you mean train? there are train, evaluate, predict, export, publish;"),
        ([], "VERB"),
        (["tag"], "ACTION"),
    ],
    ids=["unknown verb", "unknown action", "no verb", "no action"],
)
def test_arguments_that_are_not_understood_exit_with_2_and_name_them(arguments: list[str], named: str) -> None:
    ended = probe(*arguments)
    assert (ended.code, ended.loaded, ended.output) == (2, [], "")
    (said,) = ended.errors.splitlines()
    assert named in said and said.endswith("--help tells more")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "tag train --rnnn=x",
            "unknown flag --rnnn: did you mean --rnn? flair-nas tag train --help lists them",
        ),
        ("tag train --lr 0.3", "unknown flag --lr: did you mean --learning-rate?"),
        ("tag train --max-epoch 8", "unknown flag --max-epoch: did you mean --max-epochs"),
        ("search --max-epochs 8", "unknown flag --max-epochs: did you mean --epochs"),
        ("--quiet tag train --corpus demo", "--quiet must come after the action: flair-nas tag train --quiet ..."),
        ("search --xyz", "unknown flag --xyz: flair-nas search --help lists them"),
        ("tag train more 'of it'", "unexpected: 'more' 'of it'"),
    ],
)
def test_an_unknown_flag_is_named_with_those_that_are_like_it(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(arguments)) == 2
    assert capsys.readouterr().err.startswith(f"flair-nas: {message}")


@pytest.mark.slow
def test_importing_the_package_loads_neither_torch_nor_flair_until_a_layer_is_asked_for() -> None:
    code = """
import json, sys
def loaded(): return sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "flair"})
import flair_nas
steps = [loaded()]
from flair_nas import Genotype, bundled_names, load_genotype, random_genotype
load_genotype("darts-v1")
steps.append(loaded())
from flair_nas import SearchedRNN
print(json.dumps([*steps, loaded()]))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], [], ["torch"]]


@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (["search"], ["presets/search"]),
        (["tag", "train"], ["presets/tagging"]),
        (["lm", "train"], ["presets/language_model"]),
        (["tune"], ["presets/tagging", "presets/language_model"]),
    ],
)
def test_presets_are_listed_with_size_and_time(
    words: list[str], folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--list-presets"])
    assert ended.value.code == 0
    head, *rows = (re.split(r" {2,}", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["name", "size", "time", "what it is"] and all(len(row) == 4 and all(row) for row in rows)
    files = [path for folder in folders for path in resource_path(folder).glob("*.yaml")]
    assert sorted(row[0] for row in rows) == sorted(path.stem for path in files)


def test_a_preset_that_is_listed_loads_nothing_heavy_and_can_be_a_config_file() -> None:
    listed = probe("search", "--list-presets")
    assert (listed.code, listed.loaded) == (0, []) and "H 64, 8 nodes, " in listed.output
    path = resource_path("presets", "search", "gdas-small.yaml")
    assert resolve(SearchConfig, file=path) == resolve(SearchConfig, kind="search", preset="gdas-small")


REFUSED = {
    "tag train --corpus demo --device gpu --out NEW": "device must be cpu, cuda or cuda:N, got 'gpu'",
    "tag train --corpus nowhere --out NEW": "unknown corpus 'nowhere'",
    "tag train --corpus demo --out FULL": "is not empty, and holds no run to go on with",
    "tag predict --model FULL --device cuda:x hi": "--device must be cpu, cuda or cuda:N, got 'cuda:x'",
    "tune --corpus demo --out FULL": "is not empty, and holds no tuning to go on with",
    "charlm train --text demo --out FULL": "is not empty, and holds no run to go on with",
    "charlm evaluate --text demo --model NEW": "there is no such model",
    "lm train --text demo --out FULL": "is not empty, and holds no run to go on with",
    "lm evaluate --text demo --model NEW": "there is no such model",
    "search --preset i-darts-small --device gpu --out NEW": "device must be cpu, cuda or cuda:N, got 'gpu'",
}


@pytest.mark.slow
def test_what_needs_no_library_is_refused_before_one_is_loaded(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    commands = [
        [{"NEW": str(tmp_path / "new"), "FULL": str(full)}.get(word, word) for word in text.split()] for text in REFUSED
    ]
    code = (
        "import json, sys\nfrom flair_nas.cli import main\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    print(main(command), [name for name in ('torch', 'flair') if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, json.dumps(commands)], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["2 []"] * len(REFUSED), ended.stderr
    for message, line in zip(REFUSED.values(), ended.stderr.splitlines(), strict=True):
        assert message in line
    assert not (tmp_path / "new").exists()
