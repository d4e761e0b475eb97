"""Models and a tokenizer made on the spot: nothing is downloaded."""

from __future__ import annotations

TEXT = "the cat sat on the mat"
SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def tiny_config(kind, **other):
    """Return the config of a model with one layer, or with `other` sizes."""
    import transformers

    sizes = {
        "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3,
    }  # fmt: skip
    return getattr(transformers, f"{kind}Config")(**sizes | other)


def write_tokenizer(folder):
    """Write a word-level tokenizer: a token a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*SPECIAL.values(), *sorted(set(TEXT.split()))]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL).save_pretrained(folder)


def tiny_model_folder(folder):
    """Write a tokenizer and a config.json: enough for an engine's loader."""
    write_tokenizer(folder)
    tiny_config("Llama").save_pretrained(folder)
    return folder


def small_model_folder(folder):
    """Write a tokenizer, a config.json and random weights, and return the model in float32.

    It is large enough for attention kernels (64 dimensions a head) and for two-way tensor parallelism. The weights are
    large for a model of its size, so that a wrong kernel changes its answers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    write_tokenizer(folder)
    config = tiny_config(
        "Qwen2", vocab_size=128, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.1, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    return model.to(torch.float32).eval()
