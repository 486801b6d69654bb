"""Small networks of others with random weights, and files of them, as a user would have them on disk."""

import importlib.util
from pathlib import Path

import pytest
import safetensors.torch
import torch

from rofl.models import Network, build

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs timm: pip install '.[timm]'")
needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers: pip install '.[networks]'"
)
needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="needs peft: pip install '.[networks]'"
)


def save_backbone(path: Path, net: Network) -> Path:
    """Write all weights of a network but its classifier's."""
    tensors = {
        name.removeprefix("extractor."): value.contiguous()
        for name, value in net.state_dict().items()
        if name.startswith("extractor.")
    }
    safetensors.torch.save_file(tensors, path)
    return path


def trained_small(path: Path, shape: tuple[int, int, int] = (1, 8, 8), seed: int = 3) -> Path:
    """Write a small network whose features differ from image to image, as a trained one's do."""
    net = build("small", shape, 10, 0.25, seed)
    x = torch.rand(64, *shape, generator=torch.Generator().manual_seed(0)) * 4 - 2
    for _ in range(30):
        net.train()(x)  # batch norm learns its statistics
    return save_backbone(path, net)


def vit_folder(path: Path, side: int = 16) -> Path:
    """Write a tiny ViT as `save_pretrained` does."""
    from transformers import ViTConfig, ViTModel

    from rofl.models.hf_network import import_transformers

    import_transformers()
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=side,
        patch_size=8,
        num_channels=3,
    )
    with torch.random.fork_rng():
        ViTModel(config).save_pretrained(path)
    return path


def bert_folder(path: Path, words: list[str]) -> Path:
    """Write a tiny BERT with a tokenizer of these words."""
    import tokenizers
    from transformers import BertConfig, BertModel

    from rofl.models.hf_network import import_transformers

    import_transformers()
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *words])}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng():
        BertModel(config).save_pretrained(path)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    return path
