"""Classify texts with a searched cell: Flair's TextClassifier with DocumentRNNEmbeddings, trained, saved, loaded.

    python examples/classify_texts.py
    python examples/classify_texts.py --corpus my_texts/ --rnn ess-ptb --hidden-size 128 --epochs 20

Without arguments it runs offline on the sentences below, in seconds on a CPU. They show how it is done; they are too
few to compare layers. For your own texts: a folder with train.txt, dev.txt and test.txt, a text a line after its class,
such as `__label__sport The match was drawn`.
"""

import argparse

import flair
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.models import TextClassifier
from flair.trainers import ModelTrainer

from flair_nas import (  # Flair's own documents build a GRU for every rnn_type but "LSTM"
    DocumentRNNEmbeddings,
    EnglishEmbeddings,
)
from flair_nas.tagging.data.classification import load_classes

TEXTS = {
    "weather": [
        "Rain will reach the coast before noon",
        "The wind turns to the north tonight",
        "Clouds and rain cover the hills",
        "A warm wind brings clear skies",
        "Snow falls on the hills tonight",
        "The storm moves north before noon",
        "Clear skies and frost tonight",
        "Heavy rain and wind on the coast",
        "The frost ends and clouds return",
        "Snow and wind reach the coast tonight",
    ],
    "cooking": [
        "Fry the onions in butter until soft",
        "Stir the flour into warm milk",
        "Bake the bread for half an hour",
        "Add salt and pepper to the soup",
        "Peel the onions and slice them",
        "Boil the milk with a little salt",
        "Stir butter and flour into the soup",
        "Slice the bread and fry it",
        "Bake the onions with salt and butter",
        "Add warm milk and stir the soup",
    ],
    "sport": [
        "The home team won the match",
        "She scored twice before half time",
        "The coach praised the young team",
        "A late goal decided the match",
        "The runner won in record time",
        "The team lost its coach",
        "He missed the goal twice",
        "The match ended without a goal",
        "The young runner scored for the home team",
        "The coach won the match with a late goal",
    ],
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--corpus", help="folder of train.txt, dev.txt and test.txt, in place of the sentences above")
parser.add_argument("--rnn", default="small-relu-tanh", help="LSTM, GRU, a genotype's name, its file or its one line")
parser.add_argument("--hidden-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", default="runs/classify-texts")
arguments = parser.parse_args()

flair.set_seed(arguments.seed)
if arguments.corpus:
    corpus = load_classes(arguments.corpus).corpus
else:
    labelled = {name: [Sentence(text).add_label("class", name) for text in texts] for name, texts in TEXTS.items()}
    parts = ([s for made in labelled.values() for s in made[which]] for which in (slice(6), slice(6, 8), slice(8, 10)))
    corpus = Corpus(*(FlairDatapointDataset(part) for part in parts))

documents = DocumentRNNEmbeddings(
    [EnglishEmbeddings()],  # of another language: any of Flair's own
    rnn_type=arguments.rnn,  # where Flair would have "GRU" or "LSTM"
    hidden_size=arguments.hidden_size,
    bidirectional=True,
)
labels = corpus.make_label_dictionary("class", add_unk=False)
classifier = TextClassifier(documents, label_type="class", label_dictionary=labels)
scores = ModelTrainer(classifier, corpus).train(
    arguments.out,
    learning_rate=0.005,
    optimizer=torch.optim.Adam,
    mini_batch_size=4,
    max_epochs=arguments.epochs,
)

# in another program, this needs flair-nas installed; the file imports it
classifier = TextClassifier.load(f"{arguments.out}/best-model.pt")
sentence = Sentence("Wind and rain on the hills before noon")
classifier.predict(sentence)
print(f"layer: {type(classifier.embeddings.rnn).__name__}; test accuracy {scores['test_score']:.2f}")
print(sentence)
