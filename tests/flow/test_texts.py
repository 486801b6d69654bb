"""Texts from a table to suspects and predictions."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rofl
from rofl.data.user.encoders import encoder_from_json
from rofl.data.user.text_encoder import TextEncoder
from rofl.errors import UserError
from rofl.models import build
from rofl.training.run_dir import RunDir
from tests.flow.called import rofl as command

GOOD, BAD = ("lovely", "fine", "great", "warm"), ("dull", "awful", "poor", "cold")
TINY: dict[str, Any] = {"rounds": 4, "method__epochs": 3, "patience": 0, "guard": "off", "model__width": 0.5}


def write_texts(path: Path, count: int = 160) -> Path:
    """Short reviews of two clients; every tenth label is wrong."""
    rng = np.random.default_rng(0)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "client", "text", "label"])
        for row in range(count):
            words = rng.choice(GOOD if row % 2 else BAD, 3)
            label = ("bad", "good")[(row % 2) ^ (row % 10 == 7)]
            writer.writerow(
                [f"r{row}", f"shop {row % 3}", f"The film was {words[0]}, {words[1]} and {words[2]}!", label]
            )
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("texts")
    write_texts(root / "reviews.csv")
    rofl.run(rofl.from_data(root / "reviews.csv", **TINY), root / "run", workers=0)
    return root


def test_texts_are_learnt_and_wrong_labels_found(made: Path) -> None:
    folder = RunDir(made / "run")
    assert folder.read_experiment().model.name == "text"
    assert isinstance(folder.model.read_encoder(), TextEncoder)
    suspects = folder.audit.read_suspects()
    flagged = {row.sample for row in suspects if row.flagged}
    wrong = {row.sample for row in suspects if int(row.sample[1:]) % 10 == 7}
    assert len(flagged & wrong) >= 0.7 * len(wrong)
    assert len(flagged & wrong) >= 0.7 * len(flagged)


def test_the_model_takes_texts_in_every_form(made: Path) -> None:
    model = rofl.load(made / "run")
    texts = ["What a lovely, warm film.", "Dull and awful, cold."]
    assert model.predict(texts).tolist() == ["good", "bad"]
    wanted = model.predict_proba(texts)
    frame = pd.DataFrame({"text": texts, "label": ["good", "bad"]})
    hub = pytest.importorskip("datasets").Dataset.from_pandas(frame)
    for form in (frame, {"text": texts}, np.array(texts), frame["text"], frame.set_index("label")["text"], hub):
        assert np.array_equal(model.predict_proba(form), wanted)
    for record in (frame.iloc[0], {"text": texts[0]}):  # not a text for each letter
        assert np.array_equal(model.predict_proba(record), model.predict_proba(texts[0]))
    assert model.predict("Great!").tolist() == ["good"]
    assert torch.allclose(model.module(model.codes(texts)), model.logits(texts)[0], atol=1e-6)
    assert len(model.predict(made / "reviews.csv")) == 160
    for wrong in (3, [3], {"words": texts}):
        with pytest.raises(UserError):
            model.predict(wrong)


def test_commands_take_texts(made: Path, tmp_path: Path) -> None:
    predicted = command("predict", str(made / "run"), str(made / "reviews.csv"), cwd=tmp_path)
    assert predicted.stdout.splitlines()[0] == "sample,predicted,probability,p(bad),p(good)"
    assert predicted.stdout.splitlines()[1].startswith("r0,bad,")
    evaluated = command("evaluate", str(made / "run"), str(made / "reviews.csv"), cwd=tmp_path)
    assert "accuracy: " in evaluated.stdout
    audited = command(
        "audit", "--model", str(made / "run"), "--data", str(made / "reviews.csv"), "--workers", "0", cwd=tmp_path
    )
    assert audited.returncode == 0, audited.stderr
    refused = command(
        "run", "--data", str(made / "reviews.csv"), "--set", "model.name=cnn9", "--workers", "0", cwd=tmp_path
    )
    assert "A data set of texts does not fit the model cnn9." in refused.stderr
    assert "model.name=text" in refused.stderr


def test_a_text_is_the_numbers_of_its_first_words() -> None:
    encoder = TextEncoder(length=4)
    numbers = encoder.transform([("Good, good film!",), ("",)])[:, :, 0, 0]
    assert numbers[0, 0] == numbers[0, 2] > 0
    assert numbers[1].tolist() == [0, 0, 0, 0]
    assert encoder.notes([("a b c d e",), ("a",)]) == ["Only the first 4 words were used of 1 longer text."]
    assert encoder_from_json(encoder.to_json()) == encoder
    with pytest.raises(UserError, match="text encoder is damaged"):
        encoder_from_json('{"kind": "text", "length": 0}')


def test_words_after_the_last_one_do_not_count() -> None:
    net = build("text", (6, 1, 1), 3, 1.0, 0).eval()
    short = torch.tensor([5.0, 6.0, 0.0, 0.0, 0.0, 0.0]).view(1, 6, 1, 1)
    longer = build("text", (9, 1, 1), 3, 1.0, 0).eval()
    padded = torch.cat([short, torch.zeros(1, 3, 1, 1)], dim=1)
    assert torch.allclose(net(short)[0], longer(padded)[0], atol=1e-6)
    assert torch.isfinite(net(torch.zeros(2, 6, 1, 1))[0]).all()


def test_data_check_counts_words_and_lists_a_few_of_many_equal_texts(tmp_path: Path) -> None:
    with open(tmp_path / "same.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *[("a film", "good"), ("a play", "bad")] * 20])
    done = command("data", "check", "same.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = {line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")}
    assert "words" in cells
    assert "features" not in cells
    assert "= 16 more" in done.stdout
    assert len(done.stdout.splitlines()) < 40
