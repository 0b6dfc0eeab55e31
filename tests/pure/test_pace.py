"""How often a reader of what seldom changes asks."""

from __future__ import annotations

from types import SimpleNamespace

from slacktide.streams.kafka.pace import IDLE_POLLS, Pace


def test_where_nothing_comes_for_a_while_the_broker_may_hold_a_fetch_for_a_second() -> None:
    consumer = SimpleNamespace(_fetcher=SimpleNamespace())
    pace = Pace(200)

    waits = []
    for found in (True, *[False] * IDLE_POLLS, True):
        pace.polled(consumer, found=found)
        waits.append((consumer._fetcher._fetch_max_wait_ms, consumer._fetcher._fetcher_timeout))

    assert waits == [(200, 0.2)] * IDLE_POLLS + [(1_000, 1.0), (200, 0.2)]
