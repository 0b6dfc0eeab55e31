"""Who may evict whom: each refusal says why and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from slacktide.agents.cluster.webhook.fence import BRIDGE, NODE_CLAIM, Eviction, Refusal, away, eviction_of, refusal
from slacktide.agents.cluster.webhook.review import Request, UserInfo

MINE = Eviction(namespace="batch-demo", name="worker", pod_uid="u1", node="node-1")
AGENT = "system:serviceaccount:slacktide-system:slacktide-agent"


def asked(nodes: list[str] | None = None, uid: object = "u1") -> Eviction | Refusal:
    extra = None if nodes is None else {NODE_CLAIM: nodes}
    body = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid is not None else {}
    user = UserInfo(username=AGENT, extra=extra)
    return eviction_of(Request(uid="7", namespace="batch-demo", name="worker", user_info=user, object=body))


def test_the_bridge_evicts_of_any_node_but_best_effort_and_by_uid_alone() -> None:
    def asks(uid: str | None, claim: str = "node-9") -> Eviction | Refusal:
        body = {} if uid is None else {"deleteOptions": {"preconditions": {"uid": uid}}}
        user = UserInfo(username=BRIDGE, extra={NODE_CLAIM: [claim]})
        return eviction_of(Request(uid="7", namespace="batch-demo", name="worker", user_info=user, object=body))

    eviction = asks("u1")
    assert eviction == Eviction(namespace="batch-demo", name="worker", pod_uid="u1", node=None)
    assert refusal(eviction, pod(node="node-2")) is None
    service, other = refusal(eviction, pod(label="LS")), refusal(eviction, pod(uid="u2"))
    assert (service and service.why, other and other.why) == ("not_best_effort", "other_uid")
    without = asks(None)
    assert isinstance(without, Refusal)
    assert without.why == "no_uid"


def pod(
    *, uid: str = "u1", node: str | None = "node-1", label: str | None = "BE", kube: str = "BestEffort"
) -> dict[str, Any]:
    labels = {} if label is None else {"koordinator.sh/qosClass": label}
    return {
        "metadata": {"uid": uid, "namespace": "batch-demo", "name": "worker", "labels": labels},
        "spec": {"containers": [{"name": "main"}]} | ({} if node is None else {"nodeName": node}),
        "status": {"phase": "Running", "qosClass": kube},
    }


def test_a_best_effort_pod_of_the_agents_own_node_may_go() -> None:
    assert asked(["node-1"]) == MINE
    assert refusal(MINE, pod()) is None
    assert refusal(MINE, pod(label=None)) is None, "the Kubernetes class stands for one that is not labelled"


@pytest.mark.parametrize("nodes", [None, [], [""], ["node-1", "node-2"]])
def test_a_token_without_a_node_evicts_nobody(nodes: list[str] | None) -> None:
    found = asked(nodes)

    assert isinstance(found, Refusal)
    assert (found.why, found.status.code) == ("no_node_claim", 403)
    assert "projected serviceAccountToken volume" in found.status.message


@pytest.mark.parametrize("uid", [None, "", 7])
def test_an_eviction_without_a_uid_is_refused(uid: object) -> None:
    found = asked(["node-1"], uid)

    assert isinstance(found, Refusal)
    assert found.why == "no_uid"
    assert "set it to the uid of the selected pod" in found.status.message


@pytest.mark.parametrize(
    ("seen", "why", "code", "said", "found"),
    [
        pytest.param(
            None, "pod_gone", 404, "does not exist; a new pod may have its name", "no pod has that name", id="gone"
        ),
        pytest.param(
            pod(uid="u2"),
            "other_uid",
            404,
            "does not exist; a new pod may have its name",
            "u2",
            id="another of its name",
        ),
        pytest.param(pod(node="node-2"), "other_node", 403, "is not on node node-1", "node-2", id="another node's"),
        pytest.param(pod(node=None), "other_node", 403, "is not on node node-1", "on no node yet", id="not on a node"),
        pytest.param(pod(label="LS"), "not_best_effort", 403, "is not of QoS class BE", "LS", id="LS by label"),
        pytest.param(
            pod(label=None, kube="Burstable"),
            "not_best_effort",
            403,
            "is not of QoS class BE",
            "LS",
            id="LS by its spec",
        ),
        pytest.param(pod(label="LSE"), "not_best_effort", 403, "is not of QoS class BE", "LSE", id="LSE"),
        pytest.param(pod(label="SYSTEM"), "not_best_effort", 403, "is not of QoS class BE", "SYSTEM", id="SYSTEM"),
        pytest.param(pod(label="be"), None, 0, "", "", id="a label that names no class leaves the Kubernetes class"),
        pytest.param(pod(kube="Odd"), "unreadable", 403, "cannot be decoded", "status.qosClass", id="unreadable"),
    ],
)
def test_the_pod_as_it_is_now_decides(
    seen: dict[str, Any] | None, why: str | None, code: int, said: str, found: str
) -> None:
    refused = refusal(MINE, seen)

    assert (refused and refused.why, refused.status.code if refused else 0) == (why, code)
    assert said in (refused.status.message if refused else "")
    assert found in (refused.found if refused else "")


def test_a_caller_learns_nothing_of_a_pod_that_he_did_not_name() -> None:
    """Anybody may reach the webhook: a guess at a name tells neither uid nor node, nor whether there is such a pod."""
    guess = Eviction(namespace="batch-demo", name="worker", pod_uid="guess", node="node-1")
    seen = [refusal(guess, None), refusal(guess, pod(uid="secret", node="node-9")), refusal(guess, pod(label="LS"))]
    placed = refusal(MINE, pod(node="node-9"))

    assert len({one.status for one in seen if one is not None}) == 1
    assert placed is not None
    assert "node-9" not in placed.status.message
    assert "10.0.0.1" not in away(MINE, "https://10.0.0.1:6443 does not answer").status.message
