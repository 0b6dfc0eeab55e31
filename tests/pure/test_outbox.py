"""Records that wait for Kafka, and what is logged meanwhile."""

import pytest

from slacktide.agents.node.link import Line
from slacktide.agents.publisher import WAITING_MAX, Outbox
from slacktide.schemas.backoff import REASONS_MAX, Reasons
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import MISSED_POD
from slacktide.streams.records import Out


async def test_the_oldest_are_dropped_above_the_limit_and_the_log_has_it_once(caplog: pytest.LogCaptureFixture) -> None:
    dropped: list[int] = []
    outbox = Outbox(
        Cluster("127.0.0.1:1"), (MISSED_POD.name,), lambda: 0, source="webhook", dropped=lambda: dropped.append(1)
    )
    for number in range(WAITING_MAX + 3):
        outbox.put(Out(topic=MISSED_POD.name, key=str(number).encode(), value=b"{}", headers=()))
    assert len(dropped) == 3
    assert [record.message for record in caplog.records] == ["too many records wait for Kafka: dropping the oldest"]


async def test_each_reason_of_an_outage_is_logged_once_also_one_that_comes_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A busy machine may first be late, and show only then what is wrong."""
    line = Line("samples")
    for why in ("no answer within 4 s", "its certificate could not be verified", "no answer within 4 s"):
        await line.broke(LogError(why))
    line.works()
    await line.broke(LogError("no answer within 4 s"))

    assert [vars(record).get("why") for record in caplog.records if record.levelname == "WARNING"] == [
        "no answer within 4 s", "its certificate could not be verified", "no answer within 4 s",
    ]  # fmt: skip


def test_an_outage_with_ever_other_reasons_does_not_fill_the_log() -> None:
    reasons = Reasons()
    assert [reasons.is_new(f"from port {port}") for port in range(100)] == [True] * REASONS_MAX + [False] * 90
