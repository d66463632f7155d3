"""From plain text to a tagger: search a cell, build Flair's SequenceTagger with it, train, tag a sentence.

    python examples/search_then_tag.py
    python examples/search_then_tag.py --text my_text/ --corpus my_corpus/ --preset local-search-small

Without arguments it runs on the bundled text and corpus, offline, in a few minutes on a CPU; these are so small that
perplexity and F1 mean nothing. For your own data: a folder with train and valid text (one sentence a line, words parted
by blanks), and a folder of column files (train, dev, test). A search that was stopped goes on where it was when the
script runs again.
"""

import argparse

import flair
from flair.data import Sentence
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

from flair_nas import SearchConfig, build_embeddings, load_corpus, search_genotype
from flair_nas.settings.resolve import resolve

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--text", default="demo", help="text to search on: a folder with train and valid files")
parser.add_argument("--corpus", default="demo", help="corpus to tag: a folder of column files, conll_03, wnut_17, ...")
parser.add_argument("--preset", default="local-search-small", help="settings of the search by name")
parser.add_argument("--search-epochs", type=int, default=24)
parser.add_argument("--epochs", type=int, default=12, help="of the tagger")
parser.add_argument(
    "--embeddings",
    nargs="+",
    default=["english", "char"],  # without a download
    help="as of flair-nas tag train, such as glove flair:news-forward flair:news-backward",
)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="runs/search-then-tag")
arguments = parser.parse_args()

settings = {"text": arguments.text, "seed": arguments.seed, "epochs": arguments.search_epochs}
if arguments.text == "demo":
    settings["hidden_size"] = 32
config = resolve(SearchConfig, kind="search", preset=arguments.preset, flags=settings)
corpus, label_type, *_ = load_corpus(arguments.corpus)  # a mistake in its name should not cost a search
found = search_genotype(config, f"{arguments.out}/search")
print(f"found after {len(found.history)} epochs: {found.genotype.one_line()}")

flair.set_seed(arguments.seed)
tagger = SequenceTagger(
    embeddings=build_embeddings(arguments.embeddings, corpus),  # or any of Flair's own
    tag_dictionary=corpus.make_label_dictionary(label_type, add_unk=False),
    tag_type=label_type,
    rnn_type=found.genotype,  # where Flair would have "LSTM"; a bundled name or a file goes here, too
    hidden_size=64,
    locked_dropout=0.2,  # variational dropout of the layer's input and output
)
ModelTrainer(tagger, corpus).train(
    f"{arguments.out}/tagger",
    learning_rate=0.2,
    mini_batch_size=8,
    max_epochs=arguments.epochs,
    patience=1,
)

# in another program, this needs flair-nas installed; the file imports it
tagger = SequenceTagger.load(f"{arguments.out}/tagger/final-model.pt")
sentence = Sentence("Dr Helen Marsh of Northgate Rail opened the Harvest Festival in Leeds on Sunday .")
tagger.predict(sentence)
print(sentence.to_tagged_string())
