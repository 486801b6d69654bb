"""Load the model of a finished run."""

from pathlib import Path

from rofl.config.schema import Experiment
from rofl.core.rng import derive
from rofl.data import load_dataset
from rofl.data.preprocessing import (
    AnyPreprocessing,
    TablePreprocessing,
    preprocessing_of,
    user_preprocessing,
)
from rofl.data.specs import IN_MEMORY
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError
from rofl.simulation.device import devices
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run
from rofl.training.saved_model.model_files import ModelRecord
from rofl.training.saved_model.trained_model import TrainedModel
from rofl.training.saved_model.weights_file import read_weights_file

_GRAPHS = {".onnx": "onnxruntime.InferenceSession", ".pt2": "torch.export.load"}  # exports for programs without rofl


def load_model(run: Run | Path | str, *, data_dir: Path | None = None) -> TrainedModel:
    """Return the model that a finished run saved, ready to predict raw images or rows.

    It is the model of the selected round (`summary.selected`), with the preprocessing that it was trained with.

    Args:
        run: a finished run, or its folder (of `rofl run`, a coordinator or a site); or an export in the format
            "safetensors" or "hf".
        data_dir: the folder of published data sets; only runs of old versions on such sets need it.

    Raises:
        UserError: the folder holds no finished run, or its model cannot be read.
    """
    path = run.folder if isinstance(run, Run) else Path(run)
    exported = path if path.suffix == ".safetensors" else path / "model.safetensors"
    if exported.is_file():
        record, weights = read_weights_file(exported)
        return TrainedModel(record, record.build(weights, str(exported)).to(devices()[0]))
    _refuse_graph(path)
    folder = RunDir(path)
    experiment, summary = folder.read_experiment(), folder.read_summary()
    weights = folder.checkpoints.read_saved_model(summary).model
    record = folder.model.read_record() or _old_record(folder, experiment, summary, data_dir)
    network = record.build(weights, str(folder.path), folder.model.base_path)
    return TrainedModel(record.for_whole(network), network.to(devices()[0]))


def _refuse_graph(path: Path) -> None:
    """Raise a UserError if the path is an exported graph, which rofl cannot load."""
    for graph in (path, *(path / f"model{suffix}" for suffix in _GRAPHS)):
        if graph.suffix in _GRAPHS and graph.is_file():
            hint = f"{_GRAPHS[graph.suffix]}, or load the run folder"
            raise UserError(f"{graph} is a model for programs without rofl.", hint)


def _old_record(folder: RunDir, experiment: Experiment, summary: RunSummary, data_dir: Path | None) -> ModelRecord:
    """Return the record of a run of an old version, which has no model.json."""
    if not summary.classes:
        raise UserError(f"{folder.path} was audited by an older version.", f"rofl audit {folder.path}, then this again")
    channels, height, width = summary.shape
    shape, spec = (channels, height, width), experiment.model
    network = NetworkSpec(spec.name, shape, len(summary.classes), spec.width, derive(experiment.seed, "network"))
    encoder, data = folder.model.read_encoder(), experiment.data
    form: AnyPreprocessing
    if isinstance(encoder, TableEncoder):
        form = TablePreprocessing(features=channels, encoder=encoder)
    elif data.is_user_data and height == 1:
        raise UserError(f"{folder.path} was trained on a table and has no encoder.json.", f"rofl audit {folder.path}")
    elif data.is_user_data or data.name == IN_MEMORY:
        form = user_preprocessing(shape)
    else:
        form = preprocessing_of(load_dataset(data.name, data_dir))
    return ModelRecord.of(experiment.name, network, tuple(summary.classes), form)
