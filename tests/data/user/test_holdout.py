from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rofl.data.user import holdout
from rofl.data.user.samples import Sample


def entries(counts):
    """From {(client, label): how many}."""
    return [
        Sample(f"{client}{label}{n}", label, client, False, ())
        for (client, label), count in counts.items()
        for n in range(count)
    ]


def held(counts, share=0.2):
    found = entries(counts)
    return Counter((found[row].client, found[row].label) for row in holdout.split_holdout(found, share))


def test_a_share_of_each_client_and_class():
    assert held({("a", "x"): 10, ("a", "y"): 20, ("b", "x"): 5}) == {("a", "x"): 2, ("a", "y"): 4, ("b", "x"): 1}


def test_the_share_of_a_client_is_met_where_classes_are_small():
    assert held({("a", label): 3 for label in "xyz"}).total() == 2  # 1.8 of 9, though 0.6 of each class
    assert held({("a", "x"): 17, ("a", "y"): 3}) == {("a", "x"): 3, ("a", "y"): 1}


def test_a_client_with_one_sample_keeps_it():
    assert held({("a", "x"): 1, ("b", "x"): 10}, 0.5) == {("b", "x"): 5}


def test_classes_of_one_sample_give_too_unless_it_is_the_last_of_all():
    many = {("a", f"{n}"): 1 for n in range(10)} | {("b", f"{n}"): 1 for n in range(10)}
    found = held(many)
    assert found.total() == 4
    assert held({("a", f"{n}"): 1 for n in range(10)}) == {}


def test_the_holdout_is_random_but_reproducible_and_depends_on_its_own_samples_only():
    few = {("a", "x"): 40, ("a", "y"): 20}
    rows = holdout.split_holdout(entries(few), 0.2)
    assert rows == holdout.split_holdout(entries(few), 0.2)
    assert rows != sorted(rows)[:1] + list(range(1, len(rows)))
    assert rows == [row for row in holdout.split_holdout(entries(few | {("b", "x"): 9}), 0.2) if row < 60]
    assert len(set(rows)) == len(rows)


def test_data_without_clients_is_one():
    found = [Sample(str(n), "xy"[n % 2], None, False, ()) for n in range(20)]
    assert Counter(found[row].label for row in holdout.split_holdout(found, 0.2)) == {"x": 2, "y": 2}


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.integers(1, 12), min_size=1),
    st.floats(0.01, 0.99),
)
def test_every_client_and_class_keeps_something(counts, share):
    taken = held(counts, share)
    for client in {client for client, _ in counts}:
        own = sum(count for (who, _), count in counts.items() if who == client)
        out = sum(count for (who, _), count in taken.items() if who == client)
        assert out < own
        assert out <= round(share * own)
    for label in {label for _, label in counts}:
        left = sum(count - taken[who, kind] for (who, kind), count in counts.items() if kind == label)
        assert left >= 1
