"""Who may evict whom: each refusal says why and what to do."""

from typing import Any

import msgspec

from slacktide.agents.cluster.webhook.review import Eviction, Request, away, eviction_of, refusal
from testbed.scenarios import plain, scenarios

MINE = Eviction(namespace="batch-demo", name="worker", pod_uid="u1", node="node-1")


def pod(
    *, uid: str = "u1", node: str | None = "node-1", label: str | None = "BE", kube: str = "BestEffort"
) -> dict[str, Any]:
    labels = {} if label is None else {"koordinator.sh/qosClass": label}
    return {
        "metadata": {"uid": uid, "namespace": "batch-demo", "name": "worker", "labels": labels},
        "spec": {"containers": [{"name": "main"}]} | ({} if node is None else {"nodeName": node}),
        "status": {"phase": "Running", "qosClass": kube},
    }


def test_a_caller_learns_nothing_of_a_pod_that_he_did_not_name() -> None:
    """Anybody may reach the webhook: a guess at a name tells neither uid nor node, nor whether there is such a pod."""
    guess = Eviction(namespace="batch-demo", name="worker", pod_uid="guess", node="node-1")
    seen = [refusal(guess, None), refusal(guess, pod(uid="secret", node="node-9")), refusal(guess, pod(label="LS"))]
    placed = refusal(MINE, pod(node="node-9"))

    assert len({one.status for one in seen if one is not None}) == 1
    assert "node-9" not in placed.status.message
    assert "10.0.0.1" not in away(MINE, "https://10.0.0.1:6443 does not answer").status.message


@scenarios("webhook_fence")
def test_fence(case: dict[str, Any]) -> None:
    """Of a request: the eviction that it asks for. Of an eviction and the pod as it is: why it is refused."""
    if "request" in case:
        found = eviction_of(msgspec.convert(case["request"], Request))
    else:
        found = refusal(msgspec.convert(case["eviction"], Eviction), case["pod"])

    assert (found and [type(found).__name__, plain(found)]) == case["gives"]
