"""What the API server's answers to an eviction mean, and how long it is then left alone."""

import json
from typing import Any

from syrupy.assertion import SnapshotAssertion

from slacktide.agents.event import NOTE_MAX, event_path
from slacktide.agents.http import Answer
from slacktide.agents.node.evict.eviction_api import EvictionRequest, Reply, body_of, event_of, path_of, reply_of
from slacktide.agents.node.evict.eviction_client import Patience
from slacktide.schemas.outcome import NodeOutcome, PodName
from testbed.stories import each_story, story
from testbed.vectors import each_row

SECOND_NS = 10**9
REQUEST = EvictionRequest(uid="uid-1", namespace="batch", name="job", grace_s=None)
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def answer(status: int, message: str = "", cause: str = "", body: str = "", times: int = 1, **more: int) -> Answer:
    """An answer with a Status of its own, or with another body, which may repeat."""
    told = {"kind": "Status", "message": message, "details": {"causes": [{"reason": cause}] if cause else []}}
    return Answer(status=status, body=body.encode() * times or json.dumps(told).encode(), **more)


@each_row("given", "verdict")
def test_each_answer_means_one_thing(given: dict[str, Any], verdict: str) -> None:
    reply = reply_of(REQUEST, answer(**given))

    assert (reply.uid, reply.verdict) == ("uid-1", verdict)
    assert reply.message.startswith(f"{given['status']} ")


def test_what_the_server_said_is_told_with_its_causes() -> None:
    body = {"message": BUDGET, "details": {"causes": [{"reason": "DisruptionBudget", "message": "x needs 1, has 1"}]}}

    assert (
        reply_of(REQUEST, Answer(status=429, body=json.dumps(body).encode())).message
        == f"429 {BUDGET} x needs 1, has 1"
    )


def test_an_eviction_names_the_very_pod_and_never_asks_for_no_grace() -> None:
    body = body_of(EvictionRequest(uid="uid-1", namespace="batch", name="job", grace_s=0))

    assert path_of(REQUEST) == "/api/v1/namespaces/batch/pods/job/eviction"
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "uid-1"}, "gracePeriodSeconds": 1}
    assert body_of(REQUEST)["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}


def test_a_name_that_is_none_leads_to_no_other_place() -> None:
    odd = EvictionRequest(uid="uid-1", namespace="a/b", name="../nodes?x=\u00e9 \r\n", grace_s=None)

    assert path_of(odd) == "/api/v1/namespaces/a%2Fb/pods/..%2Fnodes%3Fx%3D%C3%A9%20%0D%0A/eviction"
    assert event_path("a/b") == "/api/v1/namespaces/a%2Fb/events"


def outcome(**more: object) -> NodeOutcome:
    given: dict = {
        "node": "node-1", "boot_id": "b", "seq": 7, "command_id": "0123456789abcdef", "rule": "BEMemoryEvict",
        "target": "pod/uid-1", "origin": "guard", "result": "applied", "reason": "through the Eviction API",
        "policy_version": "v", "observed_ms": 1, "acted_ms": 1_767_323_045_678, "age_ms": 3, "bound": "formula",
        "terms": {"threshold_pct": 70, "used_pct": 75}, "pod": PodName(namespace="batch", name="job"),
    }  # fmt: skip
    return NodeOutcome(**given | more)


def test_an_event_keeps_within_what_the_api_takes_and_always_ends_with_its_command() -> None:
    event = event_of(outcome(pod=PodName(namespace="batch", name="j" * 253), reason="r" * 5_000, node="n" * 200))

    assert len(event["metadata"]["name"]) == 253
    assert event["metadata"]["name"].endswith("j.0123456789abcdef")
    assert len(event["message"]) <= NOTE_MAX
    assert event["message"].startswith("75% used, threshold 70%; rrr")
    assert event["message"].endswith(" 0123456789abcdef")
    assert len(event["reportingInstance"]) == 128
    assert event["eventTime"] == "2026-01-02T03:04:05.678000Z"
    assert event["lastTimestamp"] == event["firstTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["involvedObject"]["uid"] == "uid-1"


def test_of_a_rule_whose_terms_are_not_known_the_event_says_the_rest() -> None:
    assert event_of(outcome(terms={}))["message"] == (
        "through the Eviction API; decided by the guard, command 0123456789abcdef"
    )


class Server:
    """What an agent with patience makes of an API server's replies about ``uid-1``."""

    def __init__(self) -> None:
        self.patience, self.now_ns = Patience(random=lambda: 1.0), 0

    def replies(self, verdict: Any, retry_after_s: int | None = None, times: int = 1) -> None:
        for _ in range(times):
            reply = Reply(uid="uid-1", verdict=verdict, message="so", retry_after_s=retry_after_s)
            self.patience.replied(reply, self.now_ns)

    def many_reply(self, verdict: str) -> None:
        self.replies(verdict, times=5)

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * SECOND_NS // 1_000

    def trouble(self, verdict: str, times: int) -> None:
        """Each time until another pod may be asked for again: after how many seconds."""
        self.waits_s = []
        for _ in range(times):
            self.replies(verdict)
            began_ns = self.now_ns
            while self.patience.refuses("another", self.now_ns, asking=False):
                self.now_ns += SECOND_NS
            self.waits_s.append((self.now_ns - began_ns) // SECOND_NS)

    def state(self) -> dict[str, object]:
        refuses, now_ns = self.patience.refuses, self.now_ns
        return {
            "waited s": getattr(self, "waits_s", []),
            "refused of another": refuses("another", now_ns, asking=False),
            "refused of another while one is asked for": refuses("another", now_ns, asking=True),
            "refused of the pod": refuses("uid-1", now_ns, asking=False),
            "kept": self.patience.kept(now_ns),
            "why": self.patience.why,
        }


@each_story("eviction_api")
def test_how_long_a_server_is_left_alone(given: dict, steps: str, snapshot: SnapshotAssertion) -> None:
    assert story(Server(), steps) == snapshot
