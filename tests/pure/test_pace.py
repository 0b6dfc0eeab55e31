"""How often a reader of what seldom changes asks."""

from types import SimpleNamespace

from slacktide.streams.kafka.reader import Pace


def test_where_nothing_comes_for_a_while_the_broker_may_hold_a_fetch_for_longer() -> None:
    consumer = SimpleNamespace(_fetcher=SimpleNamespace())
    pace = Pace(200)

    waits = []
    for found in (True, *[False] * 5, True):
        pace.polled(consumer, found=found, wait_s=0.2)
        waits.append((consumer._fetcher._fetch_max_wait_ms, consumer._fetcher._fetcher_timeout))

    assert waits == [(200, 0.2)] * 5 + [(2_500, 3.0), (200, 0.2)]


def test_where_records_gather_the_next_fetch_waits() -> None:
    waits: list[float] = []
    consumer = SimpleNamespace(_fetcher=SimpleNamespace(gather=waits.append))

    Pace(200, gather_ms=500).polled(consumer, found=True, wait_s=0.5)

    assert waits == [0.5]
