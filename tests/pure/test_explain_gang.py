"""What `explain pod` says of a pod that waits for its gang, or has a place."""

import pytest

from slacktide.schemas.gang import GangPlace, GangPlan
from slacktide.streams.analysis.explain.evidence import Logged, Place
from slacktide.streams.analysis.explain.gang import gang_findings, last_of_gang

WAITS = GangPlan(group="batch/g", decided_ms=1_000, waiting=["g-0"], reason="gang_no_room", why="places for 1 of 2")
PLANNED = GangPlan(
    group="batch/g", plan="a/1/1", decided_ms=2_000, places=[GangPlace(pod_uid="u", name="g-0", node="n1")]
)
ENDED = GangPlan(group="batch/g", plan="a/1/1", decided_ms=3_000, reason="bound")
OTHER = GangPlan(group="x-batch/g", decided_ms=4_000, waiting=["g-0"], reason="gang_forming")


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        pytest.param([WAITS], ["it waits for its gang batch/g (9 s ago): gang_no_room: places for 1 of 2"], id="waits"),
        pytest.param([WAITS, PLANNED], ["8 s ago its gang batch/g got places for all: node n1 is held for it"],
                     id="held"),
        pytest.param([WAITS, PLANNED, ENDED], [], id="ended"),
        pytest.param([WAITS, OTHER], ["it waits for its gang batch/g (9 s ago): gang_no_room: places for 1 of 2"],
                     id="a gang of another namespace"),
        pytest.param([OTHER], [], id="none"),
    ],
)  # fmt: skip
def test_the_last_decision_of_its_gang_counts(plans: list[GangPlan], said: list[str]) -> None:
    logged = [
        Logged(body=plan, place=Place(topic="t", partition=0, offset=offset, logged_ms=plan.decided_ms))
        for offset, plan in enumerate(plans)
    ]
    found = last_of_gang(logged, "batch", "g-0")
    assert [one.text for one in gang_findings(found, "g-0", 10_000)] == said
