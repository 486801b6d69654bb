"""How raw samples become network inputs, as records that are saved with a model."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from rofl.core.settings import Spec
from rofl.data.dataset import Dataset
from rofl.data.transforms import Identity, Transform, user_transform
from rofl.data.user.encoders import Encoder
from rofl.data.user.table_encoder import TableEncoder
from rofl.data.user.text_encoder import TextEncoder


class ImagePreprocessing(Spec):
    """Of images: they are decoded, resized to one size, scaled, and cut to the square in their middle.

    Attributes:
        channels: 1 for grey, 3 for colours.
        height: in pixels, before anything is cut off.
        width: in pixels, before anything is cut off.
        mean: per channel, of pixels scaled to 0..1.
        std: per channel.
        window: the side of the square that is cut out of the middle; 0 for the whole image.
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
    """Of the rows of a table: numbers are standardised, categories one-hot.

    Attributes:
        features: the number of network inputs of a row.
        encoder: that makes them; None if the rows are numbers that are used as they are.
    """

    kind: Literal["table"] = "table"
    features: Annotated[int, Field(ge=1)]
    encoder: TableEncoder | None = None

    @property
    def transform(self) -> Transform:
        """The transform of encoded rows to network inputs, which leaves them as they are."""
        return Identity((), ())


class TextPreprocessing(Spec):
    """Preprocessing of texts: words become numbers.

    Attributes:
        encoder: that makes them.
    """

    kind: Literal["text"] = "text"
    encoder: TextEncoder

    @property
    def transform(self) -> Transform:
        """The transform of numbers of words to network inputs, which leaves them as they are."""
        return Identity((), ())


AnyPreprocessing: TypeAlias = ImagePreprocessing | TablePreprocessing | TextPreprocessing
Preprocessing: TypeAlias = Annotated[AnyPreprocessing, Field(discriminator="kind")]


def preprocessing_of(images: Dataset) -> AnyPreprocessing:
    """Return how the raw samples of a data set become network inputs; random crops and flips are for training only."""
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
        encoder: that makes their features.
        features: how many there are.
    """
    if isinstance(encoder, TextEncoder):
        return TextPreprocessing(encoder=encoder)
    return TablePreprocessing(features=features, encoder=encoder)


def user_preprocessing(shape: tuple[int, int, int]) -> ImagePreprocessing:
    """Return the preprocessing of user images, whose data set is not at hand.

    Args:
        shape: channels, height and width.
    """
    channels, height, width = shape
    scaling = user_transform(channels, height)
    return ImagePreprocessing(channels=channels, height=height, width=width, mean=scaling.mean, std=scaling.std)
