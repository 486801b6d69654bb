"""Pixels one by one: an image is nested lists, image[channel][row][column]."""

Image = list[list[list[int]]]


def normalised(image: Image, mean: tuple[float, ...], std: tuple[float, ...]) -> list[list[list[float]]]:
    """Scale to 0..1, subtract the channel's mean, divide by its standard deviation."""
    result = []
    for channel, plane in enumerate(image):
        result.append([[(value / 255 - mean[channel]) / std[channel] for value in row] for row in plane])
    return result


def cropped(image: Image, padding: int, down: int, right: int) -> Image:
    """Pad with zeros on all sides, then cut the old size out with its corner at (down, right)."""
    height, width = len(image[0]), len(image[0][0])
    result = []
    for plane in image:
        cut = []
        for row in range(height):
            line = []
            for column in range(width):
                y, x = row + down - padding, column + right - padding
                line.append(plane[y][x] if 0 <= y < height and 0 <= x < width else 0)
            cut.append(line)
        result.append(cut)
    return result


def mirrored(image: Image) -> Image:
    """Return the image mirrored horizontally."""
    return [[[row[len(row) - 1 - column] for column in range(len(row))] for row in plane] for plane in image]
