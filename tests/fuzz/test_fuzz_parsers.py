"""Whatever is in a text, a file or a name: a valid object, or one error that a user can act on, soon, in few words."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import os
import random
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flair
import pytest
from commands import Ended, run
from drawn_genotypes import KEPT, DartsTuple, genotypes
from fuzzing import check_message, fuzzed, outcome
from hypothesis import strategies as st
from mutations import ANYTHING, mutated, pieces_of

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.saved import load_language_model
from flair_nas.language_model.text.corpus import END, TextCorpus, load_text
from flair_nas.library.layer_spec import LAYER_OPTIONS, parse_layer_spec
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.search.config import SearchConfig
from flair_nas.settings.fields import Kind, flatten, get_all_kinds, get_classes, get_kinds, make_settings
from flair_nas.settings.resolve import preset_names, read_settings, resolve, to_yaml
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.column_files import parse_columns, pick_columns, read_column_file
from flair_nas.tagging.data.column_rows import ColumnFormat
from flair_nas.tagging.data.corpora import TaggingCorpus, load_corpus
from flair_nas.tagging.prediction import load_tagger

pytestmark = pytest.mark.slow

SAVED = Path(__file__).resolve().parents[1] / "saved"
CONFIGS = {TaggerConfig: "tagging", LanguageModelConfig: "language_model", SearchConfig: "search"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder of these tests, in which a name that happens to be that of a file finds none of ours."""
    path = tmp_path_factory.mktemp("fuzz") / "inner"
    path.mkdir()
    (path.parent / "neighbour").touch()  # a run in `..` is refused
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setenv("FLAIR_NAS_CACHE", str(path / "cache"))
        yield path


@pytest.fixture(scope="module")
def files(folder: Path) -> Path:
    """For the files that tests write."""
    (folder / "files").mkdir()
    return folder / "files"


# --- genotypes ---


def printed(genotype: Genotype) -> str:
    """As the DARTS code prints it; gates are left out."""
    lists = [[(edge.op, edge.tail) for edge in edges] for edges in genotype.nodes]
    return repr(DartsTuple([pairs[0] if len(pairs) == 1 else pairs for pairs in lists], list(genotype.output)))


ONE_LINE = genotypes().map(Genotype.one_line)
JSON = st.one_of(
    genotypes().map(Genotype.to_json), genotypes().map(lambda genotype: json.dumps(genotype.to_dict(), indent=None))
)
WRITTEN = st.one_of(ONE_LINE, JSON, genotypes().map(printed))
OF_GENOTYPES = pieces_of(
    *KEPT, "drop", "tanh0", "+relu1", "-tanh0", ":1.2", "/state=", "/input=", "9" * 9, "9" * 5000,
    '"op"', '"tail"', '"nodes"', '"cell": ', '"format": "flair-nas/genotype",', "null", "true", "NaN", "1e999", "-0",
    "[[", "]]", "{", "}, ", "[" * 3000, '{"origin":' * 3000, "Genotype(", "recurrent=", "concat=", "range(1, 9)",
    "range(10**9)", "('tanh', 0), ", "(" * 300, "**", "lambda: 0", "-" * 3000, "__import__('os')", "\\ud800",
)  # fmt: skip


def check_genotype(found: Any) -> None:
    """An error, or a genotype that can be written in every form and read again."""
    if isinstance(found, FlairNasError):
        return
    assert isinstance(found, Genotype)
    assert Genotype.parse(found.one_line()) == found
    again = Genotype.from_json(found.to_json())
    assert (again, again.options, again.origin) == (found, found.options, found.origin)


@fuzzed("genotype text", 60, text=mutated(WRITTEN, OF_GENOTYPES) | ANYTHING)
def test_any_text_is_a_genotype_or_refused(text: str) -> None:
    check_genotype(outcome(lambda: Genotype.parse(text)))
    check_genotype(outcome(lambda: Genotype.from_json(text)))


@fuzzed("genotype file", 30, content=mutated(WRITTEN, OF_GENOTYPES).map(lambda t: t.encode(errors="surrogatepass"))
        | st.binary(max_size=50))  # fmt: skip
def test_any_file_is_a_genotype_or_refused(files: Path, content: bytes) -> None:
    path = files / "cell.json"
    path.write_bytes(content)
    check_genotype(outcome(lambda: Genotype.load(path)))
    check_genotype(outcome(lambda: load_genotype(path)))


RNN_OPTIONS = st.tuples(
    st.sampled_from([*LAYER_OPTIONS, "highway", "combine", "gate", "other", ""]),
    st.sampled_from(["0.25", "1e-3", "-1", "nan", "inf", "true", "sum", "mean", "product", "", "9" * 400]) | ANYTHING,
).map("=".join)
RNN_TEXTS = st.tuples(
    st.sampled_from([*bundled_names(), "lstm", "GRU"]) | WRITTEN, st.lists(RNN_OPTIONS, max_size=4)
).map(lambda parts: ",".join([parts[0], *parts[1]]))


@fuzzed(
    "layer text",
    60,
    text=mutated(RNN_TEXTS, pieces_of(*bundled_names(), ",dropout=0.1", ",a", ", ", "=", "[1, 2]", "x.json")),
)
def test_any_text_is_a_layer_or_refused(folder: Path, text: str) -> None:
    check_genotype(outcome(lambda: load_genotype(text)))
    found = outcome(lambda: parse_layer_spec(text, ("LSTM", "GRU")))
    if not isinstance(found, FlairNasError):
        genotype, numbers = found
        check_genotype(genotype)
        assert set(numbers) <= set(LAYER_OPTIONS) and all(isinstance(value, float) for value in numbers.values())


MANY, MOST = 30_000, 300_000
ONE = Genotype.parse("tanh0").to_json()
HUGE = {
    "nodes on one line": lambda: "-".join(["tanh0"] * MOST),
    "edges on one line": lambda: "+".join(["tanh0"] * MANY),
    "outputs on one line": lambda: "tanh0:" + ".".join(["1"] * MANY),
    "nodes of a gate": lambda: "tanh0/state=" + "-".join(["tanh"] * MANY),
    "gates": lambda: "tanh0" + "/state=tanh" * MANY,
    "nodes in JSON": lambda: ONE.replace('"nodes": [', '"nodes": [' + "[]," * MOST),
    "keys in JSON": lambda: ONE.replace('"origin": {', '"origin": {"a": 0,' + '"a": 0,' * MANY),
    "brackets in JSON": lambda: '{"a":' + "[" * MANY,
    "closed brackets in JSON": lambda: '{"a":' + "[" * MANY + "]" * MANY + "}",
    "a word": lambda: "a" * MANY,
    "a number": lambda: "tanh" + "9" * MANY,
    "a number in JSON": lambda: ONE.replace('"tail": 0', '"tail": ' + "9" * MANY),
    "a printed tuple": lambda: f"Genotype(recurrent=[{'(1, 2), ' * MANY}])",
    "printed brackets": lambda: f"Genotype(recurrent={'[' * MANY}{']' * MANY})",
    "printed beginnings": lambda: "Genotype(" * MANY,
    "a printed range": lambda: "Genotype(recurrent=[('tanh', 0)], concat=range(1, 10**12))",
    "a printed range of literals": lambda: f"Genotype(recurrent=[('tanh', 0)], concat=range({'9' * 4000}))",
    "options": lambda: "i-darts-ptb" + ",a" * MANY,
    "empty options": lambda: "i-darts-ptb" + ",a=" * MANY,
    "commas": lambda: "i-darts-ptb" + "," * MANY,
    "blanks": lambda: "i-darts-ptb," + " " * MANY + "=",
    "blanks before an option": lambda: "i-darts-ptb" + ", " * MANY + "a=!",
}


@pytest.mark.parametrize("kind", HUGE)
def test_what_is_far_too_long_is_refused_soon(kind: str, files: Path) -> None:
    text = HUGE[kind]()
    (files / "cell.json").write_text(text)
    more = (Genotype.from_json, load_genotype, parse_layer_spec) if len(text) < MOST else ()
    for read in (Genotype.parse, *more):
        assert isinstance(outcome(lambda read=read: read(text)), FlairNasError)  # type: ignore[misc]
    assert isinstance(outcome(lambda: Genotype.load(files / "cell.json")), FlairNasError)


# --- settings ---


def values(kind: Kind) -> st.SearchStrategy[Any]:
    """What a setting may be, and some of what it may not."""
    low: Any = kind.low
    high: Any = kind.high
    one: st.SearchStrategy[Any] = {
        bool: st.booleans(),
        int: st.integers(low, high),
        float: st.floats(low, high, allow_nan=False),
        str: st.sampled_from(kind.choices) if kind.choices else ANYTHING,
    }[kind.type]
    found = st.lists(one, max_size=4) if kind.many else one
    return found | st.none() if kind.optional else found


def configs(config_type: type) -> st.SearchStrategy[Any]:
    """Settings that can be used."""

    def made(changes: list[dict[str, Any]]) -> Any:
        config = config_type()
        for change in changes:
            with contextlib.suppress(FlairNasError):  # what contradicts others is left out
                kept = flatten(config)
                if get_classes(config_type).keys() & change.keys():  # another class has other settings
                    kept = {name: value for name, value in kept.items() if name in get_kinds(config_type)}
                config = make_settings(config_type, {**kept, **change})
        return config

    kinds = get_all_kinds(config_type)
    change = st.one_of([st.fixed_dictionaries({name: values(kind)}) for name, kind in kinds.items()])
    return st.lists(change, max_size=5).map(made)


OF_YAML = pieces_of(
    "&a ", "*a", "<<: *a", "<<: {epochs: 3}", "!!python/object/apply:os.system [ls]", "!!binary aGk=", "!!float ''",
    "!!int ''", "!!int x", "!!bool x", "!!timestamp x", "!!null x", "!!set", "!!omap", "!!pairs [1]", "!x", "! ", "? ",
    "- ", ": ", "[", "{", "}", "'", '"', "|", ">-", "...", "---", "%YAML 9.9\n---\n", "%TAG ! x\n", "# ", "\t",
    "epochs: 3\n", "seed: 1\n", "1e999", "-.inf", ".nan", "0x" + "f" * 4000, "9" * 4000, "9" * 5000, "0b1", "1_0",
    "1:59:59", "1" + ":59" * 900, "2024-13-01", "2024-01-01", "yes", "~", "null", '"\\ud800"', '"\\0"',
    "[" * 2000, "{a: " * 2000, "- " * 2000, "? " * 2000,
)  # fmt: skip


@st.composite
def settings_files(draw: st.DrawFn) -> tuple[type, str]:
    """A kind of settings, and a file that began as one of it, some of whose values are replaced."""
    config_type = draw(st.sampled_from([*CONFIGS]))
    lines = to_yaml(draw(configs(config_type))).splitlines()
    for number in draw(st.lists(st.integers(0, len(lines) - 1), max_size=2)):
        lines[number] = f"{lines[number].partition(':')[0]}: {draw(OF_YAML)}"
    return config_type, draw(mutated(st.just("\n".join(lines)), OF_YAML, most=2))


@fuzzed("settings", 25, config=st.one_of([configs(config_type) for config_type in CONFIGS]))
def test_settings_survive_their_file(files: Path, config: Any) -> None:
    path, config_type = files / "config.yaml", type(config)
    path.write_text(to_yaml(config), encoding="utf-8")
    assert read_settings(path, config_type) == flatten(config)
    assert resolve(config_type, kind=CONFIGS[config_type], file=path) == config


@fuzzed("settings file", 60, file=settings_files())
def test_any_file_of_settings_is_read_or_refused(files: Path, file: tuple[type, str]) -> None:
    path, (config_type, text) = files / "config.yaml", file
    path.write_bytes(text.encode(errors="surrogatepass"))
    found = outcome(lambda: read_settings(path, config_type))
    assert isinstance(found, FlairNasError) or set(found) <= set(get_all_kinds(config_type))
    config = outcome(lambda: resolve(config_type, kind=CONFIGS[config_type], file=path))
    if not isinstance(config, FlairNasError):
        path.write_text(to_yaml(config), encoding="utf-8")
        assert resolve(config_type, kind=CONFIGS[config_type], file=path) == config


# --- columns ---

COLUMNS = st.dictionaries(st.sampled_from(["text", "ner", "pos", "é", "a.b"]), st.integers(0, 9999), max_size=5)


@fuzzed(
    "columns",
    40,
    text=mutated(
        COLUMNS.map(lambda columns: ",".join(f"{name}={number}" for name, number in columns.items())),
        pieces_of("text=0", ",ner=1", "=", "99999", "9" * 5000),
    ),
)
def test_any_text_names_columns_or_is_refused(text: str) -> None:
    found = outcome(lambda: pick_columns(Path("train.txt"), parse_columns(text), None, ColumnFormat())[0])
    if not isinstance(found, FlairNasError):
        assert "text" in found.values()
        assert parse_columns(",".join(f"{name}={number}" for number, name in found.items())) == found


WORDS = st.sampled_from(["Ada", "saw", "London", ".", "-DOCSTART-", "#", "##", "é", "東京", "1,5", "a/b", "\u200b"])
TAGS = st.sampled_from(["O", "O", "B-PER", "I-PER", "E-PER", "S-LOC", "B-LOC", "I-LOC"])
SENTENCES = st.lists(st.lists(st.tuples(WORDS, TAGS), min_size=1, max_size=6), min_size=1, max_size=8)
OF_COLUMNS = pieces_of("\n\n", "\r\n", "\n# comment\n", "\n-DOCSTART- O\n\n", " O", "\tB-PER", " I-PER\n", "O", " ")


def columns_text(sentences: list[list[tuple[str, str]]]) -> str:
    return "\n\n".join("\n".join(f"{word} {tag}" for word, tag in sentence) for sentence in sentences) + "\n"


def words_of(text: str) -> tuple[list[list[str]], int]:
    """Return the first columns by sentence, but for those that begin with #, and how many rows there are."""
    lines = [line.rstrip("\n") for line in io.StringIO(text.removeprefix("\ufeff"), newline=None)]
    rows = [line for line in lines if line and not line.isspace()]
    plain = [row for row in rows if not row.startswith(("#", "-DOCSTART-"))] or rows
    parted = " *\t[ \t]*" if all("\t" in row.rstrip(" \t\f\v") for row in plain) else "[ \t]+"
    found: list[list[str]] = [[]]
    for line in lines:
        word = "" if line.isspace() else re.split(parted, line)[0]
        if word == "-DOCSTART-":
            found += [[word], []]
        elif not word:
            found.append([])
        elif not word.startswith("#"):
            found[-1].append(word)
    return [sentence for sentence in found if sentence], len(rows)


@fuzzed("column file", 40, text=mutated(SENTENCES.map(columns_text), OF_COLUMNS))
def test_no_word_of_a_column_file_that_is_read_is_left_out(files: Path, text: str) -> None:
    """Words are those of the rows; rows that are left out begin with # and are counted in the log."""
    path = files / "column.txt"
    path.write_bytes(text.encode(errors="surrogatepass"))
    for columns in (None, {0: "text", 1: "ner"}):
        told: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record, told=told: told.append(record.getMessage())  # type: ignore[method-assign,misc]
        log = logging.getLogger("flair_nas")
        level = log.level
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            found = outcome(lambda columns=columns: read_column_file(path, columns, "ner"))  # type: ignore[misc]
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
        if not isinstance(found, FlairNasError):
            words = [[token.text for token in sentence] for sentence in found]
            plain = [[word for word in sentence if not word.startswith("#")] for sentence in words]
            expected, rows = words_of(text)
            assert [sentence for sentence in plain if sentence] == expected
            comments = sum(int(count) for line in told for count in re.findall(r"holds comments: (\d+)", line))
            assert sum(map(len, words)) + comments == rows


@fuzzed("column file, bytes", 25, content=mutated(
    SENTENCES.map(lambda sentences: columns_text(sentences).encode()), st.binary(max_size=8)))  # fmt: skip
def test_any_bytes_are_a_column_file_or_refused(files: Path, content: bytes) -> None:
    (files / "column.txt").write_bytes(content)
    found = outcome(lambda: read_column_file(files / "column.txt", None, "ner"))
    assert isinstance(found, (list, FlairNasError))


@fuzzed(
    "folder of column files",
    20,
    texts=st.lists(mutated(SENTENCES.map(columns_text), OF_COLUMNS, most=1), min_size=1, max_size=3),
)
def test_any_folder_is_a_corpus_or_refused(files: Path, texts: list[str]) -> None:
    corpus = files / "corpus"
    corpus.mkdir(exist_ok=True)
    for part, text in zip(("train", "dev", "test"), [*texts, "", ""]):
        (corpus / f"{part}.txt").unlink(missing_ok=True)
        if text:
            (corpus / f"{part}.txt").write_bytes(text.encode(errors="surrogatepass"))
    found = outcome(lambda: load_corpus(str(corpus)))
    assert isinstance(found, (TaggingCorpus, FlairNasError))


# --- plain text ---

LINES = st.lists(st.lists(WORDS, max_size=8).map(" ".join), min_size=2, max_size=10).map("\n".join)


@fuzzed("plain text", 40, text=mutated(LINES, pieces_of("\n", "\r\n", "\r", "<unk>", "<eos>", "\t")))
def test_any_text_is_read_word_by_word_or_refused(files: Path, text: str) -> None:
    path = files / "train.txt"
    path.write_bytes(text.encode(errors="surrogatepass"))
    found = outcome(lambda: load_text(path, valid_share=0.3))
    if isinstance(found, FlairNasError):
        return
    assert isinstance(found, TextCorpus)
    lines = io.StringIO(text.removeprefix("\ufeff"), newline=None)
    words = [word for line in lines for word in [*line.split(), END]]
    ids = [*found.train.tolist(), *found.valid.tolist()]
    assert ids == [found.vocabulary.index(word) for word in words]


@fuzzed(
    "plain text, bytes",
    40,
    content=mutated(
        LINES.map(str.encode) | LINES.map(lambda text: gzip.compress(text.encode())), st.binary(max_size=8)
    ),
    name=st.sampled_from(["train.txt", "train.txt.gz"]),
)
def test_any_bytes_are_text_or_refused(files: Path, content: bytes, name: str) -> None:
    path = files / name
    path.write_bytes(content)
    found = outcome(lambda: load_text({"train": path, "valid": path}))
    assert isinstance(found, (TextCorpus, FlairNasError))


# --- paths and names ---

READERS: dict[str, Callable[[str], Any]] = {
    "genotype file": Genotype.load,
    "genotype": load_genotype,
    "genotype path": lambda name: load_genotype(Path(name)),
    "layer": parse_layer_spec,
    "settings": lambda name: read_settings(name, TaggerConfig),
    "search settings": lambda name: resolve(SearchConfig, kind="search", file=name),
    "fixed genotype": lambda name: SearchConfig(learn="inter", history=1, fixed=name),
    "column file": lambda name: read_column_file(name, None, "ner"),
    "corpus": load_corpus,
    "text": load_text,
    "text by part": lambda name: load_text({"train": name, "valid": name}),
    "text by part in words": lambda name: load_text(f"train={name},valid={name}"),
    "tagger": load_tagger,
    "language model": load_language_model,
    "preset": lambda name: resolve(TaggerConfig, kind="tagging", preset=name),
}

NAMES = {
    "nothing": "",
    "dot": ".",
    "dots": "..",
    "root": "/",
    "blank": " ",
    "NUL": "a\0b",
    "newline": "a\nb.json",
    "lone surrogate": "\ud800.json",
    "byte that is no UTF-8": "\udc80.json",
    "no such user": "~nosuchuser/x.json",
    "no such user alone": "~nosuchuser",
    "long": "x" * 300,
    "longer": "x" * 100_000 + ".json",
    "deep": "x/" * 3000 + "y.json",
    "dash": "-x.json",
    "option": "--out",
    "nowhere": "/nowhere/at/all.json",
    "below a file": "empty.json/x.json",
    "terminal": "\x1b[31m.json",
    "escapes": "%s %d {} {0}.json",
}


def special_files(folder: Path) -> None:
    """What a folder may hold besides files with text in them; each is named with .json, by which a genotype is told."""
    (folder / "empty.json").touch()
    (folder / "folder.json").mkdir()
    (folder / "binary.json").write_bytes(random.Random(0).randbytes(5000))
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "dangling.json").symlink_to(folder / "nowhere")
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "null.json").symlink_to("/dev/null")
    (folder / "memory.json").symlink_to("/proc/self/mem")
    os.mkfifo(folder / "fifo.json")
    unreadable = folder / "unreadable.json"
    unreadable.write_text("tanh0")
    unreadable.chmod(0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.json")  # the name of a socket must be short


SPECIAL = ("empty", "folder", "binary", "loop", "dangling", "zero", "null", "memory", "fifo", "unreadable", "socket")


@pytest.fixture(scope="module")
def odd(folder: Path) -> Path:
    special_files(folder)
    return folder


def skip_what_root_can_read(name: str) -> None:
    if name.startswith("unreadable") and os.geteuid() == 0:
        pytest.skip("root can read all files")


@pytest.mark.parametrize("name", [*NAMES.values(), *(f"{name}.json" for name in SPECIAL)],
                         ids=[*NAMES, *SPECIAL])  # fmt: skip
@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_stands_for_nothing_to_read_is_refused(reader: str, name: str, odd: Path) -> None:
    skip_what_root_can_read(name)
    assert isinstance(outcome(lambda: READERS[reader](name)), FlairNasError)


@fuzzed(
    "names",
    60,
    reader=st.sampled_from([*READERS]),
    name=mutated(
        st.sampled_from([*NAMES.values()]), pieces_of("/", "~", "..", ".json", "train=", "demo", "\0", "x" * 300)
    ),
)
def test_any_name_is_refused_or_stands_for_something(odd: Path, reader: str, name: str) -> None:
    outcome(lambda: READERS[reader](name))


# --- the command line ---


@pytest.fixture(scope="module")
def world(odd: Path) -> Iterator[Path]:
    """What commands change in their process is as before."""
    device, handler = flair.device, signal.getsignal(signal.SIGTERM)
    yield odd
    flair.device = device
    signal.signal(signal.SIGTERM, handler)


def check_refused(ended: Ended) -> None:
    assert ended.code in (1, 2)
    if not ended.usage:
        check_message(ended.errors)


TAGGER, MODEL = str(SAVED / "tagger" / "seed-1" / "model.pt"), str(SAVED / "lm-gated")
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "tag train --config": lambda name: ["tag", "train", f"--config={name}", "--out", "empty.json"],
    "tag train --resume": lambda name: ["tag", "train", f"--resume={name}"],
    "tag train --out": lambda name: ["tag", "train", "--corpus", "nowhere", f"--out={name}"],
    "tag train --corpus": lambda name: ["tag", "train", f"--corpus={name}", "--out", "out"],
    "tag train --rnn": lambda name: ["tag", "train", f"--rnn={name}", "--out", "empty.json"],
    "tag evaluate --model": lambda name: ["tag", "evaluate", f"--model={name}", "--corpus", "demo"],
    "tag evaluate --file": lambda name: ["tag", "evaluate", "--model", TAGGER, f"--file={name}"],
    "tag predict --model": lambda name: ["tag", "predict", f"--model={name}", "Ada"],
    "search --resume": lambda name: ["search", f"--resume={name}"],
    "search --out": lambda name: ["search", "--text", "nowhere", f"--out={name}"],
    "search --text": lambda name: ["search", f"--text={name}", "--out", "out"],
    "search --fixed": lambda name: ["search", f"--fixed={name}", "--out", "empty.json"],
    "lm train --text": lambda name: ["lm", "train", f"--text={name}", "--out", "out"],
    "lm train --resume": lambda name: ["lm", "train", f"--resume={name}"],
    "lm evaluate --model": lambda name: ["lm", "evaluate", f"--model={name}", "--text", "demo"],
    "lm evaluate --text": lambda name: ["lm", "evaluate", "--model", MODEL, f"--text={name}"],
}


UNUSABLE = ("nothing", "NUL", "lone surrogate", "byte that is no UTF-8", "no such user", "long", "below a file")


@pytest.mark.parametrize("name", [*(NAMES[name] for name in UNUSABLE), "folder.json", "zero.json", "fifo.json"],
                         ids=[*UNUSABLE, "folder", "zero", "fifo"])  # fmt: skip
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_a_name_that_stands_for_nothing(command: str, name: str, world: Path) -> None:
    check_refused(run(COMMANDS[command](name)))


ODD_VALUES = st.one_of(
    st.sampled_from([*NAMES.values()]),
    st.sampled_from(["0", "-1", "1", "2", "10000000000000000000000", "1e5", "nan", "inf", "1,2", "1,1", "a=b", "True"]),
    st.sampled_from(["cpu", "cpu:7", "cuda", "cuda:9", "meta", "mps", "xla", "cpu:x", "lstm", "demo", "bfloat16"]),
    st.sampled_from([name for kind in CONFIGS.values() for name in preset_names(kind)]),
    ANYTHING.map(lambda text: text.lstrip("/")),  # nothing is written outside of this folder
)
VERBS: dict[str, tuple[list[str], type]] = {
    "tag train": (["tag", "train"], TaggerConfig),
    "search": (["search"], SearchConfig),
    "lm train": (["lm", "train"], LanguageModelConfig),
}


@st.composite
def training_commands(draw: st.DrawFn) -> list[str]:
    """A command that trains, with any settings, into a folder that is a file, or with nothing to train on."""
    verb, config_type = VERBS[draw(st.sampled_from([*VERBS]))]
    names = [*get_all_kinds(config_type), "preset", "config", "quiet", "verbose", "no_averaging", "unknown"]
    flags = [f"--{name.replace('_', '-')}" for name in draw(st.lists(st.sampled_from(names), max_size=5))]
    words = [part for flag in flags for part in draw(st.sampled_from([[flag], [flag, draw(ODD_VALUES)]]))]
    guard = draw(st.sampled_from([["--out", "empty.json"], ["--resume", "folder.json"], []]))
    return [*verb, *words, *guard]


@fuzzed("training commands", 50, words=training_commands())
def test_a_training_command_ends_with_an_exit_code(world: Path, words: list[str]) -> None:
    check_refused(run(words))


@st.composite
def using_commands(draw: st.DrawFn) -> list[str]:
    """A command that uses models, with any flags."""
    verb = draw(
        st.sampled_from(
            [
                ["tag", "evaluate", "--model", TAGGER, "--file", str(SAVED / "corpus" / "test.txt")],
                ["tag", "predict", "--model", TAGGER],
                ["lm", "evaluate", "--model", MODEL, "--text", str(SAVED / "text")],
            ]
        )
    )
    flags = ["part", "label-type", "columns", "data-root", "predictions", "batch-size", "json", "device", "format",
             "tokenized", "by-sentence", "quiet", "verbose"]  # fmt: skip
    words = [
        part
        for flag in draw(st.lists(st.sampled_from(flags), max_size=3))
        for part in draw(st.sampled_from([[f"--{flag}"], [f"--{flag}={draw(ODD_VALUES)}"]]))
    ]
    return [*verb, *words, *draw(st.lists(ANYTHING, max_size=2))]


@fuzzed("using commands", 40, words=using_commands(), given=st.binary(max_size=60) | ANYTHING.map(
    lambda text: text.encode(errors="replace")))  # fmt: skip
def test_a_command_that_uses_a_model_ends_with_an_exit_code(world: Path, words: list[str], given: bytes) -> None:
    ended = run(words, given)
    if ended.code:
        check_refused(ended)
