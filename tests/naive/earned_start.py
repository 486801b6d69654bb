"""When pseudo-labels begin with T_pl = "auto", step by step, in plain Python; averages are kept in four bytes."""

import struct


def four_bytes(number: float) -> float:
    return struct.unpack("f", struct.pack("f", number))[0]


def first_round_with_pseudo_labels(
    rounds: list[tuple[int, int]],  # of each round: samples whose label was predicted, and all
    noise: float | None,  # the share of wrong labels; None where nobody knows
    classes: int,
) -> int | None:
    """The round, counted from 1; None where it does not begin."""
    fast = slow = None
    for place, (agreed, counted) in enumerate(rounds):
        if counted == 0:
            continue
        now = agreed / counted
        fast = now if fast is None else 0.5 * fast + 0.5 * now
        slow = now if slow is None else 0.8 * slow + 0.2 * now
        has_stopped_rising = place > 0 and fast - slow <= 0.01
        if noise is None:
            if has_stopped_rising and fast >= 0.5:
                return place + 2
            fast, slow = four_bytes(fast), four_bytes(slow)
            continue
        # A model that is right on a share A agrees with (1 - noise) of that, and with noise / (K - 1) of the rest.
        by_chance = noise / (classes - 1)
        accuracy = (fast - by_chance) / max(1 - noise - by_chance, 0.001)
        accuracy = max(0.0, min(1.0, accuracy))
        model_right = accuracy * noise  # where model and label differ
        label_right = (1 - accuracy) * (1 - noise)
        if model_right > 2 * label_right:
            return place + 2
        fast, slow = four_bytes(fast), four_bytes(slow)
    return None
