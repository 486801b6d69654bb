"""Settings of the network."""

from typing import Annotated

from pydantic import Field, field_validator

from rofl.core.spec import Spec
from rofl.models.registry import MODELS


class ModelSpec(Spec):
    """Which network to train."""

    name: str = "small"
    width: Annotated[float, Field(gt=0, le=8)] = 1.0  # multiplies all channels
    weights: str = ""  # where training starts: "" at random, "imagenet", or a file

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        MODELS.find(name)
        return name
