"""What the API server's answers to an eviction mean, and how long it is then left alone."""

from __future__ import annotations

import json

import pytest

from slacktide.agents.http import Answer
from slacktide.agents.node.evict.eviction_api import (
    NOTE_MAX,
    EvictionRequest,
    Reply,
    body_of,
    event_of,
    event_path_of,
    path_of,
    reply_of,
)
from slacktide.agents.node.evict.restraint import BACKOFF_S_MAX, KEPT_S, Patience
from slacktide.schemas.outcome import NodeOutcome, PodName

SECOND_NS = 10**9
REQUEST = EvictionRequest(uid="uid-1", namespace="batch", name="job", grace_s=None)
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
RBAC = (
    'pods "job" is forbidden: User "a" cannot create resource "pods/eviction" in API group "" in the namespace "batch"'
)


def answer(status: int, message: str = "", *causes: str, retry_after_s: int | None = None) -> Answer:
    body = {"kind": "Status", "message": message, "details": {"causes": [{"reason": cause} for cause in causes]}}
    return Answer(status=status, body=json.dumps(body).encode(), retry_after_s=retry_after_s)


def denied(why: str) -> str:
    return f'admission webhook "validate-evictions.slacktide.io" denied the request: {why}'


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (answer(201), "evicted"),
        (answer(404, 'pods "job" not found'), "gone"),
        (answer(409, "the UID in the precondition (a) does not match the UID in record (b)."), "gone"),
        (answer(409, denied("it has the uid b, not a")), "gone"),
        (answer(404, denied("it is not there")), "gone"),
        (answer(409, "Operation cannot be fulfilled"), "kept"),
        (answer(429, BUDGET, "DisruptionBudget"), "kept"),
        (answer(429, BUDGET), "overloaded"),
        (Answer(status=429, body=b"Too many requests, please try again later.\n", retry_after_s=1), "overloaded"),
        (answer(500, "This pod has more than one PodDisruptionBudget"), "kept"),
        (answer(403, 'poddisruptionbudgets.policy "x" is forbidden: pdb disruptions allowed is negative'), "kept"),
        (answer(403, denied("it is of QoS class LS")), "kept"),
        (answer(403, RBAC), "forbidden"),
        (answer(401, "Unauthorized"), "forbidden"),
        (answer(422, "ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no node claim"), "forbidden"),
        (answer(400, "name in URL does not match name in Eviction object"), "kept"),
        (answer(500, 'Internal error occurred: failed calling webhook "x": connection refused'), "fenced"),
        (answer(503, denied("the pod could not be read")), "fenced"),
        (answer(503, "apiserver is shutting down"), "away"),
        (Answer(status=504, body=b"<html>gateway timeout</html>"), "away"),
        (Answer(status=500, body=b"[" * 100_000), "away"),
    ],
)
def test_each_answer_means_one_thing(given: Answer, verdict: str) -> None:
    reply = reply_of(REQUEST, given)

    assert (reply.uid, reply.verdict) == ("uid-1", verdict)
    assert reply.message.startswith(f"{given.status} ")


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
    assert event_path_of("a/b") == "/apis/events.k8s.io/v1/namespaces/a%2Fb/events"


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
    assert len(event["note"]) <= NOTE_MAX
    assert event["note"].startswith("75% used, threshold 70%; rrr")
    assert event["note"].endswith(" 0123456789abcdef")
    assert len(event["reportingInstance"]) == 128
    assert event["eventTime"] == "2026-01-02T03:04:05.678000Z"
    assert event["regarding"]["uid"] == "uid-1"


def test_of_a_rule_whose_terms_are_not_known_the_event_says_the_rest() -> None:
    assert event_of(outcome(terms={}))["note"] == (
        "through the Eviction API; decided by the guard, command 0123456789abcdef"
    )


def reply(verdict: str, **more: object) -> Reply:
    return Reply(**{"uid": "uid-1", "verdict": verdict, "message": "so"} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", ["forbidden", "fenced", "overloaded", "away"])
def test_a_server_in_trouble_is_left_alone_for_longer_and_longer(trouble: str) -> None:
    patience, now_ns, waits = Patience(random=lambda: 1.0), 0, []
    for _ in range(8):
        patience.replied(reply(trouble), now_ns)
        began_ns = now_ns
        while patience.refuses("another", now_ns, asking=False):
            now_ns += SECOND_NS
        waits.append((now_ns - began_ns) // SECOND_NS)

    assert waits == [1, 2, 4, 8, 16, BACKOFF_S_MAX, BACKOFF_S_MAX, BACKOFF_S_MAX]
    assert patience.refuses("another", now_ns, asking=True), "one at a time"
    patience.replied(reply("evicted"), now_ns)
    assert patience.refuses("another", now_ns, asking=True) == ""
    patience.replied(reply(trouble), now_ns)
    assert not patience.refuses("another", now_ns + SECOND_NS, asking=False), "and is trusted again"


def test_many_replies_of_one_moment_are_one_trouble() -> None:
    patience = Patience(random=lambda: 1.0)
    for _ in range(5):
        patience.replied(reply("away"), 0)

    assert patience.refuses("another", SECOND_NS - 1, asking=False)
    assert not patience.refuses("another", SECOND_NS, asking=False)


def test_a_server_that_says_when_to_come_back_is_asked_no_sooner() -> None:
    patience = Patience(random=lambda: 1.0)
    patience.replied(reply("overloaded", retry_after_s=7), 0)

    assert patience.refuses("another", 7 * SECOND_NS - 1, asking=False) == "the API server is overloaded: so"
    assert not patience.refuses("another", 7 * SECOND_NS, asking=False)


def test_a_pod_that_is_kept_is_no_trouble_of_anybody_elses() -> None:
    patience = Patience(random=lambda: 1.0)
    patience.replied(reply("kept"), 0)

    assert patience.kept(0) == ["uid-1"]
    assert patience.refuses("uid-1", 0, asking=False) == "the API server rejects the eviction: so"
    assert (patience.refuses("another", 0, asking=True), patience.why) == ("", "")
    assert patience.kept(KEPT_S * SECOND_NS) == []
    assert patience.refuses("uid-1", KEPT_S * SECOND_NS, asking=False) == ""
