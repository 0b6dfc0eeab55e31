"""Which pods have a deadline while they are pending, and what is written of one that exceeds it."""

from typing import Any

import pytest

from slacktide.agents.cluster.pending.deadlines import REASON, PendingDeadlines, deadline_of, failed_status, why_pending
from slacktide.agents.kubernetes.resource import CONFLICT, ApiError, Resource, refused
from slacktide.schemas.kubernetes_fields import Reader
from slacktide.schemas.kubernetes_pod import PENDING_DEADLINE, wishes
from testbed.lone_agent import SteppedClock

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
}


def pod(deadline: str | None = "600", *, name: str = "a", uid: str = "u", **fields: Any) -> dict[str, Any]:
    annotations = {} if deadline is None else {PENDING_DEADLINE: deadline}
    metadata = {"name": name, "namespace": "jobs", "uid": uid, "resourceVersion": "7", "annotations": annotations}
    found: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}
    for part, value in fields.items():
        found[part] = found[part] | value
    return found


@pytest.mark.parametrize(
    "item",
    [
        pod(None),
        pod(""),
        pod("soon"),
        pod("0"),
        pod("1.5"),
        pod(spec={"schedulingGates": [{"name": "slacktide.io/queue"}]}),
        pod(status={"phase": "Running"}),
        pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
    ids=["none", "empty", "no number", "zero", "a fraction", "gated", "running", "being deleted"],
)
def test_a_pod_has_no_deadline(item: dict[str, Any]) -> None:
    assert deadline_of(item) is None


def test_a_deadline_that_cannot_be_read_is_noted_for_its_user() -> None:
    reader = Reader("pod", of_users=True)
    wishes({}, {PENDING_DEADLINE: "soon"}, "metadata", reader)
    assert reader.ignored_of("") == [
        f"metadata.annotations[\"{PENDING_DEADLINE}\"]: 'soon': ignored; accepted: whole seconds, 1 or more"
    ]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"conditions": [UNSCHEDULABLE]}, "Unschedulable: 0/3 nodes are available"),
        (
            {
                "containerStatuses": [
                    {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
                ]
            },
            "container main: ErrImagePull: no",
        ),
        ({"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        ({"conditions": None, "containerStatuses": None}, ""),
    ],
)
def test_the_reason_is_the_schedulers_or_the_kubelets(status: dict[str, Any], why: str) -> None:
    assert why_pending(pod(status=status)) == why


def test_only_the_version_that_was_seen_is_failed_and_its_conditions_stay() -> None:
    patch = failed_status(pod(status={"conditions": [UNSCHEDULABLE]}), "late", "2026-01-01T00:00:00Z")
    assert patch["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert [one["type"] for one in patch["status"]["conditions"]] == ["PodScheduled", REASON]
    assert (patch["status"]["phase"], patch["status"]["reason"]) == ("Failed", REASON)


class Api:
    """An API server that keeps what is written, or refuses it."""

    def __init__(self) -> None:
        self.failed = list[str]()
        self.refuse: ApiError | None = None

    async def patch(self, resource: Resource, name: str, body: Any, kind: Any, **where: str) -> Any:
        if self.refuse is not None:
            raise self.refuse
        self.failed.append(name)

    async def create(self, resource: Resource, body: Any, kind: Any, **where: str) -> Any:
        pass


async def look(deadlines: PendingDeadlines, api: Api) -> list[str]:
    """What is failed by one look."""
    api.failed.clear()
    await deadlines.look(api)  # type: ignore[arg-type]
    return list(api.failed)


async def test_the_time_counts_from_when_the_pod_was_first_seen_without_gates() -> None:
    clock, api = SteppedClock(), Api()
    deadlines = PendingDeadlines(clock, "one")
    deadlines.pod(pod(spec={"schedulingGates": [{"name": "g"}]}))
    clock.pass_ms(10_000_000)
    deadlines.pod(pod())
    clock.pass_ms(599_000)
    assert await look(deadlines, api) == []
    deadlines.pod(pod(status={"conditions": [UNSCHEDULABLE]}))  # a change is no new beginning
    clock.pass_ms(2_000)
    assert await look(deadlines, api) == ["a"]


async def test_another_pod_of_the_name_begins_anew() -> None:
    clock, api = SteppedClock(), Api()
    deadlines = PendingDeadlines(clock, "one")
    deadlines.pod(pod())
    clock.pass_ms(500_000)
    deadlines.pod(pod(uid="other"))
    clock.pass_ms(500_000)
    assert await look(deadlines, api) == []


async def test_a_pod_that_changed_meanwhile_or_cannot_be_written_is_tried_again() -> None:
    clock, api = SteppedClock(), Api()
    deadlines = PendingDeadlines(clock, "one")
    deadlines.pod(pod("1"))
    clock.pass_ms(2_000)
    api.refuse = refused("PATCH x", CONFLICT, b"")
    assert await look(deadlines, api) == []
    assert deadlines.trouble == ""
    api.refuse = ApiError("the API server is away")
    clock.pass_ms(10_000)
    await look(deadlines, api)
    assert deadlines.trouble == "the API server is away"
    api.refuse = None
    clock.pass_ms(10_000)
    assert await look(deadlines, api) == ["a"]
    assert deadlines.trouble == ""
