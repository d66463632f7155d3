"""Settings of a command: types and ranges, problems named at once, YAML files, presets, and their flags."""

from __future__ import annotations

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flair_nas.cli.flags import add_run_flags, add_setting_flags, given_flags, settings_of_run
from flair_nas.errors import FlairNasError
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.settings import resolve as resolve_module
from flair_nas.settings.fields import (
    as_flags,
    changed,
    choice,
    find_problems,
    flatten,
    get_kinds,
    make_settings,
    part,
    raise_problems,
    setting,
)
from flair_nas.settings.resolve import load_preset, preset_names, read_settings, resolve, to_yaml
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tune.config import TuneConfig


@dataclass
class Soup:
    """Settings of every kind."""

    name: str = setting("pea", "what it is called")
    spice: str | None = setting(None, "any", choices=("salt", "pepper"))
    litres: float = setting(1.0, "how much", low=0.1, high=50)
    guests: int = setting(4, "how many, 100% of them", low=1)
    minutes: int | None = setting(None, "how long", high=600, check=lambda value: "must be even" if value % 2 else "")
    hot: bool = setting(True, "or cold")
    dishes: list[str] = setting(["bowl", "cup"], "what it is served in")
    times: list[int] = setting([12, 18], "hours", low=0, high=24)
    doses: list[float] = setting([], "of salt, none for all at once")

    def __post_init__(self) -> None:
        problems = find_problems(self)
        if not problems and self.hot and self.minutes == 0:
            problems.append("hot soup has to be cooked: minutes is 0")
        raise_problems(problems)


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of presets with one soup."""
    folder = tmp_path / "presets"
    (folder / "soup").mkdir(parents=True)
    (folder / "soup" / "leek.yaml").write_text("name: leek\nlitres: 2e-1\nminutes: 30\n")
    monkeypatch.setattr(resolve_module, "resource_path", lambda *parts: tmp_path.joinpath(*parts))
    return folder / "soup"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": ""}, "name must be text, got ''"),
        ({"spice": "sugar"}, "spice must be one of salt, pepper, got 'sugar'"),
        ({"litres": "1"}, "litres must be a number from 0.1 to 50, got '1'"),
        ({"litres": float("nan")}, "litres must be a number from 0.1 to 50, got nan"),
        ({"litres": 50.1}, "litres must be a number from 0.1 to 50, got 50.1"),
        ({"guests": 0}, "guests must be a whole number of at least 1, got 0"),
        ({"guests": 2.0}, "guests must be a whole number of at least 1, got 2.0"),
        ({"guests": True}, "guests must be a whole number of at least 1, got True"),
        ({"minutes": 601}, "minutes must be a whole number of at most 600, got 601"),
        ({"minutes": 7}, "minutes must be even, got 7"),
        ({"hot": 1}, "hot must be true or false, got 1"),
        ({"dishes": []}, "dishes must be a list of texts with at least one entry, got []"),
        ({"dishes": "bowl"}, "dishes must be a list of texts with at least one entry, got 'bowl'"),
        ({"dishes": [3]}, "dishes must be a list of texts with at least one entry, got [3]"),
        ({"times": [25]}, "times must be a list of whole numbers from 0 to 24 with at least one entry, as [1, 2]"),
        ({"times": [[1]]}, "got [[1]]"),
        ({"doses": [float("inf")]}, "doses must be a list of numbers, as [0.1, 0.2], got [inf]"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_could(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(FlairNasError, match="^settings that cannot be used: ") as caught:
        Soup(**changes)
    assert problem in str(caught.value) and ";" not in str(caught.value)


def test_all_problems_are_named_at_once_in_the_order_of_the_settings() -> None:
    with pytest.raises(FlairNasError) as caught:
        Soup(hot="no", litres=0, name=3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "settings that cannot be used: name must be text, got 3; litres must be a number from 0.1 to 50, got 0; "
        "hot must be true or false, got 'no'"
    )
    with pytest.raises(FlairNasError, match="has to be cooked"):
        Soup(minutes=0)


@pytest.mark.parametrize(
    "changes",
    [{"litres": 50}, {"litres": 0.1}, {"guests": 10**400}, {"minutes": -2}, {"spice": "salt"}, {"doses": [1, 0.5]},
     {"times": [0, 24]}, {"dishes": ["one"]}, {"hot": False}],
)  # fmt: skip
def test_values_at_the_edge_can_be_used(changes: dict[str, Any]) -> None:
    assert find_problems(Soup(**changes)) == []


def test_default_lists_are_not_shared() -> None:
    Soup().times.append(3)
    assert Soup().times == [12, 18]


def test_an_annotation_that_cannot_be_a_setting_is_a_mistake_of_the_program() -> None:
    @dataclass
    class Wrong:
        place: dict = setting(None, "nothing")

    with pytest.raises(TypeError, match="setting place"):
        get_kinds(Wrong)


def test_settings_written_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    soup = Soup(name="Żurek #1: é", spice="salt", litres=1e-1, minutes=2, hot=False, dishes=["a b"], doses=[1e-9])
    file.write_text(to_yaml(soup), encoding="utf-8")
    assert Soup(**read_settings(file, Soup)) == soup
    assert list(yaml.safe_load(to_yaml(soup))) == [field.name for field in dataclasses.fields(Soup)]


def test_an_exponent_is_a_number_where_a_number_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "soup.yaml"
    file.write_text("litres: 1e-5\nname: 1e-5\ndoses: [1]\n")  # YAML 1.1 takes 1e-5 for text
    assert read_settings(file, Soup) == {"litres": 1e-5, "name": "1e-5", "doses": [1]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"gusts: 3\nname: x\n3: 4",
            "unknown settings gusts, 3; did you mean guests? the settings are name, spice, litres",
        ),
        (b"- name", "expected settings as `name: value` lines"),
        (b"", "expected settings"),
        (b"name: {", "not a YAML file"),
        (b"name: \xff", "not a YAML file"),
        (b"name: 2024-13-01", "not a YAML file"),
        (b"hot: !!bool x", "not a YAML file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "soup.yaml"
    file.write_bytes(content)
    with pytest.raises(FlairNasError) as caught:
        read_settings(file, Soup)
    assert str(caught.value).startswith(f"{file}: ") and expected in str(caught.value)
    with pytest.raises(FlairNasError, match=r"cannot read this file of settings \(No such file"):
        read_settings(tmp_path / "none.yaml", Soup)


def test_the_later_of_defaults_preset_file_and_flags_wins(tmp_path: Path, presets: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("guests: 7\nminutes: 8\n")
    soup = resolve(Soup, kind="soup", preset="leek", file=file, flags={"guests": 9})
    assert (soup.name, soup.litres, soup.minutes, soup.guests, soup.hot) == ("leek", 0.2, 8, 9, True)
    assert resolve(Soup, kind="soup") == Soup()


def test_a_bad_value_in_a_file_is_told_with_the_file_though_a_flag_replaces_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("guests: 0\ntimes: 1,2\n")
    with pytest.raises(FlairNasError, match=r"mine\.yaml: .*guests must be .*; times must be .*, got '1,2'"):
        resolve(Soup, kind="soup", file=file, flags={"guests": 1})


def test_a_file_may_contradict_a_default_that_a_flag_changes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("minutes: 0\n")
    assert resolve(Soup, kind="soup", file=file, flags={"hot": False}).minutes == 0
    with pytest.raises(FlairNasError, match="has to be cooked"):
        resolve(Soup, kind="soup", file=file)


def test_presets_are_those_in_the_folder_of_their_kind(presets: Path) -> None:
    assert preset_names("soup") == ("leek",) and preset_names("salad") == ()
    assert load_preset("soup", "leek", Soup) == {"name": "leek", "litres": 0.2, "minutes": 30}
    with pytest.raises(FlairNasError, match=r"unknown preset 'lek'; did you mean leek\? there are leek"):
        load_preset("soup", "lek", Soup)
    with pytest.raises(FlairNasError, match="unknown preset '../soup/leek'"):
        load_preset("soup", "../soup/leek", Soup)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.set_defaults(action=parser)
    add_run_flags(parser, Soup, "soup", "folder where it is kept")
    return parser.parse_args(arguments)


def test_flags_give_values_of_the_type_of_their_setting() -> None:
    arguments = parsed(
        *["--name", "pho", "--litres", "2", "--guests", "3", "--minutes=-4", "--no-hot", "--dishes", "a", "b"],
        *["--times", "1,2", "--doses", "0.5"],
    )
    expected = {"name": "pho", "litres": 2.0, "guests": 3, "minutes": -4, "hot": False, "dishes": ["a", "b"],
                "times": [1, 2], "doses": [0.5]}  # fmt: skip
    assert given_flags(arguments, Soup) == expected
    assert given_flags(parsed(), Soup) == {}
    assert given_flags(parsed("--hot"), Soup) == {"hot": True}


def test_help_tells_the_defaults(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        parsed("--help")
    out = capsys.readouterr().out
    for line in ("how many, 100% of them (default: 4)", "what it is served in (default: bowl cup)", "--hot, --no-hot",
                 "hours (default: 12,18)", "folder where it is kept"):  # fmt: skip
        assert line in out
    assert "None" not in out


@pytest.mark.parametrize("arguments", [["--guests", "x"], ["--times", "1,x"], ["--doses", "1;2"]])
def test_flags_that_are_no_numbers_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*arguments)
    assert arguments[1] in capsys.readouterr().err


def test_a_run_takes_its_settings_from_flags_or_from_its_folder(tmp_path: Path, presets: Path) -> None:
    def run(*arguments: str) -> tuple[Soup, Path]:
        return settings_of_run(parsed(*arguments), Soup, "soup")

    assert run("--out", "pot", "--preset", "leek", "--guests", "2") == (
        Soup(name="leek", litres=0.2, minutes=30, guests=2),
        Path("pot"),
    )
    (tmp_path / "config.yaml").write_text(to_yaml(Soup(name="old")))
    assert run("--resume", str(tmp_path), "--guests", "5") == (Soup(name="old", guests=5), tmp_path)
    for arguments, expected in (
        ([], "--out DIR is needed: the folder where it is kept"),
        (["--resume", str(tmp_path), "--out", "x", "--config", "y"], "drop --out, --config"),
        (["--resume", str(presets)], "holds no run to go on with"),
        (["--out", "pot", "--guests", "0"], "guests must be"),
    ):
        with pytest.raises(FlairNasError, match=expected):
            run(*arguments)


# what was made to break it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("guests: 4\nname: pea\nguests: 5\n", "'guests' comes twice"),
        ("dishes: " + "[" * 5000 + "]" * 5000, "too deep"),
        ("dishes: " + "{a: " * 5000, "too deep"),
        ("guests: " + "9" * 10_000, "Exceeds the limit"),
        ("dishes: [" + "[1, 2], " * 1000 + "]", "dishes must be a list of texts"),
        ("dishes: [" + "[1, 2], " * 100_000 + "]", "more than 100,000 bytes"),
        ("name: !!python/object/apply:os.system [true]", "could not determine a constructor for the tag"),
        ("".join(f"key{number}: 1\n" for number in range(5_000)), "unknown settings key0, key1"),
        ("? {a: 1}\n: 2\n", "not a YAML file"),
    ],
    ids=["twice", "deep list", "deep mapping", "digits", "long", "too long", "code", "unknown", "key"],
)
def test_a_file_made_to_break_it_is_refused_in_short(tmp_path: Path, content: str, expected: str) -> None:
    (path := tmp_path / "soup.yaml").write_text(content)
    with pytest.raises(FlairNasError) as caught:
        resolve(Soup, kind="soup", file=path)
    assert expected in str(caught.value) and str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", ["pipe", "zero", "~nosuchuser/x", "a\0b"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    if name == "pipe":
        os.mkfifo(tmp_path / name)
    elif name == "zero":
        (tmp_path / name).symlink_to("/dev/zero")
    path = name if "~" in name else str(tmp_path / name)
    with pytest.raises(FlairNasError, match="regular file|home folder|embedded null"):
        read_settings(path, Soup)


def test_a_value_of_the_wrong_kind_is_shown_in_short() -> None:
    value: Any = 1
    for _ in range(3000):
        value = [value, value]
    with pytest.raises(FlairNasError) as caught:
        Soup(guests=value, name=10**5000, dishes=["x" * 10**6, 1])  # type: ignore[arg-type, list-item]
    assert len(str(caught.value)) < 1000 and "a large int" in str(caught.value)


def test_settings_that_utf_8_cannot_hold_survive_yaml(tmp_path: Path) -> None:
    (path := tmp_path / "soup.yaml").write_text(to_yaml(Soup(name="file \udcff")), encoding="utf-8")
    assert read_settings(path, Soup)["name"] == "file \udcff"


@dataclass
class Hob:
    """Settings of a hob."""

    heat: int = setting(5, "level", low=1, high=9)
    lid: bool = setting(True, "covered")


@dataclass
class Oven:
    """Settings of an oven."""

    heat: int = setting(180, "degrees", low=50, high=300)
    fan: bool = setting(False, "moving air")


@dataclass
class Side:
    """Settings of what is served beside it."""

    bread: str | None = setting(None, "kind of bread")


@dataclass
class Meal:
    """Settings with a choice, and a part of their own."""

    guests: int = setting(4, "how many", low=1)
    heater: Hob | Oven | str = choice("hob", lambda: {"hob": Hob, "oven": Oven}, "source of heat")
    side: Side = part(Side, "beside it")

    def __post_init__(self) -> None:
        raise_problems(find_problems(self))


def test_a_choice_is_made_by_name_or_by_its_settings() -> None:
    assert Meal().heater == Meal(heater="hob").heater == Hob()
    assert Meal(heater="oven").heater == Oven() and Meal(heater=Oven(fan=True)).heater == Oven(fan=True)
    assert dataclasses.replace(Meal(heater=Oven()), heater="hob") == Meal()
    for heater, problem in (
        ("grill", "heater must be one of hob, oven, got 'grill'"),
        (Oven(heat=5), "heat must be a whole number from 50 to 300, got 5"),
        (Side(), "heater must be of Hob or Oven, got Side"),
        (Hob, "heater must be of Hob or Oven, got type"),
    ):
        with pytest.raises(FlairNasError, match=problem):
            Meal(guests=2, heater=heater)  # type: ignore[arg-type]
    with pytest.raises(FlairNasError, match="guests must be .*; side must be of Side, got None"):
        Meal(guests=0, side=None)  # type: ignore[arg-type]


def test_files_and_flags_have_the_settings_of_a_choice_flat(tmp_path: Path) -> None:
    meal = Meal(heater=Oven(heat=200), side=Side(bread="rye"))
    flat = {"guests": 4, "heater": "oven", "heat": 200, "fan": False, "bread": "rye"}
    assert flatten(meal) == flat and make_settings(Meal, flat) == meal
    (tmp_path / "config.yaml").write_text(to_yaml(meal))
    assert list(yaml.safe_load(to_yaml(meal))) == [*flat]
    assert resolve(Meal, file=tmp_path / "config.yaml") == meal
    assert changed(meal) == {"heater": "oven", "heat": 200, "bread": "rye"}
    assert as_flags(meal, Meal) == "--heater oven --heat 200 --bread rye"
    with pytest.raises(FlairNasError, match="guests must be .*; lid must be .*; fan belongs to heater oven, not hob"):
        make_settings(Meal, {"guests": 0, "fan": True, "lid": 3})
    with pytest.raises(FlairNasError, match=r"config.yaml: unknown settings fann; did you mean fan\?"):
        (tmp_path / "config.yaml").write_text("heater: oven\nfann: true\n")
        resolve(Meal, file=tmp_path / "config.yaml")


def test_help_has_a_section_for_each_set_of_owners(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_setting_flags(parser, Meal)
    parser.print_help()
    shown = capsys.readouterr().out
    sections = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections[1:] == ["heater:", "beside it:", "heater hob or oven:", "heater hob:", "heater oven:"]
    assert "source of heat: hob, oven (default: hob)" in shown and "(default: hob: 5; oven: 180)" in shown
    found = given_flags(parser.parse_args(["--fan", "--bread", "rye"]), Meal)
    assert found == {"fan": True, "bread": "rye"}


@pytest.mark.parametrize("reproject", [True, False, 2, 256])
def test_a_switch_is_on_off_or_a_number(reproject: Any, tmp_path: Path) -> None:
    for config in (TaggerConfig(reproject=reproject), TaggingSearchConfig(reproject=reproject)):
        (tmp_path / "config.yaml").write_text(to_yaml(config))
        read = resolve(type(config), file=tmp_path / "config.yaml")
        assert read == config and type(read.reproject) is type(reproject)


@pytest.mark.parametrize("reproject", [0, 1, -3, 2.5, "yes", None, [3]])
def test_what_is_no_switch_is_refused(reproject: Any) -> None:
    for config_type in (TaggerConfig, TaggingSearchConfig):
        with pytest.raises(FlairNasError, match="reproject must be true, false or a whole number from 2 to"):
            config_type(reproject=reproject)


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--reproject", True),
        ("--no-reproject", False),
        ("--reproject 64", 64),
        ("--reproject-embeddings 64 --crf", 64),
        ("--no-reproject-embeddings", False),
        ("--crf", None),
    ],
)
def test_the_flags_of_a_switch(flags: str, value: Any) -> None:
    parser = argparse.ArgumentParser()
    add_setting_flags(parser, TaggerConfig)
    found = given_flags(parser.parse_args(flags.split()), TaggerConfig)
    assert found.get("reproject") is value or (type(value) is int and found["reproject"] == value)
    if value is not None:
        config = TaggerConfig(reproject=value)
        again = parser.parse_args(as_flags(config, TaggerConfig).split())
        assert TaggerConfig(**given_flags(again, TaggerConfig)) == config


def test_flairs_names_of_settings_stand_for_ours(tmp_path: Path) -> None:
    ours = TaggerConfig(rnn="lstm", layers=2, crf=False, reproject=False, clip=1.0, batch_size=8, epochs=3)
    flairs = {"rnn_type": "lstm", "rnn_layers": 2, "use_crf": False, "reproject_embeddings": False}
    flairs |= {"max_grad_norm": 1.0, "mini_batch_size": 8, "max_epochs": 3}
    assert TaggerConfig(**flairs) == ours
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(flairs))
    assert resolve(TaggerConfig, file=tmp_path / "config.yaml") == ours
    (tmp_path / "written.yaml").write_text(to_yaml(ours))
    assert set(read_settings(tmp_path / "written.yaml", TaggerConfig)) == set(get_kinds(TaggerConfig))


def test_a_tuning_takes_them_too(tmp_path: Path) -> None:
    ours = TuneConfig(corpus="demo", batch_size=8, epochs=3)
    assert TuneConfig(corpus="demo", mini_batch_size=8, max_epochs=3) == ours  # type: ignore[call-arg]
    (tmp_path / "config.yaml").write_text("corpus: demo\nmini_batch_size: 8\nmax_epochs: 3\n")
    assert resolve(TuneConfig, file=tmp_path / "config.yaml") == ours


def test_a_setting_by_both_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlairNasError, match="epochs is also max_epochs, give one of them"):
        TaggerConfig(epochs=3, max_epochs=3)  # type: ignore[call-arg]
    (tmp_path / "config.yaml").write_text("batch_size: 8\nmini_batch_size: 8\n")
    with pytest.raises(FlairNasError, match=r"config.yaml: .*batch_size is also mini_batch_size"):
        resolve(TaggerConfig, file=tmp_path / "config.yaml")


def test_a_name_that_is_close_to_a_setting_is_offered(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="TaggerConfig has no setting 'max_epoch'; did you mean max_epochs"):
        TaggerConfig(max_epoch=3)  # type: ignore[call-arg]
    for written, meant in (("hiden_size", "hidden_size"), ("lr", "learning_rate")):
        (tmp_path / "config.yaml").write_text(f"{written}: 1\n")
        with pytest.raises(FlairNasError, match=f"unknown settings {written}; did you mean {meant}"):
            resolve(TaggerConfig, file=tmp_path / "config.yaml")


def test_values_of_like_types_are_taken_as_a_file_would_hold_them(tmp_path: Path) -> None:
    soup = Soup(name=tmp_path, times=(1, 2), dishes=(tmp_path, "cup"), guests=np.int64(3), litres=np.float64(0.5))  # type: ignore[arg-type]
    assert soup == Soup(name=str(tmp_path), times=[1, 2], dishes=[str(tmp_path), "cup"], guests=3, litres=0.5)
    assert yaml.safe_load(to_yaml(soup)) == dataclasses.asdict(soup)
    assert Soup(times=np.array([3, 4])).times == Soup(times=range(3, 5)).times == [3, 4]  # type: ignore[arg-type]
    with pytest.raises(FlairNasError, match=r"name must be text, got Soup Soup\(name='pea'"):
        Soup(name=Soup())  # type: ignore[arg-type]
