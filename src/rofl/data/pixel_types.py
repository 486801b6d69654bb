"""Conversion of pixels of any dtype to uint8."""

import numpy as np

from rofl.errors import UserError

_HINT = "uint8, or numbers from 0 to 1"


def pixels_to_uint8(array: np.ndarray, what: str = "images") -> np.ndarray:
    """Return pixels as uint8: numbers from 0 to 1 are scaled; of larger integers the highest 8 bits in use are kept.

    The scale is that of the whole array, so that images of one array stay comparable.

    Args:
        array: of any shape; uint8 is returned unchanged.
        what: the name of the argument in error messages.

    Raises:
        UserError: the numbers are not pixels: they are negative, not finite, or above 255 with a fraction.
    """
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind not in "iuf" or not array.size:
        raise UserError(f"{what.capitalize()} are {array.dtype} of shape {array.shape}.", _HINT)
    if not np.isfinite(array).all() or array.min() < 0 or (array.dtype.kind == "f" and array.max() > 255):
        raise UserError(
            f"Pixels lie between {array.min():g} and {array.max():g}: they are not as a file has them.",
            "raw pixels; the model scales them itself",
        )
    if array.dtype.kind == "f":
        rounded: np.ndarray = np.rint(array * (255 if array.max() <= 1 else 1)).astype(np.uint8)
        return rounded
    return highest_8_bits(array)


def highest_8_bits(values: np.ndarray) -> np.ndarray:
    """Return integers as uint8: the highest 8 of the 8, 12, 16 or 32 bits in use; scanners store 12 bits in 16.

    >>> highest_8_bits(np.array([0, 4095])).tolist()
    [0, 255]
    """
    bits = next(bits for bits in (8, 12, 16, 32) if int(values.max(initial=0)) < 1 << bits)
    highest: np.ndarray = values.clip(0) >> (bits - 8)
    return highest.astype(np.uint8)
