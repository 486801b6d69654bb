"""The preprocessing of raw samples to network inputs, as records that are saved with a model."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from rofl.core.settings import Spec
from rofl.data.dataset import Dataset
from rofl.data.transforms import Identity, Transform, user_transform
from rofl.data.user.encoders import Encoder
from rofl.data.user.table_encoder import TableEncoder
from rofl.data.user.text_encoder import TextEncoder


class ImagePreprocessing(Spec):
    """Preprocessing of images: decode, resize, scale, and optionally crop the centre.

    Attributes:
        channels: 1 for grey, 3 for colours.
        height: in pixels, before the crop.
        width: in pixels, before the crop.
        mean: per channel, of pixels scaled to 0..1.
        std: per channel.
        window: the side of the centre crop; 0 for the whole image.
    """

    kind: Literal["image"] = "image"
    channels: Annotated[int, Field(ge=1)]
    height: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    window: Annotated[int, Field(ge=0)] = 0

    @property
    def transform(self) -> Transform:
        """The transform of decoded pixels to network inputs."""
        return Transform(self.mean, self.std, window=self.window)


class TablePreprocessing(Spec):
    """Preprocessing of table rows: numbers are standardised, categories one-hot encoded.

    Attributes:
        features: the number of network inputs of a row.
        encoder: the encoder of the rows; None for numbers that are used directly.
    """

    kind: Literal["table"] = "table"
    features: Annotated[int, Field(ge=1)]
    encoder: TableEncoder | None = None

    @property
    def transform(self) -> Transform:
        """The transform of encoded rows to network inputs: the identity."""
        return Identity((), ())


class TextPreprocessing(Spec):
    """Preprocessing of texts: words become indices.

    Attributes:
        encoder: the encoder of the texts.
    """

    kind: Literal["text"] = "text"
    encoder: TextEncoder

    @property
    def transform(self) -> Transform:
        """The transform of word indices to network inputs: the identity."""
        return Identity((), ())


AnyPreprocessing: TypeAlias = ImagePreprocessing | TablePreprocessing | TextPreprocessing
Preprocessing: TypeAlias = Annotated[AnyPreprocessing, Field(discriminator="kind")]


def preprocessing_of(images: Dataset) -> AnyPreprocessing:
    """Return the preprocessing of a data set, without the random crops and flips of training."""
    channels, height, width = images.train.shape[1:]
    if images.encoder is not None:
        return encoder_preprocessing(images.encoder, channels)
    if images.is_table:
        return TablePreprocessing(features=channels)
    transform = images.transform
    return ImagePreprocessing(
        channels=channels, height=height, width=width, mean=transform.mean, std=transform.std, window=transform.window
    )


def encoder_preprocessing(encoder: Encoder, features: int) -> TablePreprocessing | TextPreprocessing:
    """Return the preprocessing of a table's rows, or of texts.

    Args:
        encoder: the encoder.
        features: the number of features.
    """
    if isinstance(encoder, TextEncoder):
        return TextPreprocessing(encoder=encoder)
    return TablePreprocessing(features=features, encoder=encoder)


def user_preprocessing(shape: tuple[int, int, int]) -> ImagePreprocessing:
    """Return the preprocessing of user images from their shape alone.

    Args:
        shape: channels, height and width.
    """
    channels, height, width = shape
    scaling = user_transform(channels, height)
    return ImagePreprocessing(channels=channels, height=height, width=width, mean=scaling.mean, std=scaling.std)
