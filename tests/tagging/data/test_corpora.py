"""Corpora: the parts are always the same ones, and what Flair would silently misread is an error that says where."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import flair
import pytest
import requests
from flair.datasets import ColumnCorpus

from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.tagging.data.column_files import parse_columns, read_column_file
from flair_nas.tagging.data.corpora import describe_corpus, load_corpus

SENTENCE = "Ada B-PER\nLovelace I-PER\nsaw O\nParis B-LOC\n\n"
COLUMNS = {0: "text", 1: "ner"}


def folder_of(path: Path, **files: str) -> Path:
    """Writes files named by their keys, such as train="..."; gives the folder."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / f"{name}.txt").write_text(text, encoding="utf-8")
    return path


def texts(part) -> list[str]:
    return [sentence.to_tokenized_string() for sentence in part]


def spans(sentence, label_type="ner") -> list[tuple[str, str]]:
    return [(span.text, span.get_label(label_type).value) for span in sentence.get_spans(label_type)]


def error_of(path: Path, **arguments) -> str:
    with pytest.raises(FlairNasError) as caught:
        load_corpus(str(path), **arguments)
    return str(caught.value)


# What loads.


def test_the_demo_is_read_as_flair_reads_it():
    found = load_corpus("demo")
    folder = Path(__file__).parents[3] / "resources" / "demo"
    plain = ColumnCorpus(folder, COLUMNS, train_file="train.txt", dev_file="dev.txt", test_file="test.txt")
    assert (found.name, found.label_type, found.corpus.name) == ("demo", "ner", "demo")
    for part in ("train", "dev", "test"):
        ours, theirs = getattr(found.corpus, part), getattr(plain, part)
        assert texts(ours) == texts(theirs)
        assert [spans(s) for s in ours] == [spans(s) for s in theirs]
    assert len(found.corpus.train) == 309


def test_a_folder_takes_its_last_column_by_default(tmp_path):
    rows = "EU NNP B-ORG\nrejects VBZ O\n\n"
    found = load_corpus(str(folder_of(tmp_path / "mine", train=rows, dev=rows)))
    assert (found.name, found.label_type) == ("mine", "ner")
    assert spans(found.corpus.train[0]) == [("EU", "ORG")]
    assert found.corpus.test is None
    assert load_corpus(str(tmp_path / "mine"), label_type="entity").label_type == "entity"


def test_columns_choose_text_and_label(tmp_path):
    rows = "1 EU NNP B-ORG\n2 rejects VBZ O\n\n"
    folder = str(folder_of(tmp_path, train=rows, dev=rows))
    entities = load_corpus(folder, columns={1: "text", 3: "entity"})
    assert entities.label_type == "entity" and spans(entities.corpus.train[0], "entity") == [("EU", "ORG")]
    tags = load_corpus(folder, columns={1: "text", 2: "pos", 3: "ner"}, label_type="pos")
    assert [token.get_label("pos").value for token in tags.corpus.train[0]] == ["NNP", "VBZ"]


@pytest.mark.parametrize(
    "names",
    [
        ("eng.train", "eng.testa", "eng.testb"),
        ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        ("train.tsv", "dev.tsv", "test.tsv"),
        ("train.bio", "valid.bio", "test.bio"),
    ],
)
def test_parts_are_told_by_their_names(tmp_path, names):
    for name, word in zip(names, ("alpha", "beta", "gamma"), strict=True):
        (tmp_path / name).write_text(f"{word} B-X\n")
    (tmp_path / "train.txt.gz").write_bytes(b"\x1f\x8b")
    corpus = load_corpus(str(tmp_path)).corpus
    assert [texts(part) for part in (corpus.train, corpus.dev, corpus.test)] == [["alpha"], ["beta"], ["gamma"]]


def test_a_missing_dev_part_is_the_same_tenth_for_every_seed(tmp_path, caplog):
    train = "".join(f"w{i} B-X\n\n" for i in range(50))
    folder = str(folder_of(tmp_path, train=train))
    parts = []
    for seed in (1, 2):
        random.seed(seed)
        flair.set_seed(seed)
        with caplog.at_level(logging.WARNING, logger="flair_nas"):
            corpus = load_corpus(folder).corpus
        parts.append((texts(corpus.train), texts(corpus.dev), corpus.test))
    assert parts[0] == parts[1]
    assert len(parts[0][0]) == 45 and len(parts[0][1]) == 5 and parts[0][2] is None
    assert "no file with 'dev' or 'valid'" in caplog.text and "5 sentences" in caplog.text


def test_dev_that_is_train_is_told(tmp_path, caplog):
    folder = folder_of(tmp_path, train=SENTENCE * 2, dev=SENTENCE * 2, test=SENTENCE)
    describe_corpus(load_corpus(str(folder)))
    assert "dev is the same as train, so its figures say nothing" in caplog.text
    assert "test is the same" not in caplog.text


def test_comments_boundaries_blank_lines_and_a_byte_order_mark_are_fine(tmp_path):
    rows = (
        "\ufeff# a comment\n\n\n-DOCSTART- -X- O\n\n\n# another\nEU NNP B-ORG\n"
        "rejects VBZ O\n\n \t\n\n-DOCSTART-\n\nit PP O"
    )
    folder = folder_of(tmp_path, train=rows, dev=rows)
    assert texts(load_corpus(str(folder)).corpus.train) == ["-DOCSTART-", "EU rejects", "-DOCSTART-", "it"]
    sentences = read_column_file(folder / "train.txt", {0: "text", 2: "ner"}, "ner")
    assert [len(sentence) for sentence in sentences] == [1, 2, 1, 1]
    assert spans(sentences[1]) == [("EU", "ORG")]
    assert sentences[0].is_document_boundary and not sentences[1].is_document_boundary


@pytest.mark.parametrize(
    ("name", "row", "label_type", "files"),
    [
        ("conll_03", "EU NNP I-NP I-ORG\n", "ner", ("eng.train", "eng.testa", "eng.testb")),
        (
            "wnut_17",
            "EU\tB-corporation\n",
            "ner",
            ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        ),
        ("conll_2000", "EU NNP B-NP\n" + "\nEU NNP B-NP\n" * 9, "np", ("train.txt", "test.txt")),
    ],
)
def test_known_corpora_are_read_from_the_data_root(tmp_path, no_network, name, row, label_type, files):
    (tmp_path / name).mkdir()
    for file in files:
        (tmp_path / name / file).write_text(row)
    found = load_corpus(name, data_root=tmp_path)
    assert (found.name, found.label_type) == (name, label_type)
    assert found.corpus.train[0].get_spans(label_type)[0].text == "EU"
    assert len(found.corpus.dev) == 1 and len(found.corpus.test) >= 1


def test_a_known_corpus_is_also_found_in_the_cache_of_flair(tmp_path, no_network):
    folder_of(no_network / "datasets" / "conll_2000", train="EU NNP B-NP\n\n" * 10, test="EU NNP B-NP\n")
    assert len(load_corpus("conll_2000").corpus.train) == 9


# What does not.


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Flair with an empty cache and no way out; gives the cache."""

    def refuse(*_, **__):
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr(requests, "head", refuse)
    monkeypatch.setattr(requests, "get", refuse)
    monkeypatch.setattr(flair, "cache_root", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("name", "file"), [("conll_03", "eng.train"), ("wnut_17", "wnut17train.conll"), ("conll_2000", "train.txt")]
)
def test_an_absent_corpus_names_the_folder_and_the_files(tmp_path, no_network, name, file):
    message = error_of(Path(name))
    assert str(no_network / "datasets" / name) in message and file in message
    assert ("no route to host" in message) == (name != "conll_03")
    assert str(tmp_path / "mine" / name) in error_of(Path(name), data_root=tmp_path / "mine")


def test_a_broken_download_says_so(no_network):
    folder = no_network / "datasets" / "conll_2000"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        (folder / f"{part}.txt.gz").write_bytes(b"not an archive")
    assert "could not be downloaded" in error_of(Path("conll_2000"))


def test_an_unknown_corpus_gets_the_close_name(tmp_path):
    assert "did you mean conll_2000" in error_of(Path("conll2000"))
    assert "demo, conll_03, conll_2000, wnut_17, or a folder" in error_of(tmp_path / "absent")


def test_a_file_is_not_a_folder(tmp_path):
    folder_of(tmp_path, train=SENTENCE)
    assert "is a file" in error_of(tmp_path / "train.txt")
    (tmp_path / "ner.csv").write_text("Word,Tag")
    assert f"flair-nas convert {tmp_path}/ner.csv --out FOLDER makes" in error_of(tmp_path / "ner.csv")


def test_no_train_file_lists_what_is_there(tmp_path):
    message = error_of(folder_of(tmp_path, dev=SENTENCE, notes="x"))
    assert "no file has 'train'" in message and "dev.txt, notes.txt" in message
    assert "holds nothing" in error_of(folder_of(tmp_path / "empty"))


def test_two_files_for_one_part_are_not_left_to_chance(tmp_path):
    message = error_of(folder_of(tmp_path, train=SENTENCE, train_small=SENTENCE))
    assert "the train part (train.txt, train_small.txt)" in message


@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n", "-DOCSTART- O\n\n"])
def test_an_empty_file(tmp_path, text):
    folder = folder_of(tmp_path, train=SENTENCE, dev=text)
    assert "dev.txt holds no sentence" in error_of(folder)
    assert "train.txt holds no sentence" in error_of(folder_of(tmp_path, train=text))


@pytest.mark.parametrize("row", ["\tO", " O", "\u00a0 O"])
def test_a_row_without_text(tmp_path, row):
    folder = folder_of(tmp_path, train=f"{SENTENCE}in O\n{row}\n", dev=SENTENCE)
    assert "train.txt:7: the text is empty" in error_of(folder)


def test_columns_that_are_swapped(tmp_path):
    text = "O in\n\nB-LOC Leeds\nO .\n"
    folder = folder_of(tmp_path, train=text, dev=text)
    message = error_of(folder)
    assert "train.txt:3: the text of every word is a tag, such as 'B-LOC'" in message
    assert "--columns text=1,ner=0" in message
    labels = load_corpus(str(folder), columns={1: "text", 0: "ner"}).corpus.train[1].get_labels("ner")
    assert [(label.data_point.text, label.value) for label in labels] == [("Leeds", "LOC")]


def test_words_that_look_like_tags(tmp_path):
    text = "B-LOC X\nO Y\nends Y\n\n"
    assert load_corpus(str(folder_of(tmp_path, train=text, dev=text))).corpus.train[0].text == "B-LOC O ends"


def test_a_label_column_that_is_not_there_shows_a_row(tmp_path):
    message = error_of(folder_of(tmp_path, train=SENTENCE), columns={0: "text", 3: "ner"})
    assert "train.txt:1: there is no column 3 (ner)" in message and "column 0 'Ada', column 1 'B-PER'" in message
    assert "no label column" in error_of(folder_of(tmp_path, train="Ada\nsaw\n"))


def test_tags_of_tokens_may_come_late(tmp_path):
    late = "a O\n\n" * 5 + "b NEG\n\n"
    corpus = load_corpus(str(folder_of(tmp_path, train=late, dev=late))).corpus
    assert corpus.train[5][0].get_label("ner").value == "NEG"


def test_many_tags_are_still_tags(tmp_path):
    rows = "\n".join(f"{word} T{i % 60}" for i, word in enumerate(f"w{n}" for n in range(300)))
    assert len(load_corpus(str(folder_of(tmp_path, train=rows, dev=rows))).corpus.train) == 1


def test_not_utf8(tmp_path):
    folder = folder_of(tmp_path, train=SENTENCE)
    (folder / "train.txt").write_bytes(b"Ada B-PER\nM\xfcller I-PER\n")
    assert "train.txt:2: not UTF-8 (byte 0xfc), broken lines: 2" in error_of(folder)


def test_a_single_label_for_every_token_is_refused(tmp_path):
    rows = "1 word noun\n2 other noun\n\n"
    error = error_of(folder_of(tmp_path, train=rows, dev=rows))
    assert f"{tmp_path / 'train.txt'}: every token has the ner 'noun'" in error and "nothing to learn" in error
    assert "--columns text=0,ner=3" in error


@pytest.mark.parametrize("rows", [SENTENCE.replace("PER", "LOC"), "Ada X\nsaw O\n\n"])
def test_a_single_kind_of_entity_or_token_is_fine(tmp_path, rows):
    assert load_corpus(str(folder_of(tmp_path, train=rows, dev=rows))).label_type == "ner"


def test_nothing_labelled(tmp_path):
    rows = "Ada NNP O\nsaw VBD O\n\n"
    message = error_of(folder_of(tmp_path, train=rows, dev=rows), columns={0: "text", 1: "pos", 2: "ner"})
    assert "no sentence has a label of type 'ner'; label types there: pos" in message
    message = error_of(folder_of(tmp_path / "other", train="Ada O\nsaw O\n\n", dev="Ada O\n\n"))
    assert "label types there: none, as every label is O" in message


@pytest.mark.parametrize(
    "verb",
    [
        "tag train --corpus CORPUS",
        "tune --corpus CORPUS",
        "tune --corpus CORPUS --estimate",
        "search --objective tagging --corpus CORPUS",
        "search --objective tagging --corpus CORPUS --estimate",
        "search --objective several --tasks TASK TASK",
    ],
)
def test_dev_without_labels_is_found_before_anything_is_trained(verb, tmp_path, capsys):
    corpus = folder_of(tmp_path / "corpus", train=SENTENCE * 9, dev="Ada O\nsaw O\n\n" * 3, test=SENTENCE * 3)
    (tmp_path / "TASK").write_text(f"{{objective: tagging, corpus: {corpus}, embeddings: [one-hot], name: one}}")
    paths = {"CORPUS": corpus, "TASK": tmp_path / "TASK"}
    words = [str(paths.get(word, word)) for word in verb.split()]
    if "several" in words:
        (tmp_path / "OTHER").write_text((tmp_path / "TASK").read_text().replace("name: one", "name: two"))
        words[-1] = str(tmp_path / "OTHER")
    else:
        words += ["--embeddings", "one-hot", "--hidden-size", "8", "--batch-size", "2"]
    assert main([*words, "-q", "--device", "cpu", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "corpus: no dev sentence has a label of type 'ner', so nothing can be compared on it" in said
    assert "leave the dev file out: dev is then a tenth of train" in said
    assert not (tmp_path / "out").exists()


def test_a_label_type_that_is_no_column(tmp_path):
    folder = folder_of(tmp_path, train=SENTENCE)
    assert "'pos' is none of the columns: ner" in error_of(folder, columns=COLUMNS, label_type="pos")
    assert "several columns could be" in error_of(folder, columns={0: "text", 1: "a", 2: "b"})
    assert "none besides the text" in error_of(folder, columns={0: "text"})


def test_too_little_for_a_dev_part(tmp_path):
    assert "too few to split dev off" in error_of(folder_of(tmp_path, train=SENTENCE * 3))


def test_an_absent_file(tmp_path):
    with pytest.raises(FlairNasError, match=r"absent\.txt cannot be read: No such file"):
        read_column_file(tmp_path / "absent.txt", COLUMNS, "ner")


def test_written_columns():
    assert parse_columns("text=0,ner=3") == {0: "text", 3: "ner"}
    assert parse_columns(" text = 1 , pos=0") == {1: "text", 0: "pos"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "is not name=number"),
        ("text", "is not name=number"),
        ("0=text", "is not name=number"),
        ("text=0,,ner=1", "is not name=number"),
        ("text=0,ner=-1", "is not name=number"),
        ("text=0,ner=0", "column 0 has two names"),
        ("text=0,ner=1,ner=2", "a name comes twice"),
        ("ner=0", "none is the text"),
    ],
)
def test_badly_written_columns(tmp_path, text, wanted):
    folder = folder_of(tmp_path, train=SENTENCE)
    with pytest.raises(FlairNasError, match=wanted):
        load_corpus(folder, columns=parse_columns(text))


def test_columns_count_from_the_left(tmp_path):
    assert "counted from 0" in error_of(folder_of(tmp_path, train=SENTENCE), columns={0: "text", -1: "ner"})


def test_parts_that_tag_tokens_and_spans(tmp_path):
    folder = folder_of(tmp_path, train=SENTENCE, dev=SENTENCE, test="Ada PER\nsaw O\n\n")
    assert "test.txt: its tags are of tokens, those of" in error_of(folder)
    folder = folder_of(tmp_path, train="Ada PER\nsaw O\n\n", dev=SENTENCE, test="Ada PER\nsaw O\n\n")
    assert "dev.txt: its tags are of spans, those of" in error_of(folder)


@pytest.mark.parametrize(
    ("columns", "label_type", "words"),
    [
        ({0: "text", 1: "predicted"}, "predicted", "is the name of predictions"),
        ({0: "text", 1: "half \ud83d"}, None, "cannot be printed"),
        ({0: "text", 1: "ner"}, "\udcff", "is none of the columns: ner"),
        ({0: "text", 1: "head"}, "head", "Flair has a meaning for this name"),
    ],
)
def test_names_that_mean_something_else_are_refused(
    columns: dict[int, str], label_type: str | None, words: str, tmp_path: Path
) -> None:
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("Ada B-PER\nleft O\n\nOslo B-LOC\n")
    with pytest.raises(FlairNasError, match=words) as caught:
        load_corpus(str(tmp_path), columns=columns, label_type=label_type)
    str(caught.value).encode()


@pytest.mark.parametrize("tag", ["B-<unk>", "<START>", "S-<STOP>"])
def test_tags_that_flair_has_of_its_own_are_refused(tag: str, tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(f"Ada {tag}\nleft O\n")
    with pytest.raises(FlairNasError, match=f"txt:1: '{tag}' is a label that Flair has of its own"):
        load_corpus(str(tmp_path))
