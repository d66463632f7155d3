"""Conversion of what other tools export: every word and span arrives, and what does not is told with its line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from flair_nas import FlairNasError, convert_corpus
from flair_nas.cli import main
from flair_nas.storage import files
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.data.column_files import read_column_file

Rows = list[list[tuple[str, str]]]


def convert(folder: Path, text: str | bytes, name: str = "data.jsonl") -> Rows:
    """Convert a file with this text, and return words and tags of each sentence of what is written."""
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    out = folder / "out"
    (part,) = convert_corpus([folder / name], out).values()
    written = part.path.read_text(encoding="utf-8")
    rows = [[tuple(row.split("\t")) for row in block.splitlines()] for block in written.strip("\n").split("\n\n")]
    assert part.sentences == len(rows) and part.words == sum(map(len, rows))
    sentences = read_column_file(part.path, None, "ner")
    assert [[token.text for token in sentence] for sentence in sentences] == [[word for word, _ in row] for row in rows]
    part.path.unlink()
    return rows  # type: ignore[return-value]  # two columns


def jsonl(*records: object) -> str:
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)


def tags(rows: Rows) -> list[str]:
    return [" ".join(tag for _, tag in sentence) for sentence in rows]


def words(rows: Rows) -> list[str]:
    return [" ".join(word for word, _ in sentence) for sentence in rows]


def error_of(folder: Path, text: str | bytes, name: str = "data.jsonl") -> str:
    with pytest.raises(FlairNasError) as caught:
        convert(folder, text, name)
    assert not (folder / "out").exists()
    return str(caught.value)


# CSV.


@pytest.mark.parametrize("every", [True, False], ids=["in every row", "in the first row"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_with_sentence_numbers_keeps_the_sentences_of_the_demo(tmp_path: Path, every: bool, mark: str) -> None:
    demo = read_column_file(resource_path("demo", "train.txt"), None, "ner")
    expected = [[token.text for token in sentence] for sentence in demo]
    tokens = [[line.split() for line in block.splitlines()]
              for block in resource_path("demo", "train.txt").read_text().strip().split("\n\n")]  # fmt: skip
    with (tmp_path / "ner.csv").open("w", newline="") as stream:
        table = csv.writer(stream, delimiter=mark)
        table.writerow(["Sentence #", "Word", "POS", "Tag"])
        for number, sentence in enumerate(tokens, 1):
            for place, (word, tag) in enumerate(sentence):
                table.writerow([f"Sentence: {number}" if every or not place else "", word, "X", tag])
    found = convert(tmp_path, (tmp_path / "ner.csv").read_bytes(), "ner.csv")
    assert len(found) == 309 and [[word for word, _ in sentence] for sentence in found] == expected
    assert [tag for sentence in found for _, tag in sentence] == [tag for sentence in tokens for _, tag in sentence]


SMALL = 'sentence_id,word,label\n1,Hugo,B-PER\n1,",",O\n1,"""",O\n2,He,O\n'


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        SMALL.replace("\n", "\r\n"),
        "\ufeff" + SMALL,
        'Word,Tag\nHugo,B-PER\n",",O\n"""",O\n\nHe,O\n',
        'Word,Tag\nHugo,B-PER\n",",O\n"""",O\n,\nHe,O\n',
        'Sentence #\tWord\tTag\n1\tHugo\tB-PER\n1\t,\tO\n1\t"\tO\n2\tHe\tO\n',
    ],
    ids=["plain", "Windows", "byte order mark", "empty rows", "rows of commas", "plain quotes with tabs"],
)
def test_csv_as_it_is_found(tmp_path: Path, text: str) -> None:
    assert convert(tmp_path, text, "a.csv") == [[("Hugo", "B-PER"), (",", "O"), ('"', "O")], [("He", "O")]]


def test_columns_that_csv_lacks_or_has_besides_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "flair_nas")
    convert(tmp_path, "Sentence #,Word,POS,Tag\n1,Hugo,NNP,B-PER\n1,sang,,O\n2,He,,O\n1,,X,O\n", "a.csv")
    assert [message.partition("a.csv: ")[2] for message in caplog.messages[:3]] == [
        "words of column 'Word', labels of column 'Tag', sentences by column 'Sentence #'; not used: 'POS'",
        "sentence numbers that come again, taken for new sentences: 1 (line 5, '1')",
        "words of white space alone, left out: 1 (line 5, '', O)",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "data.csv is empty"),
        ("Sentence #,Word,Tag\n", "holds no annotated sentence"),
        ("Word,Tag\nHugo,B-PER\nsang,O\n", "nothing says where sentences end; add a column 'Sentence #'"),
        ("Satz,Wort,Marke\n1,Hugo,O\n", "data.csv:1: headings such as 'Sentence #', 'Word' and 'Tag' are expected"),
        ("Sentence #,Word\n1,Hugo\n", "data.csv:1: headings such as"),
        ("Sentence #,Word,Tag\n1,Hugo,O\n1,,,O\n", "data.csv:3: 4 columns, where line 1 names 3; put quotes around"),
        ('Sentence #,Word,Tag\n1,",O\n1,b,O\n1,",O\n', "data.csv:4: a quote before it is not closed"),
        ("Sentence #,Word,Tag\n1,a,O\n2,b,O\n3,c,O\n", "the column 'Sentence #' differs in all rows"),
        ("Sentence #,Word,Tag\n1,a,B-X\n1,b,\n", "data.csv:2: '' stands for no label; write O"),
        ("Sentence #,Word,Tag\n1,Müller,O\n".encode("utf-16"), "data.csv:1: not UTF-8 but UTF-16; convert it with"),
        ("a\nb\n", "data.csv:1: headings such as"),
        ("Hugo B-PER\nsang O\n", "data.csv:1: a column file as it is: the row ends with the tag 'B-PER'; put it as"),
        ("sang\tV\tO\nHugo\tN\tB-PER\n", "data.csv:1: a column file as it is: the row ends with the tag 'O'"),
    ],
)
def test_csv_that_cannot_be_used(tmp_path: Path, text: str | bytes, wanted: str) -> None:
    assert wanted in error_of(tmp_path, text, "data.csv")


# JSON.

TEXT = "Ada Lovelace lives in Leeds."
PER_LOC = [[("Ada", "B-PER"), ("Lovelace", "I-PER"), ("lives", "O"), ("in", "O"), ("Leeds", "B-LOC"), (".", "O")]]
SPANS = [{"start": 0, "end": 12, "label": "PER"}, {"start": 22, "end": 27, "label": "LOC"}]
LISTS = [[0, 12, "PER"], [22, 27, "LOC"]]
STUDIO = {
    "id": 1,
    "data": {"review": TEXT},
    "annotations": [
        {"was_cancelled": True, "result": []},
        {
            "result": [
                {"type": "labels", "value": {"start": 0, "end": 12, "text": "Ada Lovelace", "labels": ["PER"]}},
                {"type": "labels", "value": {"start": 22, "end": 27, "text": "Leeds", "labels": ["LOC"]}},
            ]
        },
    ],
}


@pytest.mark.parametrize(
    "record",
    [
        {"text": TEXT, "spans": SPANS},
        {"text": TEXT, "spans": SPANS, "tokens": [{"text": "Ada", "start": 0}], "answer": "accept"},
        {"text": TEXT, "label": LISTS},
        {"text": TEXT, "labels": LISTS},
        {"text": TEXT, "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 12},
                                    {"id": 2, "label": "LOC", "start_offset": 22, "end_offset": 27}]},
        [TEXT, {"entities": LISTS}],
        STUDIO,
        {"text": TEXT, "label": [{**span, "label": None, "labels": [span["label"]]} for span in SPANS]},
        {"tokens": [w for w, _ in PER_LOC[0]], "ner_tags": [t for _, t in PER_LOC[0]]},
        {"text": TEXT, "words": [w for w, _ in PER_LOC[0]], "labels": [t for _, t in PER_LOC[0]]},
        {"tokens": [w for w, _ in PER_LOC[0]], "tags": ["B-PER", "L-PER", "O", "O", "U-LOC", "O"]},
        {"tokens": [w for w, _ in PER_LOC[0]], "tags": ["I-PER", "I-PER", "O", "O", "I-LOC", "O"]},
    ],
    ids=["spaCy", "Prodigy", "doccano", "older doccano", "entities", "spaCy 2", "Label Studio", "JSON-MIN", "tokens",
         "words", "BILOU", "IOB1"],
)  # fmt: skip
def test_json_of_each_tool(tmp_path: Path, record: object) -> None:
    for text in (jsonl(record, record), json.dumps([record, record], indent=1), json.dumps([record, record])):
        assert convert(tmp_path, text) == PER_LOC * 2
    assert convert(tmp_path, json.dumps(record, indent=2).replace("\n", "\r\n")) == PER_LOC


def test_sentences_are_split_but_never_within_a_span(tmp_path: Path) -> None:
    text = "He left. She met Dr. Hugo Brandt.\n\nThe End. Of It came out\r\nin Leeds."
    found = convert(tmp_path, jsonl({"text": text, "spans": [{"start": 21, "end": 32, "label": "PER"},
                                                              {"start": 35, "end": 49, "label": "WORK"}]}))  # fmt: skip
    assert words(found) == ["He left .", "She met Dr. Hugo Brandt .", "The End . Of It came out", "in Leeds ."]
    assert tags(found) == ["O O O", "O O O B-PER I-PER O", "B-WORK I-WORK I-WORK I-WORK I-WORK O O", "O O O"]


def test_words_are_those_that_tag_predict_finds(tmp_path: Path) -> None:
    from flair_nas.tagging.prediction import tokens_of

    line = "He can't — “really” — pay $5.30\u00a0now\u200b, isn't it?"
    assert words(convert(tmp_path, jsonl({"text": line, "spans": []}))) == [" ".join(t.text for t in tokens_of(line))]


@pytest.mark.parametrize(
    ("spans", "expected", "told"),
    [
        ([[0, 2, "PER"]], "B-PER O O O O O", "end within a word, widened to all of it: 1 (line 2, 'Ad' to 'Ada')"),
        ([[5, 27, "LOC"]], "O B-LOC I-LOC I-LOC I-LOC O", "(line 2, 'ovelace lives in Leeds' to 'Lovelace lives in L"),
        ([[0, 3, "A"], [0, 12, "B"]], "B-B I-B O O O O", "overlap a longer or earlier one, left out: 1 (line 2, 'Ada'"),
        ([[0, 12, "A"], [4, 18, "B"]], "O B-B I-B O O O", "overlap a longer or earlier one, left out: 1 (line 2, 'A"),
        ([[0, 3, "A"], [2, 3, "B"]], "B-A O O O O O", "overlap a longer or earlier one, left out: 1 (line 2, 'a', B)"),
        ([[0, 3, "A"], [0, 3, "A"]], "B-A O O O O O", ""),
        ([[22, 29, "A"]], "O O O O O O", "do not fit the text, left out: 1 (line 2, 22 to 29, '')"),
        ([[5, 5, "A"]], "O O O O O O", "do not fit the text, left out: 1 (line 2, 5 to 5, '')"),
        ([[3, 4, "A"]], "O O O O O O", "do not fit the text, left out: 1 (line 2, 3 to 4, ' ')"),
        ([[-3, 4, "A"]], "O O O O O O", "do not fit the text"),
        ([[0, 4, "A"]], "B-A O O O O O", "with white space at an end, taken without it: 1 (line 2, 'Ada ')"),
        ([{"start": 1, "end": 4, "label": "A", "text": "Ada"}], "O O O O O O", "(line 2, 1 to 4, 'da ', not 'Ada')"),
    ],
)  # fmt: skip
def test_spans_that_do_not_fit_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: list[Any], expected: str, told: str
) -> None:
    assert tags(convert(tmp_path, "\n" + jsonl({"text": TEXT, "label": spans}))) == [expected]
    assert told in caplog.text and len(caplog.messages) == bool(told)


def test_what_is_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = {**STUDIO, "annotations": [{"result": [{"type": "choices", "value": {"choices": ["good"]}}]}] * 2}
    records = [
        {"text": " \n", "spans": []},
        {"text": "no", "spans": SPANS, "answer": "reject"},
        {**STUDIO, "annotations": []},
        task,
        {"tokens": ["\n", "Ada", "by\tname"], "tags": ["B-PER", "I-PER", "O"]},
        {"tokens": [" "], "tags": ["O"]},
    ]
    assert tags(convert(tmp_path, jsonl(*records))) == ["O O O O O O", "B-PER O"]
    told = [message.partition("data.jsonl: ")[2] for message in caplog.messages]
    assert told == [
        "texts without words, left out: 1 (line 1)",
        "texts that were not accepted, left out: 1 (line 2, 'reject')",
        "tasks without an annotation, left out: 1 (line 3, 'Ada Lovelace lives in Leeds.')",
        "tasks with several annotations, of which the first counts: 1 (line 4)",
        "results other than spans, left out: 1 (line 4, 'choices')",
        "words of white space alone, left out: 2 (line 5, '\\n', B-PER; line 6, ' ', O)",
        "words with white space, which becomes a blank: 1 (line 5, 'by\\tname')",
        "sentences without words, left out: 1 (line 6)",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"text": "a", "spans": []}\n{"text": "b"', "data.jsonl:2: not JSON (Expecting ',' delimiter); is the"),
        ('[{"text": "a", "spans": []},\n', "not JSON: the list of records does not end as it should"),
        ('{"text": "a", "spans": []}\n]', "not JSON"),
        ('{"text": "a"}\n', "data.jsonl:1: a record with the keys text is not known; known are"),
        ("[]", "data.jsonl:1: [] is no record"),
        ('{"text": "a", "label": ["good"]}', "data.jsonl:1: 'good' is no span: it needs start and end"),
        ('{"text": "a", "label": [["0", 1, "A"]]}', "is no span"),
        ('{"text": "a", "label": [[0, 1, ""]]}', "is no span"),
        ('{"text": "a", "label": [[0, 1, "A\\tB"]]}', "is no span"),
        ('{"tokens": ["a", "b"], "tags": ["O"]}', "data.jsonl:1: 2 tokens and 1 tags; each token needs a tag"),
        ('{"tokens": ["a"], "ner_tags": [3]}', "data.jsonl:1: tags are numbers; write the names"),
        ('{"tokens": ["a"], "ner_tags": ["B-"]}', "data.jsonl:1: 'B-' has no type"),
        ('{"data": {"a": "x", "b": "y"}, "annotations": []}', "the data of this task is no single text"),
    ],
)  # fmt: skip
def test_json_that_cannot_be_used(tmp_path: Path, text: str, wanted: str) -> None:
    assert wanted in error_of(tmp_path, text)


# Files.


def test_file_names_tell_the_parts(tmp_path: Path) -> None:
    names = ("Train-1.jsonl", "notes.jsonl", "my_valid.jsonl", "ner.testb.json")
    for name in names:
        (tmp_path / name).write_text(jsonl({"text": name[:2], "spans": [{"start": 0, "end": 2, "label": "X"}]}))
    parts = convert_corpus([tmp_path / name for name in names], tmp_path / "out")
    assert {part: (found.path.read_text(), dict(found.labels)) for part, found in parts.items()} == {
        "train": ("Tr\tB-X\n\nno\tB-X\n", {"X": 2}),
        "dev": ("my\tB-X\n", {"X": 1}),
        "test": ("ne\tB-X\n", {"X": 1}),
    }
    (tmp_path / "train_test.jsonl").write_text("{}")
    with pytest.raises(FlairNasError, match="the name could mean train or test; rename"):
        convert_corpus([tmp_path / "train_test.jsonl"], tmp_path / "other")


def test_nothing_is_replaced_and_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train.jsonl", "dev.jsonl"):
        (tmp_path / name).write_text(jsonl({"text": TEXT, "spans": SPANS}))
    out = tmp_path / "out"
    out.mkdir()
    (out / "dev.txt").write_text("mine")
    with pytest.raises(FlairNasError, match="dev.txt would be replaced; give another --out"):
        convert_corpus([tmp_path / "train.jsonl", tmp_path / "dev.jsonl"], out)
    assert {path.name: path.read_text() for path in out.iterdir()} == {"dev.txt": "mine"}
    (out / "dev.txt").unlink()

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(OSError, match="no room to write this file"):
        convert_corpus([tmp_path / "train.jsonl", tmp_path / "dev.jsonl"], out)
    assert list(out.iterdir()) == []


def test_the_command_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(jsonl({"text": TEXT, "spans": SPANS}))
    assert main(["convert", "a.jsonl", "--out", "corpus"]) == 0
    found = capsys.readouterr()
    assert found.out.splitlines() == [
        "corpus/train.txt: 1 sentences, 6 words; LOC 1, PER 1",
        "next: flair-nas tag train --corpus corpus --out runs/tagger",
    ]
    assert found.err == ""
    assert main(["convert", "b.jsonl", "--out", "corpus2"]) == 2
    assert capsys.readouterr().err == "flair-nas: b.jsonl cannot be read: No such file or directory\n"
    assert not Path("corpus2").exists()


def test_a_task_whose_spans_quote_a_list_or_have_no_value_is_read(tmp_path: Path) -> None:
    span = {"start": 0, "end": 3, "labels": ["PER"], "text": ["Ada"]}
    task = {"data": {"text": "Ada sings."}, "annotations": [{"result": [{"value": span}, {"value": None}]}]}
    (file := tmp_path / "tasks.json").write_text(json.dumps([task]), encoding="utf-8")
    assert convert_corpus([file], tmp_path / "out")["train"].labels == {"PER": 1}
    (odd := tmp_path / "odd.json").write_text(json.dumps([{**task, "annotations": {"result": []}}]), encoding="utf-8")
    with pytest.raises(FlairNasError, match=r"odd.json:1: the annotations of this task are no list"):
        convert_corpus(odd, tmp_path / "no")


def test_csv_may_begin_with_an_empty_line(tmp_path: Path) -> None:
    (file := tmp_path / "a.csv").write_text("\nSentence #,Word,Tag\n1,Ada,B-PER\n1,sings,O\n", encoding="utf-8")
    assert convert_corpus(file, tmp_path / "out")["train"].words == 2
