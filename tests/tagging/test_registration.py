"""Registration with Flair: plain Flair code trains, saves and loads searched layers, and Flair's own are untouched."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from flair.data import Corpus, Sentence
from flair.datasets import ColumnCorpus
from flair.embeddings import HashEmbeddings, OneHotEmbeddings
from flair.embeddings.base import load_embeddings
from flair.embeddings.document import DocumentRNNEmbeddings as FlairDocumentEmbeddings
from flair.models import SequenceTagger, TextClassifier
from flair.nn import Classifier, Model
from flair.nn.multitask import make_multitask_model_and_corpus
from flair.trainers import ModelTrainer
from flair.trainers.plugins import MetricHistoryPlugin
from flair.training_utils import store_embeddings

import flair_nas
from flair_nas import (
    DocumentRNNEmbeddings,
    FlairNasError,
    ParallelRNN,
    SearchedRNN,
    bundled_names,
    load_genotype,
    random_genotype,
)
from flair_nas.nn.layers import FLAIR_LAYERS
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.data.embeddings import build_embeddings

ROOT = Path(__file__).parents[2]
WIDTH, HIDDEN = 6, 8
GATED = random_genotype(1, nodes=3, edges_per_node=2, history=2)
SMALL = GATED.one_line()  # an rnn_type with gates whose training is quick
TEXTS = (
    "Hugo Brandt , managing director of Bluestack Mills , called the fine unfair .",
    "Ash Wednesday",
    "Zyx says no",
)


def tiny_corpus() -> Corpus:
    """Return 20 sentences of the demo corpus with spans ("ner"), a label of each token and one of each sentence."""
    files = {"train_file": "train.txt", "dev_file": "dev.txt", "test_file": "test.txt"}
    demo = ColumnCorpus(resource_path("demo"), {0: "text", 1: "ner"}, **files)
    parts = [[part[i] for i in range(size)] for part, size in ((demo.train, 20), (demo.dev, 4), (demo.test, 4))]
    for sentence in sum(parts, []):
        people = any(label.value == "PER" for label in sentence.get_labels("ner"))
        sentence.add_label("topic", "people" if people else "things")
        for token in sentence:
            token.add_label("case", "upper" if token.text[0].isupper() else "lower")
    return Corpus(*parts, sample_missing_splits=False)


def word_embeddings(corpus: Corpus) -> OneHotEmbeddings:
    return OneHotEmbeddings.from_corpus(corpus, min_freq=1, embedding_length=WIDTH)


def make_tagger(
    corpus: Corpus, tag_type: str = "ner", tagger: type[SequenceTagger] = SequenceTagger, **options: Any
) -> SequenceTagger:
    options = {"embeddings": word_embeddings(corpus), "hidden_size": HIDDEN, "rnn_type": "i-darts-ptb", **options}
    tags = corpus.make_label_dictionary(tag_type, add_unk=False)
    return tagger(tag_dictionary=tags, tag_type=tag_type, **options)


def train(model: Model, corpus: Corpus, folder: Path, **options: Any) -> Path:
    """Train with Flair's trainer and return the saved file."""
    defaults = {"optimizer": torch.optim.Adam, "learning_rate": 0.05, "mini_batch_size": 10, "max_epochs": 1}
    defaults |= {"use_final_model_for_eval": True, "create_file_logs": False, "embeddings_storage_mode": "none"}
    ModelTrainer(model, corpus).train(folder, **{**defaults, **options})
    return folder / "final-model.pt"


def predictions(model: Classifier) -> list[list[Any]]:
    """Return each sentence's labels with scores, and its tokens' scores of all tags, as JSON data (which is exact)."""
    model.eval()
    sentences = [Sentence(text, use_tokenizer=False) for text in TEXTS]
    model.predict(sentences, return_probabilities_for_all_classes=True)
    found = []
    for sentence in sentences:
        labels = [
            [kind, label.unlabeled_identifier, label.value, float(label.score)]
            for kind in sorted(sentence.annotation_layers)
            for label in sentence.get_labels(kind)
        ]
        tags = [label for token in sentence for tags in token.tags_proba_dist.values() for label in tags]
        found.append([labels, [[label.value, float(label.score)] for label in tags]])
    assert all(labels or tags for labels, tags in found), "predictions of nothing would agree for no reason"
    return found


# A new process that has imported neither package. Flair takes seconds to import, nearly all of them for other packages;
# a fork server that holds those saves the time for each process, and knows nothing of Flair.
HEAVY = ("torch", "transformers", "sklearn", "scipy", "pandas", "gensim", "transformer_smaller_training_vocab")


def in_new_process(code: str, **names: Any) -> Any:
    """Run code with these names in a new process and return what it leaves in `result`, JSON data."""
    can_fork = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if can_fork else "spawn")
    if can_fork:
        context.set_forkserver_preload(sorted(name for name in sys.modules if name.partition(".")[0] in HEAVY))
    # `exec` is run, not a function of this file, which would import Flair before the code does
    before = "import json, pathlib, sys\nassert not {'flair', 'flair_nas'} & set(sys.modules)\n"
    after = "\npathlib.Path(answer).write_text(json.dumps(result))\n"
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=context) as pool:
        answer = Path(folder, "answer.json")
        names = {**names, "answer": str(answer), "helpers": __name__}
        pool.submit(exec, f"{before}{code}{after}", names).result()
        return json.loads(answer.read_text())


# Only Flair is imported: the files themselves bring flair_nas in. Then they load again, beside an empty library.
LOAD = """
import importlib
import flair.models, flair.nn
assert "flair_nas" not in sys.modules
def load_all():
    classes = {**vars(flair.models), **vars(flair.nn)}
    return [classes[name].load(path) for name, path in files]
models = load_all()
import flair_nas.library.named
pathlib.Path(empty, "genotypes").mkdir(parents=True)
flair_nas.library.named.resource_path = pathlib.Path(empty).joinpath
assert not flair_nas.library.named.bundled_names()
models += load_all()
result = [importlib.import_module(helpers).predictions(model) for model in models]
"""


def assert_load_anywhere(files: dict[str, list[list[Any]]], loaders: tuple[str, ...], folder: Path) -> None:
    """Check that files load in a new process, with each loader of Flair, and predict exactly what they should."""
    pairs = [(loader, file) for file in files for loader in loaders]
    found = in_new_process(LOAD, files=pairs, empty=str(folder / "empty"))
    assert len(found) == 2 * len(pairs)
    for (loader, file), got in zip(pairs * 2, found, strict=True):
        assert got == files[file], f"{loader}.load({file!r})"


@pytest.fixture(scope="module")
def tiny() -> Corpus:
    return tiny_corpus()


@pytest.fixture
def corpus(tiny: Corpus) -> Corpus:
    store_embeddings(tiny.get_all_sentences(), "none")  # else a model would use what the one before it left
    return tiny


# --- plain Flair code, whichever package is imported first ------------------------------------------------------------

ORDERS = {
    "flair_nas first": "import flair_nas\nfrom flair.models import SequenceTagger",
    "SequenceTagger first": "from flair.models import SequenceTagger\nimport flair_nas",
    "flair first": "import flair\nimport flair_nas\nfrom flair.models import SequenceTagger",
}
TRAIN = """
import importlib
SequenceTagger.RNN("i-darts-ptb", 1, 2, True, 2)  # before anything else is imported
result = importlib.import_module(helpers).train_all_kinds(SequenceTagger, pathlib.Path(folder))
"""


def train_all_kinds(tagger: type[SequenceTagger], folder: Path) -> dict[str, list[list[Any]]]:
    """Train a tagger of each way to name a layer; return their files with their predictions."""
    corpus = tiny_corpus()
    genotype_file = folder / "mine.json"
    folder.mkdir()
    GATED.save(genotype_file)
    torch.manual_seed(0)
    taggers = {
        "name": make_tagger(corpus, tagger=tagger),
        "file": make_tagger(corpus, tagger=tagger, rnn_type=f"{genotype_file},recurrent_dropout=0.1"),
        "sru": make_tagger(corpus, tagger=tagger, rnn_type="SRU"),
        "elementwise": make_tagger(corpus, tagger=tagger, rnn_type="tanh0-relu0,recurrence=elementwise"),
        "layer": make_tagger(corpus, tagger=tagger, rnn=SearchedRNN(WIDTH, HIDDEN, GATED, 2, bidirectional=True)),
    }
    genotype_file.unlink()  # so no process that loads can find it
    files = {kind: train(made, corpus, folder / kind) for kind, made in taggers.items()}
    return {str(files[kind]): predictions(made) for kind, made in taggers.items()}


@pytest.mark.slow
def test_trains_and_saves_in_any_order_of_imports_and_loads_in_a_new_process(tmp_path):
    files = {}
    for number, (order, imports) in enumerate(ORDERS.items()):
        trained = in_new_process(imports + TRAIN, folder=str(tmp_path / str(number)))
        assert len(trained) == 5, order
        files |= trained
    assert_load_anywhere(files, ("SequenceTagger", "Classifier"), tmp_path)


OWN_TYPES = """
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import DocumentRNNEmbeddings, OneHotEmbeddings
from flair.models import SequenceTagger

def describe(model, rnn, state):
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    return [str(rnn), rnn.dropout, list(state), state["rnn_type"], weights]

result = {}
for rnn_type in ("LSTM", "GRU", "RNN"):
    torch.manual_seed(0)
    tags = Dictionary(add_unk=False)
    for tag in ("O", "S-X"):
        tags.add_item(tag)
    sentence = Sentence("a b c d e")
    embeddings = OneHotEmbeddings(Dictionary(), embedding_length=3)
    tagger = SequenceTagger(embeddings, tags, "ner", rnn_type=rnn_type, hidden_size=4, rnn_layers=2)
    document = DocumentRNNEmbeddings([embeddings], 4, 2, False, rnn_type=rnn_type, bidirectional=True)
    result[rnn_type] = [
        describe(tagger, tagger.rnn, tagger._get_state_dict()),
        describe(document, document.rnn, document.to_params()),
        tagger.forward_loss([sentence])[0].item(),
        torch.rand(1).item(),  # as many random numbers were drawn
    ]
"""


def test_types_of_flair_are_the_same_with_and_without_flair_nas():
    without = in_new_process(OWN_TYPES + "\nassert 'flair_nas' not in sys.modules")
    beside: dict[str, Any] = {}
    exec(OWN_TYPES, beside)
    assert beside["result"] == without
    assert without["LSTM"] != without["GRU"]


CHANGES = """
import importlib, pkgutil
import flair
for module in pkgutil.walk_packages(flair.__path__, "flair."):
    importlib.import_module(module.name)

def attributes():
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "flair"]
    owners = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    owners = [*modules, *(owner for owner in owners if owner.__module__.partition(".")[0] == "flair")]
    return {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}

before = attributes()
import flair_nas
after = attributes()
result = [name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)]
"""


@pytest.mark.slow
def test_the_import_changes_nine_attributes_of_flair():
    changed = {tuple(place) for place in in_new_process(CHANGES)}
    assert changed == {
        *(("SequenceTagger", name) for name in ("__init__", "RNN", "_get_state_dict", "_init_model_with_state_dict")),
        ("flair.models.language_model", "create_recurrent_layer"),
        *(("LanguageModel", name) for name in ("__init__", "repackage_hidden")),
        *(("FlairEmbeddings", name) for name in ("__init__", "to_params")),
    }


def test_what_happens_without_the_import_is_in_the_docs_under_flairs_own_words(corpus):
    readme, docs = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "docs/tagging.md")
    )
    with pytest.raises(Exception, match="Unknown RNN type") as error:
        SequenceTagger.RNN.__wrapped__("small-relu-tanh", 1, HIDDEN, True, WIDTH)
    assert f"`{error.value}`" in readme and f"`{error.value}`" in docs
    documents = FlairDocumentEmbeddings([word_embeddings(corpus)], HIDDEN, rnn_type="i-darts-ptb")
    assert isinstance(documents.rnn, torch.nn.GRU) and "builds a GRU for every name but `LSTM`" in docs
    classifier = TextClassifier(documents, label_type="topic", label_dictionary=corpus.make_label_dictionary("topic"))
    with pytest.raises(RuntimeError, match="Missing key") as error:
        TextClassifier._init_model_with_state_dict(classifier._get_state_dict())
    words = re.search(r"`(Missing key.*?)`", docs)[1]
    assert words in str(error.value)


# --- what an rnn_type says reaches the layer --------------------------------------------------------------------------

OPTIONS: tuple[dict[str, Any], ...] = (
    {"highway": False, "combine": "mean", "gate": "product", "carry": "gated"},
    {"highway": True, "combine": "sum", "gate": "residual", "carry": "ungated"},
)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain form", "highway"])
def test_options_reach_the_layer_and_survive_saving(corpus, tmp_path, options):
    opposite = OPTIONS[1 - OPTIONS.index(options)]
    genotype_file = tmp_path / "my cell.json"
    flair_nas.Genotype(GATED.nodes, GATED.output, GATED.state_gate, GATED.input_gate, **opposite).save(genotype_file)
    name = str(genotype_file)
    numbers = {"recurrent_dropout": 0.25, "input_dropout": 0.125, "init_range": 0.3}
    given = ",".join(f"{key}={value}" for key, value in {**numbers, **options}.items())
    torch.manual_seed(0)
    tagger = make_tagger(corpus, rnn_type=f"{name},{given}", word_dropout=0.0, locked_dropout=0.0)

    assert isinstance(tagger.rnn, SearchedRNN)
    assert tagger.rnn.genotype == load_genotype(name)
    assert tagger.rnn.genotype.options == options  # over those of the file
    assert {key: getattr(tagger.rnn, key) for key in numbers} == numbers
    for cell in tagger.rnn.cells:
        assert cell.weight_hidden.shape == (HIDDEN, 2 * HIDDEN if options["highway"] else HIDDEN)
        assert 0.25 < cell.weight_hidden.abs().max() <= 0.3
        assert (cell.state_gate.form, cell.input_gate.form) == (options["gate"], options["gate"])

    tagger.save(tmp_path / "tagger.pt")
    genotype_file.unlink()
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    assert loaded.rnn.config() == tagger.rnn.config()
    assert predictions(loaded) == predictions(tagger)


def test_dropouts_of_a_layer_without_a_genotype_survive_saving(corpus, tmp_path):
    rates = {"dropout": 0.1, "input_dropout": 0.2, "recurrent_dropout": 0.3}
    layer = ParallelRNN(WIDTH, HIDDEN, "sru", 2, bidirectional=True, batch_first=True, **rates)
    tagger = make_tagger(corpus, rnn=layer)
    tagger.save(tmp_path / "tagger.pt")
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    assert str(loaded.rnn) == str(tagger.rnn) and predictions(loaded) == predictions(tagger)


def test_options_in_a_genotype_file_count_when_none_are_given(corpus, tmp_path):
    for options in OPTIONS:
        flair_nas.Genotype(GATED.nodes, **options).save(tmp_path / "mine.json")
        assert make_tagger(corpus, rnn_type=str(tmp_path / "mine.json")).rnn.genotype.options == options


def test_layers_have_the_dropout_between_them_that_flairs_own_have(corpus):
    for layers in (1, 2):
        lstm = make_tagger(corpus, rnn_type="LSTM", rnn_layers=layers).rnn
        searched = make_tagger(corpus, rnn_layers=layers).rnn
        assert (searched.num_layers, searched.dropout) == (layers, lstm.dropout)
        gru = DocumentRNNEmbeddings([word_embeddings(corpus)], HIDDEN, layers).rnn
        searched = DocumentRNNEmbeddings([word_embeddings(corpus)], HIDDEN, layers, rnn_type="i-darts-ptb").rnn
        assert (searched.num_layers, searched.dropout) == (layers, gru.dropout)
    assert make_tagger(corpus, rnn_type="i-darts-ptb,dropout=0.25", rnn_layers=2).rnn.dropout == 0.25


# --- what cannot be built ---------------------------------------------------------------------------------------------


def make_document_embeddings(corpus: Corpus, rnn_type: str) -> DocumentRNNEmbeddings:
    return DocumentRNNEmbeddings([word_embeddings(corpus)], HIDDEN, rnn_type=rnn_type)


BUILDERS = pytest.mark.parametrize("build", [make_tagger, make_document_embeddings])


def test_a_genotype_is_taken_as_it_is_and_saved_with_the_tagger(corpus, tmp_path):
    torch.manual_seed(0)
    tagger = make_tagger(corpus, rnn_type=GATED)
    assert tagger.rnn.genotype == GATED
    tagger.save(tmp_path / "tagger.pt")
    assert predictions(SequenceTagger.load(tmp_path / "tagger.pt")) == predictions(tagger)
    assert DocumentRNNEmbeddings([word_embeddings(corpus)], HIDDEN, rnn_type=GATED).rnn.genotype == GATED


@BUILDERS
@pytest.mark.parametrize(
    ("rnn_type", "best"),
    [("idarts-ptb", "i-darts-ptb"), ("lsmt", "LSTM"), ("gru", "GRU"), ("Enas_PTB,combine=sum", "enas-ptb")],
)
def test_unknown_type_lists_the_known_ones_and_the_closest_first(corpus, build, rnn_type, best):
    with pytest.raises(FlairNasError, match=rf"unknown rnn_type '{rnn_type.split(',')[0]}'.*mean {best}[ ?]") as caught:
        build(corpus, rnn_type=rnn_type)
    known = str(caught.value).split("Known: ")[1]
    assert all(name in known for name in (*FLAIR_LAYERS, *bundled_names()))


@BUILDERS
@pytest.mark.parametrize(
    ("rnn_type", "message"),
    [
        ("something else", "unknown rnn_type 'something else'. Known: LSTM"),  # nothing is close
        ("LSTM,recurrent_dropout=0.2", "options are for searched cells; LSTM takes none"),
        ("darts-v1,init_range=0.1,init_range=0.2", "comes twice"),
        ("i-darts-ptb,recurent_dropout=0.25", "unknown option 'recurent_dropout=0.25'; .*recurrent_dropout"),
        ("i-darts-ptb,init_range", "unknown option 'init_range'; .*name=value"),
        ("i-darts-ptb,recurrent_dropout=much", "recurrent_dropout must be a number, got 'much'"),
        ("i-darts-ptb,recurrent_dropout=1", "recurrent_dropout must be a probability"),
        ("i-darts-ptb,init_range=0", "init_range must be positive"),
        ("i-darts-ptb,init_range=inf", "init_range"),
        ("i-darts-ptb,combine=median", "combine: found 'median'; expected sum or mean"),
        ("i-darts-ptb,highway=perhaps", "highway: found 'perhaps'; expected true or false"),
        ("no/such/cell.json", "no/such/cell.json"),
        ("tanh0-relu5", r"found 5; expected an earlier node"),
    ],
)
def test_faulty_type_is_named(corpus, build, rnn_type, message):
    with pytest.raises(FlairNasError, match=message):
        build(corpus, rnn_type=rnn_type)


# --- heads, options and training of Flair -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "storage"),
    [
        ({"use_crf": True}, "none"),
        ({"use_crf": False, "dropout": 0.1}, "cpu"),
        ({"rnn_layers": 2}, "cpu"),
        ({"train_initial_hidden_state": True, "reproject_embeddings": False}, "none"),
        ({"use_rnn": False}, "none"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value,
)
def test_heads_and_options_of_flair_train_and_load(corpus, tmp_path, options, storage):
    torch.manual_seed(0)
    tagger = make_tagger(corpus, **options)
    start = copy.deepcopy(tagger.state_dict())
    file = train(tagger, corpus, tmp_path, embeddings_storage_mode=storage)
    layer = [name for name in start if name.startswith("rnn.")]
    assert bool(layer) == options.get("use_rnn", True)
    assert not any(torch.equal(start[name], tagger.state_dict()[name]) for name in layer)
    loaded = SequenceTagger.load(file)
    assert loaded.state_dict().keys() == start.keys()
    assert predictions(loaded) == predictions(tagger)


def test_one_direction_survives_saving(corpus, tmp_path):
    torch.manual_seed(0)
    layer = SearchedRNN(WIDTH, HIDDEN, GATED)  # one direction, as nn.LSTM by default
    for tagger in (make_tagger(corpus, rnn=layer), make_tagger(corpus, bidirectional=False)):
        tagger.save(tmp_path / "tagger.pt")
        loaded = SequenceTagger.load(tmp_path / "tagger.pt")
        assert loaded.rnn.bidirectional is loaded.bidirectional is False
        assert predictions(loaded) == predictions(tagger)


def test_training_continues_from_a_saved_epoch_as_if_never_stopped(corpus, tmp_path):
    torch.manual_seed(0)
    # without dropout, shuffling and momentum, an epoch depends on the weights alone
    tagger = make_tagger(corpus, rnn_type=f"{SMALL},init_range=0.3", word_dropout=0.0, locked_dropout=0.0)
    options = {"optimizer": torch.optim.SGD, "learning_rate": 0.1, "shuffle": False}
    whole = train(tagger, corpus, tmp_path / "whole", max_epochs=2, save_model_each_k_epochs=1, **options)
    half = SequenceTagger.load(tmp_path / "whole" / "model_epoch_1.pt")
    before = copy.deepcopy(half.state_dict())
    rest = train(half, corpus, tmp_path / "rest", epoch=1, max_epochs=2, **options)
    expected, found = (SequenceTagger.load(file).state_dict() for file in (whole, rest))
    assert found.keys() == expected.keys() == before.keys()
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name
    assert not torch.equal(before["rnn.cells.0.weight_nodes"], expected["rnn.cells.0.weight_nodes"])


def test_mixed_precision_trains_as_full_precision_does(corpus, tmp_path):
    losses: dict[bool, float] = {}
    for use_amp in (False, True):
        torch.manual_seed(0)
        tagger = make_tagger(corpus, rnn_type=SMALL, word_dropout=0.0, locked_dropout=0.0)
        start = copy.deepcopy(tagger.state_dict())
        options = {"max_epochs": 1, "shuffle": False, "plugins": [MetricHistoryPlugin()]}
        folder = tmp_path / str(use_amp)
        ModelTrainer(tagger, corpus).train(folder, use_amp=use_amp, learning_rate=0.1, mini_batch_size=10, **options)
        (losses[use_amp],) = options["plugins"][0].metric_history["train_loss_history"]
        for name, weight in tagger.rnn.named_parameters():
            assert weight.dtype == torch.float32 and weight.isfinite().all()
            assert not torch.equal(weight, start[f"rnn.{name}"]), name
    assert losses[True] == pytest.approx(losses[False], rel=0.05)
    assert losses[True] != losses[False]  # products were rounded, so autocast was at work


@pytest.mark.slow
def test_tasks_share_a_layer(corpus, tmp_path):
    torch.manual_seed(0)
    shared = SearchedRNN(WIDTH, HIDDEN, GATED, bidirectional=True)
    embeddings = word_embeddings(corpus)
    taggers = [make_tagger(corpus, kind, rnn=shared, embeddings=embeddings) for kind in ("ner", "case")]
    model, both = make_multitask_model_and_corpus([(tagger, tiny_corpus()) for tagger in taggers])
    file = train(model, both, tmp_path / "run")
    assert taggers[0].rnn is taggers[1].rnn is shared
    assert {label[0] for labels, _ in predictions(model) for label in labels} >= {"case"}
    assert_load_anywhere({str(file): predictions(model)}, ("MultitaskModel", "Classifier"), tmp_path)


# --- document embeddings ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_document_embeddings_train_in_a_classifier_and_load_in_a_new_process(corpus, tmp_path):
    files = {}
    for bidirectional in (False, True):
        for reproject in (False, True):
            torch.manual_seed(0)
            embeddings = DocumentRNNEmbeddings(
                [word_embeddings(corpus)],
                HIDDEN,
                reproject_words=reproject,
                reproject_words_dimension=5 if reproject else None,
                bidirectional=bidirectional,
                rnn_type="i-darts-ptb,recurrent_dropout=0.1",
            )
            topics = corpus.make_label_dictionary("topic")
            classifier = TextClassifier(embeddings, label_type="topic", label_dictionary=topics)
            start = copy.deepcopy(embeddings.rnn.state_dict())
            file = train(classifier, corpus, tmp_path / f"{bidirectional} {reproject}")
            assert isinstance(embeddings.rnn, SearchedRNN) and embeddings.rnn.bidirectional == bidirectional
            assert embeddings.rnn.recurrent_dropout == 0.1
            assert embeddings.embedding_length == (4 * HIDDEN if bidirectional else HIDDEN)
            assert not any(torch.equal(start[name], weight) for name, weight in embeddings.rnn.named_parameters())
            files[str(file)] = predictions(classifier)
    assert_load_anywhere(files, ("TextClassifier", "Classifier"), tmp_path)


def test_embeddings_of_documents_read_the_same_when_they_are_loaded(corpus):
    torch.manual_seed(0)
    members = [word_embeddings(corpus), HashEmbeddings(50, 4), *build_embeddings(["char"], corpus).embeddings]
    made = DocumentRNNEmbeddings(members, HIDDEN, 2, rnn_type="ess-ptb,init_range=0.5").eval()
    loaded = load_embeddings(pickle.loads(pickle.dumps(made.save_embeddings()))).eval()
    assert loaded.rnn.config() == made.rnn.config()
    vectors = []
    for embeddings in (made, loaded):
        sentence = Sentence(TEXTS[0])
        embeddings.embed(sentence)
        vectors.append(sentence.get_embedding())
    assert torch.equal(*vectors) and vectors[0].any()


# --- a tagger as a module ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda tagger: pickle.loads(pickle.dumps(tagger))])
def test_copies_of_a_tagger_are_equal_and_apart(corpus, tmp_path, duplicate):
    torch.manual_seed(0)
    tagger = make_tagger(corpus, rnn_type="ess-ptb,recurrent_dropout=0.1,init_range=0.5")
    expected = predictions(tagger)
    double = duplicate(tagger)
    assert double.rnn.config() == tagger.rnn.config()
    assert predictions(double) == expected
    double.save(tmp_path / "double.pt")
    assert predictions(SequenceTagger.load(tmp_path / "double.pt")) == expected
    with torch.no_grad():
        double.rnn.cells[0].weight_nodes.add_(1)
    assert predictions(double) != expected
    assert predictions(tagger) == expected


@pytest.mark.parametrize("use_crf", [True, False])
def test_float64_and_back(corpus, use_crf):
    torch.manual_seed(0)
    tagger = make_tagger(corpus, rnn_type="ess-ptb,init_range=0.5", use_crf=use_crf).eval()
    single = predictions(tagger)
    with torch.no_grad():
        data, lengths = tagger._prepare_tensors([Sentence(text, use_tokenizer=False) for text in TEXTS[:2]])
        features = tagger.rnn(data)[0]
        tagger.double()
        torch.testing.assert_close(tagger.rnn(data.double())[0], features.double(), rtol=0, atol=1e-6)
    loss, _ = tagger.forward_loss([corpus.train[0]])
    loss.backward()
    assert loss.dtype == tagger.rnn.cells[0].weight_nodes.grad.dtype == torch.float64
    assert predictions(tagger.float()) == single
