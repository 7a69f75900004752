"""A pretrained model of a few numbers, in a folder as `transformers` saves it."""

from __future__ import annotations

from pathlib import Path

from mtlscale.torchvision_ops import declare

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "no", "one", "a", "##s", ".", "!", ":", "##0", "##1"]


def write_checkpoint(folder: Path, *, padding: int = 0, seed: int = 0) -> Path:
    """A BERT with two layers of eight numbers that takes 32 tokens; its padding has that id."""
    import torch

    declare()  # transformers imports torchvision
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = [*WORDS[1 : padding + 1], WORDS[0], *WORDS[padding + 1 :]]
    tokenizer = Tokenizer(WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(*((word, words.index(word)) for word in ("[SEP]", "[CLS]")))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")},
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=32, pad_token_id=padding,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder
