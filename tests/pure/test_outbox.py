"""Records that wait for Kafka."""

from __future__ import annotations

import pytest

from slacktide.agents.publisher import WAITING_MAX, Outbox
from slacktide.schemas.connection import Cluster
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.records import Out


async def test_the_oldest_are_dropped_above_the_limit_and_the_log_has_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dropped: list[int] = []
    outbox = Outbox(
        Cluster("127.0.0.1:1"), (MISSED_POD.name,), lambda: 0, source="webhook", dropped=lambda: dropped.append(1)
    )
    for number in range(WAITING_MAX + 3):
        outbox.put(Out(topic=MISSED_POD.name, key=str(number).encode(), value=b"{}", headers=()))
    assert len(dropped) == 3
    assert [record.message for record in caplog.records] == ["too many records wait for Kafka: dropping the oldest"]
