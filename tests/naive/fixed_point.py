"""Fixed point with fractions and Python's integers, number by number."""

from fractions import Fraction

Signed = int  # modulo 2^64, from -2^63 to 2^63 - 1


def nearest(value: float, bits: int) -> int:
    """The multiple of 2^-bits that is nearest to the value, in units of it; of two the even one."""
    exact = Fraction(value) * 2**bits
    below = exact.numerator // exact.denominator
    rest = exact - below
    if rest == Fraction(1, 2):
        return below + below % 2
    return below + (rest > Fraction(1, 2))


def wrapped(number: int) -> Signed:
    """The number modulo 2^64, as a signed one."""
    return (number + 2**63) % 2**64 - 2**63


def summed(values: list[float], bits: int) -> float:
    """The sum of the rounded values, as the server decodes it; to the nearest double."""
    total = 0
    for value in values:
        total = wrapped(total + nearest(value, bits))
    return float(Fraction(total, 2**bits))
