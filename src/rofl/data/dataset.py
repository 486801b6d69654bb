"""The data set type: images in memory or in files, labels, and metadata."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rofl.core.noise import check_labels
from rofl.data.image_store import ImageStore, slice_images
from rofl.data.transforms import Transform
from rofl.errors import UserError

if TYPE_CHECKING:  # it imports this module
    from rofl.data.user.encoders import Encoder


@dataclass(frozen=True)
class Dataset:
    """A training and a test part, each with images and labels.

    A table is stored as float32 images of one pixel, with a channel for each feature.

    Attributes:
        name: of the data set, for summaries.
        classes: the names of the K classes.
        train: training images, (N, C, H, W) uint8 in memory or in files.
        train_labels: (N,) true labels, or the given ones if the true ones are unknown.
        test: test images, (M, C, H, W).
        test_labels: (M,).
        transform: from stored images to network inputs.
        truth_known: False if the training labels are the given ones, which may be wrong.
        note: sentences for the reader of results.
        validation: images and labels of a validation part, if the authors published one.
        owners: (N,) index into `clients` of each training sample, if the data names owners.
        clients: the names of the owners.
        ids: the names of the training samples; () if they are numbered.
        test_ids: the names of the test samples; () if they are numbered.
        fingerprint: a digest of user data, to detect changes; "" for published data.
        unreadable: samples of user data that were left out, with the reason.
        encoder: the encoder of a user's table or texts.

    Raises:
        UserError: the numbers of images and labels differ, or a label is not among the classes.
    """

    name: str
    classes: tuple[str, ...]
    train: ImageStore
    train_labels: Tensor
    test: ImageStore
    test_labels: Tensor
    transform: Transform
    truth_known: bool = True
    note: str = ""
    validation: tuple[ImageStore, Tensor] | None = None
    owners: Tensor | None = None
    clients: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    test_ids: tuple[str, ...] = ()
    fingerprint: str = ""
    unreadable: tuple[str, ...] = ()
    encoder: "Encoder | None" = None

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
        """Return a data set of arrays or tensors in memory.

        Args:
            images: uint8 pixels (N, H, W), (N, H, W, C) or (N, C, H, W), or a table (N, F).
            labels: (N,) whole numbers or texts.
            **options: `clients`, `classes`, `test`, `holdout`, `truth_known` and `name`, as
                `rofl.data.from_arrays.from_arrays` describes them.

        Raises:
            UserError: the arrays do not fit together, or have another shape or type.
        """
        from rofl.data.from_arrays import from_arrays  # it imports this module

        return from_arrays(images, labels, **options)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a network input."""
        channels, height, width = self.train.shape[1:]
        side = self.transform.window
        return (channels, side, side) if side else (channels, height, width)

    @property
    def is_table(self) -> bool:
        """Whether the samples are rows of a table or texts, not images."""
        return isinstance(self.train, Tensor) and self.train.is_floating_point()

    @property
    def is_text(self) -> bool:
        """Whether the samples are texts, stored as word indices."""
        return getattr(self.encoder, "kind", "") == "text"

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of the training samples in lists of suspects: `ids`, or their indices."""
        return self.ids or tuple(map(str, range(len(self.train_labels))))

    def hold_out(self, count: int) -> "Dataset":
        """Return a data set whose test part is validation images, for choosing settings without the real test part.

        Args:
            count: the number of images: the first ones of the published validation part, or the last training images,
                which are then not trained on. 0 returns the data set unchanged.

        Raises:
            UserError: there are not that many images.
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
            self._slice_train(slice(-count)),
            test=slice_images(self.train, slice(-count, None)),
            test_labels=self.train_labels[-count:],
        )

    def first(self, train: int | None, test: int | None) -> "Dataset":
        """Return a data set with the first images of each part; all if None."""
        return replace(
            self._slice_train(slice(train)),
            test=slice_images(self.test, slice(test)),
            test_labels=self.test_labels[:test],
        )

    def without_test(self) -> "Dataset":
        """Return a data set whose test part is empty."""
        return replace(self, test=slice_images(self.test, slice(0)), test_labels=self.test_labels[:0], test_ids=())

    def select(self, rows: Tensor) -> "Dataset":
        """Return a data set with only these training samples, which keep their names."""
        names = self.samples
        return replace(
            self,
            train=self.train[rows],
            train_labels=self.train_labels[rows],
            owners=None if self.owners is None else self.owners[rows],
            ids=tuple(names[row] for row in rows.tolist()),
        )

    def _slice_train(self, rows: slice) -> "Dataset":
        """Return a data set with a slice of the training samples; images in files are not decoded."""
        return replace(
            self,
            train=slice_images(self.train, rows),
            train_labels=self.train_labels[rows],
            owners=None if self.owners is None else self.owners[rows],
            ids=self.ids[rows],
        )

    def _validation(self) -> list[tuple[ImageStore, Tensor]]:
        """Return the validation part in a list, or an empty list."""
        return [] if self.validation is None else [self.validation]
