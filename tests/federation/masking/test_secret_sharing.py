"""Shamir's secret sharing of many secrets at once: its shares are those of PyCryptodome, which shares one at a time."""

import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from rofl.federation.masking.secret_sharing import MOST, combine, inverse, multiply, split

SECRET = st.binary(min_size=16, max_size=16)
ELEMENT = st.integers(0, 2**128 - 1)


@given(st.lists(SECRET, min_size=1, max_size=5), st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_the_library_recovers_what_was_split_here(secrets: list[bytes], shares: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, shares))
    dealt = split(secrets, threshold, shares)
    assert [len(each) for each in dealt] == [len(secrets)] * shares
    numbers = st.sampled_from(range(1, shares + 1))
    chosen = data.draw(st.lists(numbers, min_size=threshold, max_size=threshold, unique=True))
    for place, secret in enumerate(secrets):
        own = [(number, dealt[number - 1][place]) for number in chosen]
        assert Shamir.combine(own, ssss=False) == combine(own) == secret


@given(SECRET, st.integers(2, 12), st.data())
@settings(max_examples=30, deadline=None)
def test_what_the_library_split_is_recovered_here(secret: bytes, shares: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(2, shares))
    dealt = Shamir.split(threshold, shares, secret, ssss=False)
    chosen = data.draw(st.permutations(dealt))[:threshold]
    assert combine(chosen) == secret
    assert combine(chosen[1:]) != secret  # but for a chance of 2^-128


@pytest.mark.parametrize(("threshold", "shares"), [(2, 3), (16, 30), (3, 700)])
def test_secrets_side_by_side_do_not_touch(threshold: int, shares: int) -> None:
    secrets = [bytes(16), b"\xff" * 16, b"\x80" + bytes(15), bytes(15) + b"\x01"]
    dealt = split(secrets, threshold, shares)
    last = range(shares - threshold + 1, shares + 1)
    assert [combine([(number, dealt[number - 1][place]) for number in last]) for place in range(4)] == secrets
    assert split(secrets, threshold, shares) != dealt  # other polynomials each time


def test_a_share_is_spread_over_all_values() -> None:
    """The last of two shares of one secret takes each value of a byte about equally often."""
    counts = [0] * 256
    for _ in range(64):
        for share in split([b"one secret only."] * 16, 2, 2)[1]:
            for byte in share:
                counts[byte] += 1
    mean = 64 * 16 * 16 / 256
    assert sum((count - mean) ** 2 / mean for count in counts) < 380  # chi-square with 255 degrees: once in 10^6


@given(ELEMENT, ELEMENT, ELEMENT)
@settings(max_examples=50, deadline=None)
def test_the_field_is_one(first: int, second: int, third: int) -> None:
    assert multiply(first, second) == multiply(second, first)
    assert multiply(first, multiply(second, third)) == multiply(multiply(first, second), third)
    assert multiply(first, second ^ third) == multiply(first, second) ^ multiply(first, third)
    assert multiply(first, 1) == first
    assert first == 0 or multiply(first, inverse(first)) == 1


def test_what_cannot_be_shared_or_combined() -> None:
    for secrets, threshold, shares in (([b"short"], 2, 3), ([bytes(16)], 4, 3), ([bytes(16)], 2, MOST + 1)):
        with pytest.raises(ValueError, match="cannot be shared"):
            split(secrets, threshold, shares)
    for given_shares in ([(1, bytes(16)), (1, bytes(16))], [(0, bytes(16)), (1, bytes(16))]):
        with pytest.raises(ValueError, match="no different shares"):
            combine(given_shares)
