"""Descriptions of layers, by which a run that resumes knows its own."""

from __future__ import annotations

import dataclasses

from torch import nn

from flair_nas import ParallelRNN, SearchedRNN, load_genotype
from flair_nas.nn.recurrent_layer import identify_layer


def test_a_description_has_what_a_run_must_not_change() -> None:
    genotype = load_genotype("small-tanh")
    other = dataclasses.replace(genotype, origin={"note": "moved"})
    description = identify_layer(SearchedRNN(3, 4, genotype))
    assert description == identify_layer(SearchedRNN(3, 4, other, init_range=0.05))
    layers = [
        SearchedRNN(3, 4, load_genotype("small-relu")),
        SearchedRNN(3, 4, genotype, recurrent_dropout=0.1),
        ParallelRNN(3, 4, "sru"),
        ParallelRNN(3, 4, "mingru"),
        nn.LSTM(3, 4),
    ]
    assert len({description, *map(identify_layer, layers)}) == 6
