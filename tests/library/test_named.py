"""Named genotypes, and the resources that go with the code: in a checkout and in an installed wheel."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import flair_nas
from flair_nas.genotype import Genotype, GenotypeError, random_genotype
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.storage.resources import resource_path

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("darts-v1", "darts-v2", "ednas", "enas-lm", "enas-ptb", "enas-script", "ennas", "ennas-pr", "ess-ptb"),
    *("gdas", "i-darts-ptb", "nao", "nao-ws", "nsas", "sdarts-adv", "sdarts-rs"),
    *("small-relu", "small-relu-tanh", "small-tanh"),
)


# --- load_genotype ----------------------------------------------------------------------------------------------------


def test_the_bundled_names_are_in_alphabetical_order_and_all_load() -> None:
    assert bundled_names() == NAMES
    assert len({load_genotype(name) for name in NAMES}) == len(NAMES)


def test_every_bundled_file_is_as_the_package_would_write_it() -> None:
    for name in NAMES:
        assert load_genotype(name).to_json() == resource_path("genotypes", f"{name}.json").read_text(encoding="utf-8")


def test_what_a_bundled_file_refers_to_exists() -> None:
    origins = {name: {**load_genotype(name).origin, "command": ""} for name in NAMES}  # of its day
    texts = {name: json.dumps(origin) for name, origin in origins.items()}
    paths = {
        name: re.findall(r"\b(?:docs|benchmarks|examples|resources|tests)/[\w./-]*\w", texts[name]) for name in NAMES
    }
    assert sum(map(len, paths.values())) > 4
    missing = [(name, path) for name in NAMES for path in paths[name] if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("module", ["flair_nas", "flair_nas.onnx"])
def test_completion_offers_the_public_names_alone(module: str) -> None:
    offered = importlib.import_module(module)
    assert [name for name in dir(offered) if not name.startswith("__")] == sorted(offered.__all__)


def test_a_genotype_is_returned_as_it_is() -> None:
    genotype = random_genotype(1)
    assert load_genotype(genotype) is genotype


@pytest.mark.parametrize("name", ["mine.json", "no ending", "tanh0-relu1"])
@pytest.mark.parametrize("form", ["json", "line", "printed"])
def test_a_file_of_any_written_form_is_read_by_path_and_by_text(name: str, form: str, tmp_path: Path) -> None:
    genotype = Genotype.parse("sigmoid0-tanh1")
    printed = "epoch 1 Genotype(recurrent=[('sigmoid', 0), ('tanh', 1)], concat=range(1, 3))\n"
    path = tmp_path / name
    path.write_text({"json": genotype.to_json(), "line": f"{genotype}\n", "printed": printed}[form])
    assert load_genotype(path) == load_genotype(str(path)) == genotype


def test_a_saved_file_loads_with_options_and_origin(tmp_path: Path) -> None:
    nodes = Genotype.parse("tanh0+relu0-sigmoid1").nodes
    genotype = Genotype(nodes, highway=False, combine="sum", gate="product", origin={"corpus": "naïve – 漢字"})
    genotype.save(tmp_path / "mine.json")
    back = load_genotype(tmp_path / "mine.json")
    assert (back, back.options, back.origin) == (genotype, genotype.options, genotype.origin)


def test_written_forms_are_read_where_they_stand() -> None:
    genotype = random_genotype(3, nodes=4, edges_per_node=2, history=2)
    assert load_genotype(genotype.one_line()) == load_genotype(genotype.to_json()) == genotype
    assert load_genotype("Genotype(recurrent=[('tanh', 0)], concat=[1])") == load_genotype("tanh0")


def test_a_bundled_name_goes_before_a_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("darts-v1").write_text("tanh0")
    assert len(load_genotype("darts-v1").nodes) == 8
    assert load_genotype(tmp_path / "darts-v1") == load_genotype("./darts-v1") == Genotype.parse("tanh0")


def test_the_folder_of_a_search_stands_for_what_it_found(tmp_path: Path) -> None:
    genotype = random_genotype(3, nodes=3)
    with pytest.raises(GenotypeError, match="expected a name"):
        load_genotype(str(tmp_path))
    genotype.save(tmp_path / "genotype.json")
    assert load_genotype(str(tmp_path)) == load_genotype(tmp_path) == genotype


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("dart-v2", ["darts-v2", "darts-v1"]),
        ("darts-v11", ["darts-v1", "darts-v2"]),
        ("I-DARTS-PTB", ["i-darts-ptb"]),
        ("idarts-ptb", ["i-darts-ptb"]),
        ("enas_ptb", ["enas-ptb"]),
        ("ess-pbt", ["ess-ptb"]),
    ],
)
def test_an_unknown_name_gets_the_close_matches_best_first(name: str, close: list[str]) -> None:
    with pytest.raises(GenotypeError) as caught:
        load_genotype(name)
    message = str(caught.value)
    hint = re.search(r"did you mean (.*?)\?", message)
    assert hint is not None, message
    assert hint[1].split(" or ")[: len(close)] == close
    assert f"there is no genotype {name!r}: " in message and "found" not in message and ", ".join(NAMES) in message


@pytest.mark.parametrize("name", ["", "lstm", "quite-another-thing", "x" * 5000, "no/such/folder"])
def test_a_name_like_no_other_gets_the_known_ones_and_no_guess(name: str) -> None:
    with pytest.raises(GenotypeError) as caught:
        load_genotype(name)
    message = str(caught.value)
    assert "did you mean" not in message and ", ".join(NAMES) in message
    assert len(message) - len(", ".join(NAMES)) < 250


def test_a_file_that_is_missing_is_named_and_no_name_is_guessed(tmp_path: Path) -> None:
    for source in (tmp_path / "darts-v1", str(tmp_path / "darts-v1.json"), tmp_path):
        with pytest.raises(GenotypeError) as caught:
            load_genotype(source)
        assert str(caught.value).startswith(f"{source}: expected a readable genotype file (")


def test_a_resource_that_is_missing_is_named_with_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match=r"genotypes/none\.json is missing.*reinstall flair-nas"):
        resource_path("genotypes", "none.json")


# --- checkout and wheel -----------------------------------------------------------------------------------------------

PROBE = """
import json
import flair_nas
from flair_nas import bundled_names, load_genotype
from flair_nas.storage.resources import resource_path
from flair_nas.settings.resolve import preset_names, resolve
from flair_nas.tagging.config import TaggerConfig
for name in preset_names("tagging"):
    assert isinstance(resolve(TaggerConfig, kind="tagging", preset=name), TaggerConfig)
print(json.dumps({
    "package": flair_nas.__file__,
    "resources": str(resource_path()),
    "genotypes": {name: load_genotype(name).one_line() for name in bundled_names()},
    "presets": preset_names("tagging"),
    "demo": sorted(path.name for path in resource_path("demo").iterdir()),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this checkout."""
    missing = [name for name in ("build", "hatchling") if find_spec(name) is None]
    if missing:
        pytest.fail(f"this test builds a wheel and needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.fail(f"the wheel does not build:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    (built,) = folder.glob("*.whl")
    return built


def run_alone(folder: Path, code: str, cwd: Path) -> str:
    """Run code with nothing but a folder on PYTHONPATH, outside the checkout; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_finds_the_same_resources_inside_itself(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, timeout=300)
    command = [site / "bin" / "flair-nas", "--version"]
    shown = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=300
    )
    assert shown.stdout == f"flair-nas {flair_nas.__version__}\n", shown.stderr
    found = json.loads(run_alone(site, PROBE, cwd=elsewhere))
    assert found["package"] == str(site / "flair_nas" / "__init__.py")
    assert found["resources"] == str(site / "flair_nas" / "resources")
    checkout = json.loads(run_alone(ROOT, PROBE, cwd=elsewhere))
    assert checkout["resources"] == str(ROOT / "resources") and tuple(checkout["genotypes"]) == NAMES
    for key in ("genotypes", "presets", "demo"):
        assert found[key] == checkout[key]


def test_a_wheel_holds_all_code_and_resources_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        (entry_points,) = (archive.read(name) for name in archive.namelist() if name.endswith("entry_points.txt"))
    package = [path for path in (ROOT / "flair_nas").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    code = {path.relative_to(ROOT): path for path in package}
    data = {"flair_nas" / path.relative_to(ROOT): path for path in (ROOT / "resources").rglob("*") if path.is_file()}
    assert held == {str(inside): path.read_bytes() for inside, path in {**code, **data}.items()}
    assert b"flair-nas = flair_nas.cli:main" in entry_points


@pytest.mark.parametrize("name", ["LSTM", "gru", "sru"])
def test_layers_without_a_genotype_are_named_as_such(name: str) -> None:
    with pytest.raises(GenotypeError, match=f"{name} is a layer without a genotype"):
        load_genotype(name)


def test_a_folder_that_is_none_of_a_search_is_told(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    with pytest.raises(GenotypeError, match=f"there is no genotype.json in the folder {tmp_path}/search"):
        load_genotype(f"{tmp_path}/search")
