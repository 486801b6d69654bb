"""Networks of timm and Hugging Face: small ones with random weights, from local files."""

import json
import sys
from pathlib import Path

import pytest
import torch

from rofl.data.pretrained_weights import network_folder
from rofl.errors import UserError
from rofl.models import build
from rofl.models.fit_inputs import NO_SCALING, FitInputs, PixelScaling
from rofl.models.hf_network import HubConfig
from rofl.models.model_registry import ForeignInputs
from rofl.models.pretrained import backbone_digest, load_pretrained
from rofl.models.timm_network import FrozenBatchNorm2d
from tests.models.networks import bert_folder, needs_timm, needs_transformers, save_backbone, vit_folder


def test_inputs_are_scaled_anew_and_grey_ones_become_three_planes() -> None:
    given, wanted = PixelScaling((0.5,), (0.25,)), PixelScaling((0.4, 0.5, 0.6), (0.2, 0.25, 0.5))
    pixels = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    fitted = FitInputs(given, wanted, 3, (4, 4))((pixels - 0.5) / 0.25)
    means, stds = (torch.tensor(values).view(1, 3, 1, 1) for values in (wanted.mean, wanted.std))
    expected = torch.nn.functional.interpolate((pixels - means) / stds, (4, 4), mode="bilinear", align_corners=False)
    torch.testing.assert_close(fitted, expected)
    same = FitInputs(NO_SCALING, wanted, 3)(pixels)
    torch.testing.assert_close(same, pixels.expand(-1, 3, -1, -1))
    assert list(FitInputs(given, wanted, 3).state_dict()) == []


def test_frozen_batch_norm_is_that_of_batch_norm_in_evaluation() -> None:
    ours, usual = FrozenBatchNorm2d(3), torch.nn.BatchNorm2d(3).eval()
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = torch.rand(3, generator=torch.Generator().manual_seed(len(name))) + 0.5
        getattr(ours, name).copy_(value)
        getattr(usual, name).data.copy_(value)
    x = torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(ours(x), usual(x))


@pytest.mark.slow
@needs_timm
def test_a_network_of_timm_gives_logits_and_features_and_loads_weights(tmp_path: Path) -> None:
    scaling = ForeignInputs(PixelScaling((0.5,), (0.25,)))
    net = build("timm:test_resnet", (1, 32, 32), 5, 1.0, 0, scaling)
    logits, features = net(torch.rand(2, 1, 32, 32))
    assert logits.shape == (2, 5)
    assert features.shape == (2, net.feature_size)
    assert "torchvision" not in sys.modules
    other = build("timm:test_resnet", (1, 32, 32), 5, 1.0, 1, scaling)
    assert backbone_digest(other) != backbone_digest(net)
    load_pretrained(other, save_backbone(tmp_path / "w.safetensors", net))
    assert backbone_digest(other) == backbone_digest(net)
    fixed = build("timm:test_vit", (3, 20, 20), 4, 1.0, 0, scaling)  # which takes one size only
    assert fixed(torch.rand(2, 3, 20, 20))[0].shape == (2, 4)
    with pytest.raises(UserError, match="timm has no network 'resnet81'") as caught:
        build("timm:resnet81", (3, 32, 32), 5, 1.0, 0)
    assert "timm:resnet" in caught.value.hint
    with pytest.raises(UserError, match="takes no width"):
        build("timm:test_resnet", (3, 32, 32), 5, 0.5, 0)


@pytest.mark.slow
@needs_transformers
def test_a_folder_of_hugging_face_gives_the_same_network_everywhere(tmp_path: Path) -> None:
    folder = vit_folder(tmp_path / "vit")
    config = HubConfig.read(folder).to_json()
    one, two = (
        build("hf:x", (1, 8, 8), 4, 1.0, seed, ForeignInputs(config=config, folder=str(folder))) for seed in (0, 1)
    )
    assert backbone_digest(one) == backbone_digest(two)
    assert one.eval()(torch.rand(2, 1, 8, 8))[1].shape == (2, 16)
    random = build("hf:x", (1, 8, 8), 4, 1.0, 0, ForeignInputs(config=config))
    assert backbone_digest(random) != backbone_digest(one)
    text = bert_folder(tmp_path / "bert", ["good", "bad"])
    words = HubConfig.read(text).to_json()
    net = build("hf:x", (6, 1, 1), 2, 1.0, 0, ForeignInputs(config=words, folder=str(text))).eval()
    padded, short = torch.tensor([[3.0, 4, 0, 0, 0, 0]]), torch.tensor([[3.0, 4]])
    torch.testing.assert_close(net(padded.view(1, 6, 1, 1))[1], net(short.view(1, 2, 1, 1))[1])  # padding is no token
    for shape, content, about in (((6, 1, 1), config, "images"), ((1, 8, 8), words, "texts")):
        with pytest.raises(UserError, match=f"is for {about}"):
            build("hf:x", shape, 2, 1.0, 0, ForeignInputs(config=content))
    weights = folder / "model.safetensors"
    weights.write_bytes((text / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"are not complete: .* is missing"):
        build("hf:x", (1, 8, 8), 4, 1.0, 0, ForeignInputs(config=config, folder=str(folder)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "nothing is downloaded"),
        ("[]", "is not a configuration"),
        ("{", "cannot be read"),
        ("{}", "names no model_type"),
    ],
)
def test_a_folder_that_is_none_is_told_in_a_sentence(content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=words):
        HubConfig.read(network_folder(str(tmp_path)))


@pytest.mark.slow
@needs_transformers
def test_code_that_a_folder_names_is_not_run(tmp_path: Path) -> None:
    about = {"model_type": "mine", "auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = HubConfig.read(tmp_path).to_json()
    with pytest.raises(UserError, match="transformers cannot make the network mine"):
        build("hf:x", (3, 8, 8), 2, 1.0, 0, ForeignInputs(config=config, folder=str(tmp_path)))
    assert not (tmp_path / "ran").exists()


def test_plain_names_lie_in_the_folder_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "networks" / "vit").mkdir(parents=True)
    (tmp_path / "networks" / "vit" / "config.json").write_text("{}")
    assert network_folder("vit", tmp_path) == tmp_path / "networks" / "vit"
    monkeypatch.setenv("ROFL_DATA", str(tmp_path))
    assert network_folder("vit") == tmp_path / "networks" / "vit"
    assert network_folder(str(tmp_path / "networks" / "vit" / "config.json")) == tmp_path / "networks" / "vit"
    with pytest.raises(UserError, match="nothing is downloaded"):
        network_folder("absent", tmp_path)
