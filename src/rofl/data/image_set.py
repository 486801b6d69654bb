"""A data set in memory."""

from dataclasses import dataclass, replace

from torch import Tensor

from rofl.core.noise import check_labels
from rofl.data.batches import Transform
from rofl.errors import UserError


@dataclass(frozen=True)
class ImageSet:
    """Images as one uint8 tensor per part, with true labels."""

    name: str
    classes: tuple[str, ...]
    train: Tensor  # (N, C, H, W) uint8
    train_labels: Tensor  # (N,)
    test: Tensor  # (M, C, H, W) uint8
    test_labels: Tensor  # (M,)
    transform: Transform

    def __post_init__(self) -> None:
        for part, labels in ((self.train, self.train_labels), (self.test, self.test_labels)):
            if len(part) != len(labels):
                raise UserError(f"{self.name} has {len(part)} images and {len(labels)} labels.", "fetch it again")
            try:
                check_labels(labels, len(self.classes))
            except ValueError as error:
                raise UserError(f"{self.name}: {error}.", "fetch it again") from error

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train.shape[1:]
        return channels, height, width

    def hold_out(self, count: int) -> "ImageSet":
        """Set the last training images aside, and let them take the place of the test set: for choosing settings."""
        if count == 0:
            return self
        if count >= len(self.train):
            raise UserError(f"{count} images cannot be set aside: there are {len(self.train)}.", "data.validation=200")
        return replace(
            self,
            train=self.train[:-count],
            train_labels=self.train_labels[:-count],
            test=self.train[-count:],
            test_labels=self.train_labels[-count:],
        )

    def first(self, train: int | None, test: int | None) -> "ImageSet":
        """The first so many images of each part; all where None."""
        return replace(
            self,
            train=self.train[:train],
            train_labels=self.train_labels[:train],
            test=self.test[:test],
            test_labels=self.test_labels[:test],
        )
