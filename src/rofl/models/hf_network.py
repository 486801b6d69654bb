"""Hugging Face transformers networks as feature extractors, from local folders; nothing is downloaded."""

import importlib
import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rofl.core.serialization import parse_json
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.models.fit_inputs import NO_SCALING, FitInputs, PixelScaling
from rofl.models.network import FeatureClassifier

PREFIX = "hf:"
_HALF = (0.5, 0.5, 0.5)  # default mean and deviation of a folder without preprocessor_config.json
_HINT = "a folder with config.json and model.safetensors, as save_pretrained writes it"


@dataclass(frozen=True)
class HubConfig:
    """The configuration of a folder's network, without weights; saved with a model as JSON.

    Attributes:
        config: the content of config.json.
        scaling: the scaling of its images, from preprocessor_config.json.
    """

    config: dict[str, Any]
    scaling: PixelScaling

    @classmethod
    def read(cls, folder: Path) -> "HubConfig":
        """Read a folder.

        Raises:
            UserError: there is no config.json, or it cannot be read.
        """
        config = _read_json(folder / "config.json")
        if not isinstance(config.get("model_type"), str):
            raise UserError(f"{folder / 'config.json'} names no model_type.", _HINT)
        images = folder / "preprocessor_config.json"
        about = _read_json(images) if images.is_file() else {}
        mean, std = (_numbers(about.get(key), _HALF) for key in ("image_mean", "image_std"))
        return cls(config, PixelScaling(mean, std))

    def to_json(self) -> str:
        """Return the configuration as JSON."""
        about = {"config": self.config, "image_mean": self.scaling.mean, "image_std": self.scaling.std}
        return json.dumps(about, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "HubConfig":
        """Return the configuration from the JSON of `to_json`.

        Raises:
            UserError: the text is not such a configuration.
        """
        try:
            about: Any = parse_json(text)
            scaling = PixelScaling(_numbers(about["image_mean"], _HALF), _numbers(about["image_std"], _HALF))
            return cls(dict(about["config"]), scaling)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"The configuration of the network is damaged ({error}).", "run it again") from error


def hf_network(
    text: str,
    shape: tuple[int, int, int],
    classes: int,
    scaling: PixelScaling = NO_SCALING,
    folder: Path | None = None,
) -> FeatureClassifier:
    """Return an image or text network with a linear classifier on its mean token.

    Args:
        text: `HubConfig.to_json` of the folder.
        shape: channels, height and width of an image; (length, 1, 1) for the token indices of a text.
        classes: the number of classes.
        scaling: of the images.
        folder: the folder with the weights; None to start at random.

    Raises:
        UserError: transformers is not installed or does not know the network, or weights are missing.
    """
    about = HubConfig.from_json(text)
    model = _build(about, folder)
    if isinstance(getattr(model, "pooler", None), nn.Module) and any(True for _ in model.pooler.parameters()):
        model.pooler = None  # trained for other tasks, if at all; unused, since the mean token is used
    extractor = _TextExtractor(model) if _is_text(about) else _ImageExtractor(model, about, scaling)
    if _is_text(about) != (shape[1:] == (1, 1)):
        kind, other = ("texts", "images or a table") if _is_text(about) else ("images", "texts or a table")
        raise UserError(f"The network {about.config['model_type']} is for {kind}, and the samples are {other}.")
    with torch.no_grad():
        size = int(extractor.eval()(torch.ones(1, *shape)).shape[1])
    extractor.train()
    return FeatureClassifier(extractor, size, classes)


def _build(about: HubConfig, folder: Path | None) -> Any:
    """Return transformers' model, with a folder's weights or random ones."""
    transformers = import_transformers()
    try:
        settings = {key: value for key, value in about.config.items() if key not in ("model_type", "auto_map")}
        config = transformers.AutoConfig.for_model(about.config["model_type"], **settings)
        if folder is None:
            return transformers.AutoModel.from_config(config, attn_implementation="eager", dtype=torch.float32)
        model, report = transformers.AutoModel.from_pretrained(
            folder,
            config=config,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,  # nothing is unpickled
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (ValueError, KeyError, OSError, TypeError, RuntimeError, AttributeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"transformers cannot make the network {about.config['model_type']} ({reason}).", _HINT) from (
            error
        )
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise UserError(f"The weights in {folder} are not complete: {missing[0]!r} is missing.", _HINT)
    return model.train()


class _ImageExtractor(nn.Module):
    """(B, C, H, W) -> (B, d): the mean over the tokens or positions of the last layer."""

    def __init__(self, model: Any, about: HubConfig, scaling: PixelScaling) -> None:
        super().__init__()
        size = about.config.get("image_size", ())
        sides = (size, size) if isinstance(size, int) else tuple(size or ())
        self.fit = FitInputs(scaling, about.scaling, int(about.config.get("num_channels", 3)), sides)
        self.network = model

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.network(pixel_values=self.fit(x)).last_hidden_state  # (B, T, d) or (B, d, h, w)
        return output.mean(dim=1) if output.dim() == 3 else output.mean(dim=(2, 3))


class _TextExtractor(nn.Module):
    """(B, length, 1, 1) token indices plus 1, 0 as padding -> (B, d): the mean token of the last layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.network = model

    def forward(self, x: Tensor) -> Tensor:
        numbers = x.flatten(1).long()  # (B, L)
        present = numbers > 0
        present[:, 0] = True  # an empty text gets one arbitrary token
        tokens: Tensor = self.network(
            input_ids=(numbers - 1).clamp(min=0), attention_mask=present.long()
        ).last_hidden_state  # (B, L, d)
        weights = present.unsqueeze(2).to(tokens.dtype)  # (B, L, 1)
        return (tokens * weights).sum(dim=1) / weights.sum(dim=1)


def import_transformers() -> Any:
    """Return the package transformers, in offline mode and without messages.

    Raises:
        UserError: it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError("The package transformers is not installed.", "pip install 'fed-noisy-labels[networks]'")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _is_text(about: HubConfig) -> bool:
    return "vocab_size" in about.config and "image_size" not in about.config and "num_channels" not in about.config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: Any = parse_json(read_regular(path).decode())
    except FileNotFoundError:
        raise UserError(f"There is no {path}; nothing is downloaded.", _HINT) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}).", _HINT) from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration.", _HINT)
    return content


def _numbers(values: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(float(value) for value in values) if isinstance(values, list | tuple) and values else default
