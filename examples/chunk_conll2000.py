"""Chunking on CoNLL-2000 with an ESS-connected recurrent layer.

    python examples/chunk_conll2000.py
    python examples/chunk_conll2000.py --rnn LSTM --words vectors.gensim --characters forward.pt backward.pt --epochs 10

The setting is that of Li et al. (ACL 2020), ESS:
GloVe and pooled Flair embeddings, one layer of 512, SGD 0.1, gradients clipped at 5.0, learning rate x 0.25 after two
epochs without improvement on dev. Flair downloads the corpus; it has no dev part, so a tenth
of train becomes dev, the same for every seed.
"""

import argparse

import flair
from flair.datasets import CONLL_2000
from flair.embeddings import FlairEmbeddings, PooledFlairEmbeddings, StackedEmbeddings, WordEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

import flair_nas  # noqa: F401 - teaches SequenceTagger the names of searched cells

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rnn", default="ess-ptb", help="LSTM, GRU, a genotype's name, its file or its one line")
parser.add_argument("--words", default="glove", help="Flair's name of word vectors, or a gensim file")
parser.add_argument("--characters", nargs="*", default=["news-forward", "news-backward"], help="names or files")
parser.add_argument("--pooled", action=argparse.BooleanOptionalAction, default=True, help="pool character embeddings")
parser.add_argument("--hidden-size", type=int, default=512)
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--epochs", type=int, default=150)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="runs/chunk-conll2000")
arguments = parser.parse_args()

flair.set_seed(arguments.seed)
corpus = CONLL_2000(random_seed=0)
label_type = "np"
labels = corpus.make_label_dictionary(label_type, add_unk=False)

characters = PooledFlairEmbeddings if arguments.pooled else FlairEmbeddings
stack = [WordEmbeddings(arguments.words), *(characters(name) for name in arguments.characters)]
# Flair joins vectors in the order of their names, and does not save those that a stack gives to pooled embeddings
embeddings = StackedEmbeddings(stack, overwrite_names=False)

tagger = SequenceTagger(
    embeddings=embeddings,
    tag_dictionary=labels,
    tag_type=label_type,
    rnn_type=arguments.rnn,
    hidden_size=arguments.hidden_size,
    locked_dropout=0.5,  # variational dropout of the layer's input and output
)
ModelTrainer(tagger, corpus).train(
    arguments.out,
    learning_rate=0.1,
    mini_batch_size=arguments.batch_size,
    max_epochs=arguments.epochs,
    anneal_factor=0.25,
    patience=2,
    # a stored pooled embedding would not follow the growing memory of its word
    embeddings_storage_mode="none" if arguments.pooled else "cpu",
)
