"""Small transformers with random weights, and their tokenizers, as folders of Hugging Face's."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast, RobertaConfig, RobertaModel, RobertaTokenizerFast

TEXTS = ["the cat and the other cat saw London in 1842", "Dr Helen Marsh opened the Harvest Festival in Leeds"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}


def write_transformer(folder: Path, kind: str = "bert", seed: int = 0, max_length: int | None = 24) -> None:
    """Write a transformer of two layers: a BERT whose words are letters, or a RoBERTa with pieces of bytes.

    It reads `max_length` pieces at a time; None leaves its tokenizer without a limit.
    """
    folder.mkdir()
    torch.manual_seed(seed)
    limit = {} if max_length is None else {"model_max_length": max_length}
    if kind == "bert":
        letters = "abcdefghijklmnopqrstuvwxyz"
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", *letters, *(f"##{letter}" for letter in letters)]
        (folder / "vocab.txt").write_text("\n".join(pieces))
        BertTokenizerFast(str(folder / "vocab.txt"), **limit).save_pretrained(folder)
        model = BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=64, **SIZES))
    else:
        bpe = ByteLevelBPETokenizer()
        bpe.train_from_iterator(TEXTS, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        bpe.save_model(str(folder))
        files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
        RobertaTokenizerFast(*files, **limit).save_pretrained(folder)
        model = RobertaModel(RobertaConfig(vocab_size=300, max_position_embeddings=66, pad_token_id=1, **SIZES))
    model.save_pretrained(folder)
