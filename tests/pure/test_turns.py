"""What was fetched goes out in turns: each record once, in order, and no turn is too large."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.columns.batches import TURN_RECORDS_MAX, Turns
from slacktide.streams.kafka.fetched import walked
from slacktide.streams.records import Place
from testbed.batches import batch


def fetched(base: int, records: int) -> list:
    """Of one partition."""
    if not records:
        return []
    return [walked(batch(base, [b""] * records).raw, base, 1 << 24)]


@given(st.lists(st.integers(0, 2_800), max_size=5))
def test_each_record_goes_out_once_and_in_order(sizes: list[int]) -> None:
    turns = Turns()
    places = {Place("t", number): fetched(10 * number, size) for number, size in enumerate(sizes)}
    assert turns.add(places) == sum(sizes)

    out: dict[Place, list[int]] = {}
    count = 0
    while turns:
        turn = turns.next()
        count += 1
        assert 0 < sum(len(taken) for taken in turn.values()) <= TURN_RECORDS_MAX
        for place, taken in turn.items():
            assert len(taken), "no place without records"
            out.setdefault(place, []).extend(taken.offsets)

    assert out == {
        Place("t", number): list(range(10 * number, 10 * number + size)) for number, size in enumerate(sizes) if size
    }
    assert count == -(-sum(sizes) // TURN_RECORDS_MAX), "as few turns as hold them"


def test_a_turn_has_records_of_all_partitions() -> None:
    turns = Turns()
    turns.add({Place("t", number): fetched(0, TURN_RECORDS_MAX) for number in range(4)})

    assert {place.partition: len(taken) for place, taken in turns.next().items()} == dict.fromkeys(
        range(4), TURN_RECORDS_MAX // 4
    )


def test_what_is_left_goes_when_partitions_move() -> None:
    turns = Turns()
    turns.add({Place("t", 0): fetched(0, TURN_RECORDS_MAX + 1)})
    turns.next()
    turns.clear()

    assert not turns
    assert turns.next() == {}
