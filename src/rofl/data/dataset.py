"""A data set: images in memory or in files, and their labels."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rofl.core.noise import check_labels
from rofl.data.image_store import ImageStore, slice_images
from rofl.data.transforms import Transform
from rofl.errors import UserError

if TYPE_CHECKING:  # it imports this module
    from rofl.data.user.table_encoder import TableEncoder


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 pixels per part, with true labels as far as they are known.

    A table is a set of images of one pixel with a channel per feature, as float32.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageStore  # (N, C, H, W) uint8
    train_labels: Tensor  # (N,)
    test: ImageStore  # (M, C, H, W) uint8
    test_labels: Tensor  # (M,)
    transform: Transform
    truth_known: bool = True  # off: the training labels are as given, partly wrong
    note: str = ""  # a sentence that the reader of results should know
    validation: tuple[ImageStore, Tensor] | None = None  # images and labels set aside by the set's authors
    owners: Tensor | None = None  # (N,) the client of each training sample, where the data says so
    clients: tuple[str, ...] = ()  # their names
    ids: tuple[str, ...] = ()  # the training samples' names, where they have some
    test_ids: tuple[str, ...] = ()  # the test samples'
    fingerprint: str = ""  # a digest of the data it came from, where it is a user's
    unreadable: tuple[str, ...] = ()  # samples that were left out, with the reason
    encoder: "TableEncoder | None" = None  # that made the features, where a user's table was read

    def __post_init__(self) -> None:
        for images, labels in ((self.train, self.train_labels), (self.test, self.test_labels), *self._validation()):
            if len(images) != len(labels):
                raise UserError(f"{self.name} has {len(images)} images and {len(labels)} labels.", "fetch it again")
            try:
                check_labels(labels, len(self.classes))
            except ValueError as error:
                raise UserError(f"{self.name}: {error}.", "fetch it again") from error

    @classmethod
    def from_arrays(cls, images: Any, labels: Any, **options: Any) -> "Dataset":
        """Return a data set of arrays or tensors; `rofl.data.from_arrays.from_arrays` describes the options."""
        from rofl.data.from_arrays import from_arrays  # it imports this module

        return from_arrays(images, labels, **options)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width, as a network sees them."""
        channels, height, width = self.train.shape[1:]
        side = self.transform.window
        return (channels, side, side) if side else (channels, height, width)

    @property
    def is_table(self) -> bool:
        """Whether the samples are numbers that make no picture."""
        return isinstance(self.train, Tensor) and self.train.is_floating_point()

    @property
    def samples(self) -> tuple[str, ...]:
        """What lists call the training samples: their names, or else their numbers."""
        return self.ids or tuple(map(str, range(len(self.train_labels))))

    def hold_out(self, count: int) -> "Dataset":
        """Let images other than the test set's take its place: for choosing settings.

        They are the first of the validation part where the set has one, else the last training images.
        """
        if count == 0:
            return self
        for images, labels in self._validation():
            if count > len(images):
                raise UserError(
                    f"{count} images cannot be set aside: {self.name} has {len(images)} for validation.",
                    f"data.validation={len(images)}",
                )
            return replace(self, test=slice_images(images, slice(count)), test_labels=labels[:count])
        if count >= len(self.train):
            raise UserError(f"{count} images cannot be set aside: there are {len(self.train)}.", "data.validation=200")
        return replace(
            self._training(slice(-count)),
            test=slice_images(self.train, slice(-count, None)),
            test_labels=self.train_labels[-count:],
        )

    def first(self, train: int | None, test: int | None) -> "Dataset":
        """The first so many images of each part; all where None."""
        return replace(
            self._training(slice(train)),
            test=slice_images(self.test, slice(test)),
            test_labels=self.test_labels[:test],
        )

    def select(self, rows: Tensor) -> "Dataset":
        """Some of the training samples; they keep the names or numbers that they have here."""
        names = self.samples
        return replace(
            self,
            train=self.train[rows],
            train_labels=self.train_labels[rows],
            owners=None if self.owners is None else self.owners[rows],
            ids=tuple(names[row] for row in rows.tolist()),
        )

    def _training(self, piece: slice) -> "Dataset":
        """Some of the training samples, with all that is known of each."""
        return replace(
            self,
            train=slice_images(self.train, piece),
            train_labels=self.train_labels[piece],
            owners=None if self.owners is None else self.owners[piece],
            ids=self.ids[piece],
        )

    def _validation(self) -> list[tuple[ImageStore, Tensor]]:
        return [] if self.validation is None else [self.validation]
