"""Column files as they are published: word for word, tag for tag and span for span what a plain reader finds."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flair
import pytest
from flair.data import Corpus
from flair.datasets import (
    CONLL_03,
    CONLL_03_DUTCH,
    CONLL_2000,
    NER_GERMAN_GERMEVAL,
    WNUT_17,
    ColumnCorpus,
    UniversalDependenciesCorpus,
)

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.objectives import tagging
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.column_files import read_column_file
from flair_nas.tagging.data.column_rows import ColumnFormat
from flair_nas.tagging.data.corpora import describe_corpus, load_corpus, load_corpus_of
from flair_nas.tagging.usage_script import flair_script
from flair_nas.tune.config import TuneConfig

Spans = list[tuple[int, int, str]]


@dataclass
class Format:
    """A format, and how a plain reader reads it.

    Args:
        text: of a file.
        columns: as for `load_corpus`.
        parted: a regular expression that parts columns.
        no_word: a regular expression for rows that are no words.
        flair: makes Flair's corpus of a folder with the files of `names`; None where Flair reads the format wrongly.
        names: of the train, dev and test file.
    """

    text: str
    columns: dict[int, str]
    parted: str = r"\s+"
    no_word: str = "(?!)"
    flair: Callable[[Path], Corpus] | None = None
    names: tuple[str, str, str] = ("train.txt", "dev.txt", "test.txt")

    @property
    def label(self) -> str:
        """Name of the label column, the last."""
        return list(self.columns.values())[-1]

    def sentences(self) -> list[list[tuple[str, str]]]:
        """Return word and tag of each row, by sentence."""
        word, tag = ([c for c, name in self.columns.items() if name == what][0] for what in ("text", self.label))
        found: list[list[tuple[str, str]]] = [[]]
        for line in self.text.split("\n"):
            if line.startswith("-DOCSTART-"):
                found += [[("-DOCSTART-", "O")], []]
            elif not line.strip():
                found.append([])
            elif not re.match(self.no_word, line):
                row = re.split(self.parted, line)
                found[-1].append((row[word], row[tag]))
        return [rows for rows in found if rows]


def spans_of(tags: list[str]) -> Spans:
    """Return start, end and type of each span, by the rule of conlleval for all letters."""
    found: Spans = []
    before = "O"
    for place, tag in enumerate(tags):
        letter, kind = tag[0], tag[2:] or "SPAN"
        inside = found and letter != "O" and before[0] not in "OESLUW" and letter not in "BSUW" and found[-1][2] == kind
        if inside:
            found[-1] = (found[-1][0], place + 1, kind)
        elif letter != "O":
            found.append((place, place + 1, kind))
        before = tag
    return found


def column_corpus(columns: dict[int, str], **options: Any) -> Callable[[Path], Corpus]:
    return lambda folder: ColumnCorpus(folder, columns, "train.txt", "test.txt", "dev.txt", **options)


NER, CHUNKS = {0: "text", 1: "ner"}, {0: "text", 1: "pos", 2: "np"}
GERMEVAL = ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv")
UNIVERSAL = ("fr_x-ud-train.conllu", "fr_x-ud-dev.conllu", "fr_x-ud-test.conllu")

FORMATS = {
    "CoNLL-2000": Format(
        "He PRP B-NP\npaid VBD B-VP\n# # B-NP\n4 CD I-NP\nto TO B-PP\n\n# # B-NP\nrose VBD B-VP\n",
        CHUNKS,
    ),
    "CoNLL-2000, parts of speech": Format("He PRP B-NP\n# # B-NP\n4 CD I-NP\n", {0: "text", 1: "pos"}),
    "Penn Treebank": Format("He PRP\n# #\n4 CD\n", {0: "text", 1: "pos"}),
    "CoNLL-2000, no #": Format(
        "He PRP B-NP\npaid VBD B-VP\n. . O\n\nThey PRP B-NP\nrose VBD B-VP\n",
        CHUNKS,
        flair=lambda folder: CONLL_2000(folder.parent),
    ),
    "CoNLL-2002": Format(
        "-DOCSTART- -DOCSTART- O\nHugo N B-PER\nBrandt N I-PER\nwoont V O\n\nHij Pron O\n\n-DOCSTART- -DOCSTART- O\n"
        "Leeds N B-LOC\n",
        {0: "text", 1: "pos", 2: "ner"},
        flair=lambda folder: CONLL_03_DUTCH(folder.parent.parent),
        names=("raw/ned.train", "raw/ned.testa", "raw/ned.testb"),
    ),
    "CoNLL-2002, IOB1": Format(
        "Hugo N I-PER\nBrandt N I-PER\nLeeds N B-PER\nin Prep O\nRoma N I-LOC\nUnited N I-ORG\n\nLeeds N I-LOC\n",
        {0: "text", 1: "pos", 2: "ner"},
        flair=column_corpus({0: "text", 1: "pos", 2: "ner"}),
    ),
    "CoNLL-2003": Format(
        "-DOCSTART- -X- -X- O\n\nLeeds NNP B-NP I-ORG\nbeat VBD B-VP O\nNorth NNP B-NP I-LOC\nTown NNP I-NP I-LOC\n",
        {0: "text", 1: "pos", 3: "ner"},
        flair=lambda folder: CONLL_03(folder.parent),
        names=("eng.train", "eng.testa", "eng.testb"),
    ),
    "CoNLL-U": Format(
        "# sent_id = 1\n# text = Il va au lac\n"
        "1\tIl\til\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tva\taller\tVERB\t_\t_\t0\troot\t_\t_\n"
        "3-4\tau\t_\t_\t_\t_\t_\t_\t_\t_\n3\tà\tà\tADP\t_\t_\t5\tcase\t_\t_\n4\tle\tle\tDET\t_\t_\t5\tdet\t_\t_\n"
        "5\tlac\tlac\tNOUN\t_\t_\t2\tobl\t_\t_\n5.1\tva\taller\tVERB\t_\t_\t_\t_\t_\t_\n"
        "6\t#\t#\tSYM\t_\t_\t2\tdep\t_\t_\n\n# text = 13 819\n1\t13 819\t13 819\tNUM\t_\t_\t0\troot\t_\t_\n",
        {1: "text", 3: "upos"},
        parted="\t",
        no_word=r"#|\d+[-.]\d",
        flair=UniversalDependenciesCorpus,
        names=UNIVERSAL,
    ),
    "GermEval 2014": Format(
        "#\thttp://example.org/a\t[2009-10-17]\t\n1\tDie\tO\tO\n2\tBrandt-Stiftung\tB-ORGpart\tB-PERpart\n3\tin\tO\tO\n"
        "4\t#\tO\tO\n\n#\texample.org vom 26.02.2005\t[2005-02-26]\t\n1\tFC\tB-ORG\tO\n2\tLeeds\tI-ORG\tB-LOC\n",
        {1: "text", 2: "ner"},
        parted="\t",
        no_word="#",
        flair=lambda folder: NER_GERMAN_GERMEVAL(folder.parent),
        names=GERMEVAL,
    ),
    "MultiCoNER": Format(
        "# id 1f-2e\tdomain=en\nhugo _ _ B-PER\nbrandt _ _ I-PER\nsang _ _ O\n# _ _ O\n1 _ _ O\n\n# id 3d\tdomain=en\n"
        "leeds _ _ B-LOC\n",
        {0: "text", 3: "ner"},
        no_word="# id ",
        flair=column_corpus({0: "text", 3: "ner"}, comment_symbol="# id "),
    ),
    "WikiANN": Format(
        "en:Leeds\tB-ORG\nen:United\tI-ORG\nen:#\tO\n\nen:Roma\tB-LOC\n", NER, flair=column_corpus(NER)
    ),
    "BMES": Format("Leeds B-ORG\nand M-ORG\nTown E-ORG\nin O\nRoma S-LOC\nHugo S-PER\n\nHugo S-PER\n", NER),
    "BILOU": Format("Leeds B-ORG\nand I-ORG\nTown L-ORG\nRoma U-ORG\nHugo U-PER\nin O\n\nHugo U-PER\n", NER),
    "BIOES": Format(
        "Leeds B-ORG\nand I-ORG\nTown E-ORG\nRoma S-ORG\nin O\n\nHugo S-PER\n", NER, flair=column_corpus(NER)
    ),
    "WNUT": Format(
        "#photography\tO\n#\tO\n@hugo\tB-person\nBrandt\tI-person\n\nLeeds\tB-location\n#1\tO\n",
        NER,
        flair=lambda folder: WNUT_17(folder.parent),
        names=("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    ),
    "blanks in columns": Format(
        "New York\tB-geo place\n13\u00a0819\tO\n# 5\tO\n\nin\tO\nNew York\tB-geo place\n", NER, parted="\t",
        flair=column_corpus(NER, column_delimiter="\t", comment_symbol=None),
    ),
    "without a type": Format("factor\tB\nkappa\tI\nbinds\tO\nbeta\tB\nalpha\tB\n\nit\tO\n", NER),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a format where Flair's class looks for it, without a network."""
    monkeypatch.setattr(flair, "cache_root", tmp_path)

    def write(name: str) -> Path:
        places = {"CoNLL-2002": "conll_03_dutch", "CoNLL-2003": "conll_03", "GermEval 2014": "ner_german_germeval",
                  "CoNLL-2000, no #": "conll_2000", "WNUT": "wnut_17"}  # fmt: skip
        path = tmp_path / "datasets" / places.get(name, "other")
        for file in FORMATS[name].names:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (path / file).write_text(FORMATS[name].text, encoding="utf-8")
        return (path / FORMATS[name].names[0]).parent

    return write


def read(part: Any, label: str) -> list[tuple[list[str], list[str], Spans, bool]]:
    """Return words, labels of words, spans, and what else Flair's sentences are."""
    found = []
    for sentence in part:
        spans = sorted((s[0].idx - 1, s[-1].idx, s.get_label(label).value) for s in sentence.get_spans(label))
        tags = [token.get_label(label, "").value for token in sentence]
        found.append(([token.text for token in sentence], tags, spans, sentence.is_document_boundary))
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_read_as_a_plain_reader_reads_it(name: str, folder: Callable[[str], Path]) -> None:
    form = FORMATS[name]
    corpus = load_corpus(str(folder(name)), columns=form.columns, label_type=form.label).corpus
    rows = form.sentences()
    for part in (corpus.train, corpus.dev, corpus.test):
        ours = read(part, form.label)
        assert [words for words, *_ in ours] == [[word for word, _ in sentence] for sentence in rows]
        if form.label in ("pos", "upos"):
            assert [tags for _, tags, *_ in ours] == [[tag for _, tag in sentence] for sentence in rows]
        else:
            assert [spans for *_, spans, _ in ours] == [spans_of([tag for _, tag in sentence]) for sentence in rows]


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].flair])
def test_a_format_is_read_as_flair_reads_it(name: str, folder: Callable[[str], Path]) -> None:
    form = FORMATS[name]
    assert form.flair
    place = folder(name)
    ours = load_corpus(str(place), columns=form.columns, label_type=form.label).corpus
    theirs = form.flair(place)
    for part in ("train", "test"):  # Flair splits dev of CoNLL-2000 off
        if name != "CoNLL-2000, no #" or part == "test":
            assert read(getattr(ours, part), form.label) == read(getattr(theirs, part), form.label)


# What is no word, and what is one although it begins with #.


def texts(path: Path, text: str, columns: dict[int, str] | None = None, **how: Any) -> list[str]:
    """Return the words of each sentence of a file with this text."""
    path.write_text(text, encoding="utf-8")
    sentences = read_column_file(path, columns, list((columns or NER).values())[-1], ColumnFormat(**how))
    return ["|".join(token.text for token in sentence) for sentence in sentences]


BIO = "Hugo B-PER\nsang O\n"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("# O\n", ["Hugo|sang|#"]),
        ("# B-PER\n", ["Hugo|sang|#"]),
        ("\n# B-EVENT\nsang O\n", ["Hugo|sang", "#|sang"]),  # a type that no other row has
        ("#tag O\n", ["Hugo|sang|#tag"]),
        ("# comment\n", ["Hugo|sang"]),  # as many columns as a word, but no tag
        ("# 3 O\n", ["Hugo|sang"]),
        ("#\tsource\n", ["Hugo|sang"]),
        ("# \n", ["Hugo|sang"]),
        ("#begin document (a/b); part 000\n", ["Hugo|sang"]),
    ],
)
def test_a_row_that_begins_with_hash_is_a_word_if_it_has_the_columns_and_a_tag(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: str, words: list[str]
) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    path = tmp_path / "a.txt"
    assert texts(path, BIO + rows) == words
    said = f"{path} holds comments: 1 (first, line 3)"
    assert caplog.messages == ([said] if "#" not in "".join(words) else [])


@pytest.mark.parametrize("row", ["#tag", "#New York B-LOC", "#"])
def test_a_word_with_a_hash_and_the_wrong_number_of_columns_is_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(FlairNasError, match="a.txt:3: . columns, where most rows have 2"):
        texts(tmp_path / "a.txt", f"{BIO}{row}\n")


def test_a_file_whose_every_row_begins_with_hash(tmp_path: Path) -> None:
    assert texts(tmp_path / "a.txt", "#a O\n#b B-LOC\n\n# O\n") == ["#a|#b", "#"]


def test_a_beginning_of_comments_makes_words_with_a_hash_comments(tmp_path: Path) -> None:
    path, text = tmp_path / "a.txt", "# 1 n O\na b c O\n\n# 2 n O\na b c B-X\n"
    assert texts(path, text, {0: "text", 3: "ner"}) == ["#|a", "#|a"]
    assert texts(path, text, {0: "text", 3: "ner"}, comment="# ") == ["a", "a"]


def test_a_word_with_a_hash_may_have_a_label_that_words_have(tmp_path: Path) -> None:
    text = "Hugo NN\n\n#fun NN\nran VB\n"
    assert texts(tmp_path / "a.txt", text, {0: "text", 1: "pos"}) == ["Hugo", "#fun|ran"]


def test_rows_that_are_no_words_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    path = tmp_path / "a.txt"
    texts(path, FORMATS["CoNLL-U"].text, {1: "text", 3: "upos"})
    texts(path, FORMATS["CoNLL-2002"].text, {0: "text", 2: "ner"})
    texts(path, f"{BIO}# O\n# a comment\n")
    assert caplog.messages == [
        f"{path} holds comments: 3 (first, line 1), ranges of words: 1 (first, line 5), empty nodes: 1 (first, line 9)",
        f"{path} holds document marks: 2 (first, line 1)",
        f"{path} holds comments: 1 (first, line 4)",
    ]


@pytest.mark.parametrize("text", ["3-4 O\n5.1 B-X\n", "1-2 O\n3-4 O\n"])
def test_scores_and_versions_are_words_where_nothing_is_counted(tmp_path: Path, text: str) -> None:
    assert texts(tmp_path / "a.txt", text) == ["|".join(line.split()[0] for line in text.splitlines())]
    numbered = "".join(f"{line.split()[0]}\t{line}\n".replace(" ", "\t") for line in text.splitlines())
    assert texts(tmp_path / "a.txt", numbered, {1: "text", 2: "ner"}) == texts(tmp_path / "b.txt", text)


def test_document_marks_part_sentences_wherever_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert texts(path, f"{BIO}-DOCSTART-\n{BIO}") == ["Hugo|sang", "-DOCSTART-", "Hugo|sang"]
    sentences = read_column_file(path, None, "ner")
    assert [sentence.is_document_boundary for sentence in sentences] == [False, True, False]
    assert sentences[2].previous_sentence() is sentences[1] and sentences[0].next_sentence() is sentences[1]


# Columns.


@pytest.mark.parametrize(
    ("delimiter", "text"),
    [
        (",", "New York, B-LOC\nin,O\n"),
        ("|", "New York|B-LOC\nin|O\n"),
        (r" \|\|\| ", "New York ||| B-LOC\nin ||| O\n"),
    ],
)
def test_columns_are_parted_by_what_delimiter_says(tmp_path: Path, delimiter: str, text: str) -> None:
    assert texts(tmp_path / "a.txt", text, delimiter=delimiter) == ["New York|in"]
    assert texts(tmp_path / "a.txt", text, NER, delimiter=delimiter) == ["New York|in"]


def test_the_settings_reach_every_reader(tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("% a note\nNew York|B-LOC\nin|O\n")
    named: dict[str, Any] = {"corpus": str(tmp_path), "column_delimiter": "|", "comment_symbol": "%"}
    expected = load_corpus(str(tmp_path), delimiter="|", comment="%").sha256
    tuned = TuneConfig(**named, embeddings=["char"])
    assert load_corpus_of(TaggerConfig(**named)).sha256 == expected
    assert tagging_task.read(tuned.run_settings({})).sha256 == expected
    assert tagging.read(TaggingSearchConfig(**named)).sha256 == expected
    (line,) = [line for line in flair_script(TaggerConfig(**named)) if "load_corpus(" in line]
    assert line.endswith("delimiter='|', comment='%')")


@pytest.mark.parametrize(
    ("delimiter", "wanted"), [("(a", "must be a regular expression"), (" *", "match no empty"), ("(\\t)", "no groups")]
)
def test_a_delimiter_that_cannot_part_columns(tmp_path: Path, delimiter: str, wanted: str) -> None:
    with pytest.raises(FlairNasError, match=wanted):
        texts(tmp_path / "a.txt", BIO, delimiter=delimiter)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("token tag\n" + "a b O\n" * 9, "a.txt:1: 2 columns, where most rows have 3"),
        ("a title\nof three words\n" + "a b c O\n" * 9, "a.txt:1: 2 columns, where most rows have 4"),
        ("New York\tB-LOC\nin\tO\nof O\n", "a.txt:1: 3 columns, where most rows have 2"),
    ],
)
def test_the_odd_row_is_blamed(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(FlairNasError) as caught:
        texts(tmp_path / "a.txt", text)
    assert wanted in str(caught.value)


@pytest.mark.parametrize("columns", [None, NER])
@pytest.mark.parametrize(
    "text",
    [
        'Sentence #,Word,POS,Tag\nSentence: 1,Hugo,NNP,B-per\n,",",X,O\n,sang,X,O\nSentence: 2,He,X,O\n',
        "Word;Tag\nHugo;B-per\n;\nHe;O\n",
        "Sentence #;Word;Tag\nSentence: 1;Hugo;B-per\nSentence: 1;sang;O\nSentence: 2;He;O\n",
        '{"text": "Hugo sang", "spans": []}\n{"text": "He left", "spans": []}\n',
        '{"tokens": ["Hugo"], "ner_tags": ["B-PER"]}\n',
        '[\n {"data": {"text": "Hugo"}, "annotations": []}\n]\n',
        '[{"data": {"text": "Hugo"}, "annotations": []}]\n',
    ],
)
def test_csv_and_json_are_answered_with_what_to_type(tmp_path: Path, columns: dict[int, str] | None, text: str) -> None:
    (path := tmp_path / "train.csv").write_text(text)
    with pytest.raises(FlairNasError) as caught:
        read_column_file(path, columns, "ner")
    assert str(caught.value).startswith(f"{path} is JSON or CSV with headings")
    assert f"flair-nas convert {path} --out FOLDER" in str(caught.value)


def test_csv_without_headings_is_read_with_a_delimiter(tmp_path: Path) -> None:
    assert texts(tmp_path / "a.csv", "I,O\nn,O\n\nLeeds,B-LOC\n", delimiter=",") == ["I|n", "Leeds"]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("Sentence #\tWord\tTag\nSentence: 1\tHugo\tB-per\nSentence: 1\tsang\tO\n", None),
        ("Sentence #\tWord\tTag\nSentence: 1\tHugo\tB-per\n\tsang\tO\n", None),
        ("sentence_id,word,label\n1,Hugo,B-per\n1,sang,O\n", ","),
    ],
)
def test_a_column_that_numbers_sentences_is_seen(tmp_path: Path, text: str, delimiter: str | None) -> None:
    with pytest.raises(FlairNasError, match="a.tsv is JSON or CSV with headings; .*convert"):
        texts(tmp_path / "a.tsv", text, delimiter=delimiter)


# Headings, and sentences that a column ends.

HIPE = (
    "TOKEN\tNE-COARSE\tMISC\n# document = 1\nHugo\tB-pers\t_\nsang\tO\tNoSpaceAfter\n.\tO\tEndOfSentence\n"
    "EndOfSentence\tO\t_\nleft\tO\tNoSpaceAfter|EndOfSentence\n\nShe\tO\t_\n"
)


def test_headings_are_left_out_and_a_column_ends_sentences(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    path = tmp_path / "a.tsv"
    assert texts(path, HIPE, {0: "text", 1: "ner"}) == ["Hugo|sang|.", "EndOfSentence|left", "She"]
    assert caplog.messages == [
        f"{path} holds headings: 1 (first, line 1), comments: 1 (first, line 2), 'EndOfSentence', which ends a "
        "sentence: 2 (first, line 5)"
    ]


def test_every_command_reads_sentences_that_a_column_ends(tmp_path: Path) -> None:
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(HIPE)
    named: dict[str, Any] = {"corpus": str(tmp_path), "columns": "text=0,ner=1"}
    tuned = TuneConfig(**named, embeddings=["char"])
    for corpus in (
        load_corpus_of(TaggerConfig(**named)),
        tagging_task.read(tuned.run_settings({})),
        tagging.read(TaggingSearchConfig(**named)),
    ):
        assert [len(part) for part in (corpus.corpus.train, corpus.corpus.dev, corpus.corpus.test)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("Token Tag", ["Hugo|sang"]),
        ("word label", ["Hugo|sang"]),
        ("text O", ["text|Hugo|sang"]),
        ("Form B-X", ["Form|Hugo|sang"]),
    ],
)
def test_a_row_of_headings_is_no_word(tmp_path: Path, first: str, words: list[str]) -> None:
    assert texts(tmp_path / "a.txt", f"{first}\n{BIO}") == words


def test_the_heading_of_a_later_row_is_a_word(tmp_path: Path) -> None:
    assert texts(tmp_path / "a.txt", "word NN\nran VB\n\nword NN\n", {0: "text", 1: "pos"}) == ["word|ran", "word"]


@pytest.mark.parametrize("words", [200, 201])
def test_a_long_sentence_is_told_with_its_line(tmp_path: Path, caplog: pytest.LogCaptureFixture, words: int) -> None:
    path = tmp_path / "a.txt"
    texts(path, f"{BIO}\n" + "on O\n" * words + f"\n{BIO}")
    told = [f"{path}:4: a sentence of {words} words begins here; an empty line ends a"]
    assert [message[: len(told[0])] for message in caplog.messages] == told * (words > 200)


# Labels.


@pytest.mark.parametrize(
    ("tags", "spans", "said"),
    [
        ("B I O B", [(0, 2, "SPAN"), (3, 4, "SPAN")], "labels B, I are read as spans of one type, SPAN"),
        ("I I O I", [(0, 2, "SPAN"), (3, 4, "SPAN")], "one type"),
        ("B M E S", [(0, 3, "SPAN"), (3, 4, "SPAN")], "one type"),
        (
            "B_PER I_PER O B_LOC",
            [(0, 2, "PER"), (3, 4, "LOC")],
            "B_LOC, B_PER, I_PER are read as B-LOC, B-PER, I-PER",
        ),
        (
            "PER-B PER-I O LOC-B",
            [(0, 2, "PER"), (3, 4, "LOC")],
            "LOC-B, PER-B, PER-I are read as B-LOC, B-PER, I-PER",
        ),
        ("PER_B PER_I O LOC_B", [(0, 2, "PER"), (3, 4, "LOC")], "read as B-LOC, B-PER, I-PER"),
        ("b-per i-per o b-loc", [(0, 2, "per"), (3, 4, "loc")], "read as B-loc, B-per, I-per"),
        ("U-PER U-PER O U-LOC", [(0, 1, "PER"), (1, 2, "PER"), (3, 4, "LOC")], "read as S-LOC, S-PER"),
        ("B-PER I-PER O S-LOC", [(0, 2, "PER"), (3, 4, "LOC")], None),
        ("I-PER B-PER O I-LOC", [(0, 1, "PER"), (1, 2, "PER"), (3, 4, "LOC")], None),
    ],
)
def test_labels_whose_meaning_is_clear_are_spans(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tags: str, spans: Spans, said: str | None
) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    path = tmp_path / "a.txt"
    path.write_text("".join(f"w{place} {tag}\n" for place, tag in enumerate(tags.split())))
    ((_, _, found, _),) = read(read_column_file(path, None, "ner"), "ner")
    assert found == spans
    assert len(caplog.messages) == (said is not None) and (said or "") in "".join(caplog.messages)


@pytest.mark.parametrize("tags", ["GENE GENE O", "PER ORG O", "NN O SYM"])
def test_labels_without_prefixes_are_of_words_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tags: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"w {tag}\n" for tag in tags.split()))
    ((_, labels, spans, _),) = read(read_column_file(path, None, "ner"), "ner")
    assert [label or "O" for label in labels] == tags.split() and not spans
    first = min(set(tags.split()) - {"O"})
    (said,) = caplog.messages
    assert (
        f"labels such as {first!r} have no B- or I-, so they are of single words" in said and f"write B-{first}" in said
    )


@pytest.mark.parametrize("tags", ["NN VB", "NN-S VB-S", "X-B Y-B", "POS_B Z"])
def test_labels_of_words_without_o_are_as_usual(tmp_path: Path, caplog: pytest.LogCaptureFixture, tags: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"w {tag}\n" for tag in tags.split()))
    ((_, labels, _, _),) = read(read_column_file(path, None, "pos"), "pos")
    assert labels == tags.split() and not caplog.messages


@pytest.mark.parametrize(
    ("label", "advice"),
    [
        ("B-", "'B-' has no type; write B-PER, or B alone for spans of one type"),
        ("b", "'b' among tags such as 'B-PER'"),
        ("I-ORG|B-LOC", "'I-ORG|B-LOC' is of nested spans; write a column for each layer"),
        ("B-ORG|O", "nested spans"),
        ("B-ORG+I-LOC", "nested spans"),
        ("(PER*", "marks spans by brackets"),
        ("PER", "'PER' among tags such as 'B-PER'"),
        ("X-LOC", "'X-LOC' among tags such as 'B-PER'"),
    ],
)
def test_labels_whose_meaning_is_not_clear_are_named_with_their_row(tmp_path: Path, label: str, advice: str) -> None:
    with pytest.raises(FlairNasError) as caught:
        texts(tmp_path / "a.txt", f"Hugo B-PER\nsang {label}\nthere {'*' if '*' in label else 'O'}\n")
    assert f"a.txt:2: {label!r} " in str(caught.value) and advice in str(caught.value)


def test_labels_of_several_columns_are_as_flair_reads_them(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O -\n\nHugo NNP B-NP B-PER -\nsang VBD O O -\n\nHe PRP B-NP O -\n. . O O +\n"
    columns = {0: "text", 1: "pos", 2: "np", 3: "ner", 4: "space-after"}
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(text)
    ours = load_corpus(str(tmp_path), columns=columns, label_type="ner").corpus.train
    theirs = ColumnCorpus(tmp_path, columns, "train.txt", document_separator_token="-DOCSTART-").train
    for own, other in zip(ours, theirs, strict=True):
        assert own.to_original_text() == other.to_original_text()
        assert [str(label) for label in own.labels] == [str(label) for label in other.labels]
        assert [token.start_position for token in own] == [token.start_position for token in other]
    features = {0: "text", 1: "pos", 5: "feats", 6: "head"}
    (tmp_path / "a.txt").write_text("It PRP O O _ Number=Sing|SpaceAfter=No 2\nis VB O O _ _ 0\n")
    (sentence,) = read_column_file(tmp_path / "a.txt", features, "pos")
    assert sentence.to_original_text() == "Itis" and sentence[0].get_label("Number").value == "Sing"
    assert [token.head_id for token in sentence] == [2, 0]
    with pytest.raises(FlairNasError, match="head.* holds no numbers"):
        read_column_file(tmp_path / "a.txt", {0: "text", 1: "pos", 4: "head"}, "pos")


@pytest.mark.parametrize(
    ("text", "columns", "wanted"),
    [
        ("Velna\tNNP\tB-PER\nran\t\tO\n", {0: "text", 2: "ner"}, [("Velna", "PER")]),
        ("Velna\tNNP\tB-PER\t\nOrr\t\tI-PER\tB-LOC\n", {0: "text", 2: "ner"}, [("Velna Orr", "PER")]),
        ("Velna\t\tB-PER\tO\nran\tB-LOC\t\tO\n", {0: "text", 1: "place", 3: "ner", 2: "x"}, []),
        ("Velna\tB-PER\t\nran\tO\t\n", None, [("Velna", "PER")]),
        ("Velna\t\t\tB-PER\nran\tO\n", None, [("Velna", "PER")]),
    ],
    ids=["empty column", "empty last column", "several", "tab at each end", "tabs to align"],
)
def test_an_empty_column_between_tabs_moves_nothing(
    tmp_path: Path, text: str, columns: dict[int, str] | None, wanted: list[tuple[str, str]]
) -> None:
    (tmp_path / "rows.tsv").write_text(text)
    (sentence,) = read_column_file(tmp_path / "rows.tsv", columns, "ner")
    assert [(span.text, span.get_label("ner").value) for span in sentence.get_spans("ner")] == wanted


@pytest.mark.parametrize("delimiter", [None, "\t", r"\t"])
def test_an_empty_column_at_the_end_of_some_rows(tmp_path: Path, delimiter: str | None) -> None:
    text = "New York\tB-LOC\t\nin\tO\ta note\n"
    assert texts(tmp_path / "a.tsv", text, NER, delimiter=delimiter) == ["New York|in"]


def test_many_blanks_take_no_time(tmp_path: Path) -> None:
    word = f"New{' ' * 100_000}York"  # half a minute by a regular expression that looks for the next tab
    assert texts(tmp_path / "a.tsv", f"{word}\tB-LOC\nin\tO\n") == [f"{word}|in"]


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("I-A E-A I-A E-A E-A O E-B", [(0, 2, "A"), (2, 4, "A"), (4, 5, "A"), (6, 7, "B")]),  # IOE2
        ("S-A I-A O", [(0, 1, "A"), (1, 2, "A")]),
        ("I-A O I-A B-B", [(0, 1, "A"), (2, 3, "A"), (3, 4, "B")]),
        ("B-A E-B B-C O", [(0, 1, "A"), (1, 2, "B"), (2, 3, "C")]),
        ("B-A I-A E-A S-A O", [(0, 3, "A"), (3, 4, "A")]),
    ],
)
def test_an_entity_ends_at_e_and_s(tmp_path: Path, tags: str, wanted: Spans) -> None:
    (tmp_path / "rows.txt").write_text("".join(f"w {tag}\n" for tag in tags.split()))
    (sentence,) = read_column_file(tmp_path / "rows.txt", None, "ner")
    spans = sentence.get_spans("ner")
    assert [(s[0].idx - 1, s[-1].idx, s.get_label("ner").value) for s in spans] == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Velna\tname=B-PER\nran\tO\n", "rows.txt:1: 'name=B-PER' has a name before the tag"),
        ("Velna N\nran _\n", "rows.txt:2: '_' stands for no label"),
        ("Velna\tB-PER\nran\t\nsat\tO\n", "rows.txt:2: '' stands for no label"),
    ],
)
def test_what_stands_for_no_label_is_refused(tmp_path: Path, text: str, wanted: str) -> None:
    (tmp_path / "rows.txt").write_text(text)
    with pytest.raises(FlairNasError, match=re.escape(wanted)):
        read_column_file(tmp_path / "rows.txt", None, "ner")


def test_another_column_with_tags_of_spans_is_told_unless_columns_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = ["-DOCSTART- -X- -X- O", "", "Ada B-PER NNP B-NP", "Byron I-PER NNP I-NP", "sang O VBD B-VP", ""]
    (tmp_path / "train.txt").write_text("\n".join(rows * 20))
    with caplog.at_level(logging.INFO, "flair_nas"):
        corpus = load_corpus(tmp_path)
        describe_corpus(corpus)
    assert "column 1 has tags of spans, too, as B-PER: --columns text=0,ner=1" in caplog.text
    assert "column 2" not in caplog.text and "beginning 'Ada Byron sang'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, "flair_nas"):
        load_corpus(tmp_path, columns={0: "text", 1: "ner"})
    assert "too, as" not in caplog.text
