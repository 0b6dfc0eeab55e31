"""Node facts and pods from what kubectl prints: figured as Kubernetes does, refused with the field's path."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.kubernetes import Described, described
from testbed.scenarios import plain, scenarios

VECTORS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "vectors" / "pod_requests.jsonl").read_text().splitlines()
]


def read(items: list[dict[str, object]], node: str | None = None) -> Described:
    return described({"kind": "List", "items": items}, "nodes.yaml", node)


def a_node(name: str = "n", **metadata: object) -> dict[str, object]:
    return {"kind": "Node", "metadata": {"name": name, **metadata}, "status": {"capacity": {"cpu": 4, "memory": "8Gi"}}}


def a_pod(spec: dict[str, object] | None = None, name: str = "p", **more: object) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}", **more}, "spec": spec or {}}


def pod_of(spec: dict[str, object], **more: object) -> Pod:
    [pod] = read([a_node(), a_pod(spec, **more)]).pods
    return pod


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_pod_requests_are_those_of_kubernetes(case: dict[str, dict[str, object]]) -> None:
    """Sum of containers and sidecars, or the largest init container with the sidecars before it; plus overhead."""

    def amounts(given: dict[str, int] | None) -> dict[str, str]:
        units = {"cpu_milli": ("cpu", "m"), "memory_bytes": ("memory", "")}
        return {units[key][0]: f"{value}{units[key][1]}" for key, value in (given or {}).items()}

    def container(given: dict[str, object]) -> dict[str, object]:
        always = {"restartPolicy": "Always"} if given.get("restart_policy_always") else {}
        return {"resources": {"requests": amounts(given["requests"])}, **always}

    given, expected = case["input"], case["expected"]
    pod = pod_of(
        {
            "containers": [container(one) for one in given["containers"]],
            "initContainers": [container(one) for one in given["init_containers"]],
            "overhead": amounts(given["overhead"]),
        }
    )

    assert (pod.requests.cpu_milli or 0) == expected.get("cpu_milli", 0)
    assert (pod.requests.mem_bytes or 0) == expected.get("memory_bytes", 0)


def test_pods_without_a_node_are_the_machines_own() -> None:
    """Only where the list holds no Node at all: another's Node is a mistake, and said."""
    machine = {"capacity": {"cpu": "2", "memory": "1Gi"}}
    items: list[dict[str, object]] = [a_pod()]
    itself: dict[str, object] = {"kind": "Node", "metadata": {"name": "n"}, "status": machine}
    found = described({"kind": "List", "items": items}, "pods.yaml", "n", machine=lambda: itself)

    assert (found.facts.name, found.facts.capacity.cpu_milli, [pod.name for pod in found.pods]) == ("n", 2_000, ["p"])
    with pytest.raises(ConfigError, match="no Node n"):
        described({"kind": "List", "items": [a_node("other")]}, "pods.yaml", "n", machine=lambda: itself)
    with pytest.raises(ConfigError, match="no Node n"):
        described({"kind": "List", "items": items}, "pods.yaml", "n")


def test_a_node_may_come_alone() -> None:
    """As ``kubectl get node NAME -o yaml`` prints it: where the kubelet lists the pods, that is all there is to say."""
    assert described(a_node(), "node.yaml") == read([a_node()])
    with pytest.raises(ConfigError, match=r"node\.yaml: node\.status\.capacity\.cpu: many: accepted"):
        described(a_node() | {"status": {"capacity": {"cpu": "many", "memory": "1Gi"}}}, "node.yaml")


def test_findings_come_together_and_not_by_the_thousand() -> None:
    """A whole file of nonsense is told in twenty lines."""
    bad = [a_pod({"priority": "x"}, f"p{number}") for number in range(500)]
    with pytest.raises(ConfigError) as refused:
        read([a_node(), *bad])

    assert len(refused.value.findings) == 20


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("1Gi") | st.just("Always"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([
                "metadata", "name", "uid", "spec", "status", "containers", "initContainers", "resources", "requests",
                "limits", "cpu", "memory", "labels", "annotations", "capacity", "overhead", "priority", "nodeName",
                "node.koordinator.sh/reservation", "restartPolicy", "namespace", "phase",
            ]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(node=anything, pods=st.lists(anything, max_size=4))
def test_no_document_ends_the_reader(node: object, pods: list[object]) -> None:
    """Whatever is in the list, the answer is an inventory that can be sent, or a ConfigError."""

    def of_kind(kind: str, value: object) -> object:
        return {**value, "kind": kind} if isinstance(value, dict) else value

    items = [a_node(), of_kind("Node", node), *(of_kind("Pod", pod) for pod in pods)]
    with suppress(ConfigError):
        found = described({"kind": "List", "items": items}, "f", "n")
        assert revision_of(found.facts)
        assert revision_of(found.pods)


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    document = case["document"] if "document" in case else {"kind": "List", "items": case["items"]}
    try:
        found = described(document, "nodes.yaml", case.get("node"))
    except ConfigError as refused:
        return {"refused": str(refused)}
    for pod in found.pods:
        assert all(any(note.endswith(one) for note in found.notes) for one in pod.ignored), "a record says the same"
    pods = [msgspec.structs.replace(pod, ignored=[]) for pod in found.pods]
    return {"gives": {"facts": plain(found.facts), "pods": plain(pods), "notes": [*found.notes]}}


@scenarios("kubernetes")
def test_described(case: dict[str, Any]) -> None:
    """What kubectl prints, and the facts, pods and notes, or the refusal, that it comes to."""
    assert outcome(case) == {key: case[key] for key in ("gives", "refused") if key in case}
