"""Node facts and pods from what kubectl prints: figured as Kubernetes does, refused with the field's path."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.inventory import Container, Pod, Resources, revision_of
from slacktide.schemas.kubernetes import Described, described

VECTORS = [
    json.loads(line) for line in (Path(__file__).parents[1] / "vectors" / "pod_requests.jsonl").read_text().splitlines()
]

PRINTED = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: node-1
    uid: 5a1c
    creationTimestamp: "2026-01-02T03:04:05Z"
    labels: {kubernetes.io/hostname: node-1, node.koordinator.sh/cpu-reclaim-ratio: "0.7"}
    annotations:
      node.koordinator.sh/reservation: '{"resources":{"cpu":"500m","memory":"1Gi"},"reservedCPUs":"0-1"}'
      volumes.kubernetes.io/controller-managed-attach-detach: "true"
  spec: {podCIDR: 10.0.0.0/24}
  status:
    capacity: {cpu: "8", memory: 32611012Ki, pods: "110", ephemeral-storage: 100Gi, kubernetes.io/batch-cpu: "4541"}
    allocatable: {cpu: 7800m, memory: 28629700Ki, pods: "110"}
- apiVersion: v1
  kind: Pod
  metadata:
    name: spark-1
    namespace: batch-demo
    uid: 0f0f
    labels:
      koordinator.sh/qosClass: BE
      koordinator.sh/priority-class: koord-batch
      koordinator.sh/priority: "5300"
  spec:
    nodeName: node-1
    priority: 5000
    containers:
    - name: main
      image: spark
      resources:
        requests: {kubernetes.io/batch-cpu: "2000", kubernetes.io/batch-memory: 4Gi}
        limits: {kubernetes.io/batch-cpu: "2000", kubernetes.io/batch-memory: 4Gi}
  status: {phase: Running, qosClass: BestEffort}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: default, uid: 1a1a}
  spec:
    nodeName: node-2
    containers: [{name: main, resources: {requests: {cpu: many}}}]
- apiVersion: v1
  kind: Pod
  metadata:
    name: kube-proxy-node-1
    namespace: kube-system
    uid: mirror-uid
    annotations: {kubernetes.io/config.hash: 9c9c, kubernetes.io/config.mirror: 9c9c}
  spec:
    nodeName: node-1
    priority: 2000001000
    containers: [{name: main, resources: {requests: {cpu: 100m}}}]
  status: {phase: Running, qosClass: Burstable}
"""


def read(items: list[dict[str, object]], node: str | None = None) -> Described:
    return described({"kind": "List", "items": items}, "nodes.yaml", node)


def a_node(name: str = "n", **metadata: object) -> dict[str, object]:
    return {
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"capacity": {"cpu": 4, "memory": "8Gi"}},
    }


def a_pod(spec: dict[str, object] | None = None, name: str = "p", **more: object) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}", **more}, "spec": spec or {}}


@pytest.mark.parametrize(
    ("said", "uid"),
    [
        ({"kubernetes.io/config.mirror": "9c9c"}, "9c9c"),
        ({"kubernetes.io/config.source": "file"}, "9c9c"),
        ({"kubernetes.io/config.source": "api"}, "uid-p"),
        ({}, "uid-p"),
    ],
    ids=["a mirror", "a kubelet's own", "listed by a kubelet", "as anybody may write it"],
)
def test_a_pod_that_is_not_static_has_its_own_uid_whatever_it_is_annotated_with(said: dict[str, str], uid: str) -> None:
    """Else all pods of a template with such an annotation were one, and none would be found on its node."""
    assert pod_of({}, annotations=said | {"kubernetes.io/config.hash": "9c9c"}).uid == uid


def pod_of(spec: dict[str, object], **more: object) -> Pod:
    [pod] = read([a_node(), a_pod(spec, **more)]).pods
    return pod


def test_what_kubectl_prints_is_understood() -> None:
    """Facts and the pods of this node; another node's pods are not even looked at."""
    found = described(yaml.safe_load(PRINTED), "nodes.yaml")

    assert found.facts.name == "node-1"
    assert found.facts.capacity == Resources(cpu_milli=8000, mem_bytes=32611012 * 1024, batch_cpu_milli=4541)
    assert found.facts.allocatable == Resources(cpu_milli=7800, mem_bytes=28629700 * 1024)
    assert (found.facts.reserved, found.facts.reserved_cpus) == (Resources(cpu_milli=500, mem_bytes=1024**3), "0-1")
    assert found.facts.labels["node.koordinator.sh/cpu-reclaim-ratio"] == "0.7"
    assert list(found.facts.annotations) == ["node.koordinator.sh/reservation"]
    assert found.pods == [
        Pod(
            uid="0f0f",
            namespace="batch-demo",
            name="spark-1",
            phase="Running",
            qos_label="BE",
            priority_class_label="koord-batch",
            sub_priority=5300,
            priority=5000,
            kube_qos="BestEffort",
            requests=Resources(batch_cpu_milli=2000, batch_mem_bytes=4 * 1024**3),
            limits=Resources(batch_cpu_milli=2000, batch_mem_bytes=4 * 1024**3),
            containers=[
                Container(
                    name="main",
                    requests=Resources(batch_cpu_milli=2000, batch_mem_bytes=4 * 1024**3),
                    limits=Resources(batch_cpu_milli=2000, batch_mem_bytes=4 * 1024**3),
                )
            ],
        ),
        Pod(
            uid="9c9c",
            namespace="kube-system",
            name="kube-proxy-node-1",
            priority=2_000_001_000,
            kube_qos="Burstable",
            requests=Resources(cpu_milli=100),
            containers=[Container(name="main", requests=Resources(cpu_milli=100))],
        ),
    ]
    assert found.notes == ()


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


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, object]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        pytest.param({"containers": [{}]}, "BestEffort", id="nothing asked for"),
        pytest.param({"containers": [resources({"cpu": "0"})]}, "BestEffort", id="zero is nothing"),
        pytest.param(
            {"containers": [resources({"kubernetes.io/batch-cpu": "2000"})]}, "BestEffort", id="batch resources only"
        ),
        pytest.param({"containers": [resources(BOTH, BOTH)]}, "Guaranteed", id="limits equal requests"),
        pytest.param({"containers": [resources(None, BOTH)]}, "Guaranteed", id="requests come from limits"),
        pytest.param({"containers": [resources({"cpu": "1000m", "memory": "1024Mi"}, BOTH)]}, "Guaranteed", id="units"),
        pytest.param({"containers": [resources(BOTH)]}, "Burstable", id="no limits"),
        pytest.param({"containers": [resources(None, {"cpu": "1"})]}, "Burstable", id="one limit only"),
        pytest.param({"containers": [resources(BOTH, BOTH), {}]}, "Burstable", id="a container without"),
        pytest.param({"containers": [{}, resources({"cpu": "1"})]}, "Burstable", id="a container with a request"),
        pytest.param(
            {"containers": [resources(BOTH, BOTH)], "initContainers": [{}]}, "Burstable", id="an init container without"
        ),
        pytest.param({"containers": [{}], **resources(BOTH, BOTH)}, "Guaranteed", id="the pod as a whole"),
        pytest.param({}, "BestEffort", id="no spec"),
    ],
)
def test_qos_class_is_derived_where_status_lacks_it(spec: dict[str, object], qos: str) -> None:
    """As Kubernetes does it, over CPU and memory of all containers."""
    assert pod_of(spec).kube_qos == qos


def test_status_says_the_qos_class_where_it_is_there() -> None:
    """What the cluster decided stands above what the spec suggests."""
    pod = a_pod({"containers": [resources(BOTH, BOTH)]})
    [found] = read([a_node(), pod | {"status": {"qosClass": "Burstable", "phase": "Pending"}}]).pods

    assert (found.kube_qos, found.phase) == ("Burstable", "Pending")


def test_both_spellings_of_batch_resources_are_read() -> None:
    """The older name counts, too; where both are given the newer wins."""
    old = resources({"koordinator.sh/batch-cpu": "1k", "koordinator.sh/mid-memory": "1Mi"})
    both = resources({"koordinator.sh/batch-cpu": "1", "kubernetes.io/batch-cpu": "2"})

    assert pod_of({"containers": [old]}).requests == Resources(batch_cpu_milli=1000, mid_mem_bytes=1024**2)
    assert pod_of({"containers": [both]}).requests == Resources(batch_cpu_milli=2)


def test_pod_level_resources_stand_above_its_containers() -> None:
    """And the overhead comes on top, for limits only where there is one."""
    pod = pod_of(
        {
            "containers": [resources({"cpu": "3", "memory": "1Gi"})],
            **resources({"cpu": "2"}, {"cpu": "4"}),
            "overhead": {"cpu": "250m", "memory": "10"},
        }
    )

    assert pod.requests == Resources(cpu_milli=2250, mem_bytes=1024**3 + 10)
    assert pod.limits == Resources(cpu_milli=4250)


def resized(status: dict[str, object]) -> Pod:
    """A pod whose spec asks for 4 CPUs and 4Gi, where its kubelet reports that."""
    main = {
        "name": "main",
        "resources": {"requests": {"cpu": 4, "memory": "4Gi"}, "limits": {"cpu": 4, "memory": "4Gi"}},
    }
    item = {"kind": "Pod", "metadata": {"name": "web", "uid": "a"}, "spec": {"containers": [main]}, "status": status}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": 8, "memory": "32Gi"}}}
    [pod] = described({"kind": "List", "items": [node, item]}, "nodes.yaml", "n").pods
    return pod


def test_a_pod_holds_what_its_kubelet_allocated_and_not_what_a_deferred_resize_wants() -> None:
    allocated = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "1Gi"}}
    pod = resized({"containerStatuses": [{"name": "main", "resources": allocated}]})

    assert pod.requests == Resources(cpu_milli=1_000, mem_bytes=1 << 30)
    assert pod.limits == Resources(cpu_milli=2_000, mem_bytes=1 << 30)
    assert (pod.containers[0].requests, pod.containers[0].limits) == (pod.requests, pod.limits)


@pytest.mark.parametrize("statuses", [[], [{"name": "main"}], [{"name": "main", "resources": {}}], [{"name": "other"}]])
def test_a_kubelet_that_reports_no_allocation_leaves_what_the_spec_asks_for(statuses: list[object]) -> None:
    pod = resized({"containerStatuses": statuses})

    assert pod.requests == pod.limits == Resources(cpu_milli=4_000, mem_bytes=4 << 30)


def test_one_node_of_several_is_picked_by_name() -> None:
    """Pods without a node's name belong to whichever node is asked for."""
    items = [a_node("a"), a_node("b"), a_pod({"nodeName": "a"}, "on-a"), a_pod({"nodeName": "b"}, "on-b"), a_pod()]

    assert [pod.name for pod in read(items, "b").pods] == ["on-b", "p"]
    with pytest.raises(ConfigError, match="2 Nodes: accepted: one Node, or a node name"):
        read(items)
    with pytest.raises(ConfigError, match="no Node c"):
        read(items, "c")


@pytest.mark.parametrize(
    ("items", "said"),
    [
        pytest.param(
            [a_node(), a_pod(), a_pod({"containers": [{}, resources({"cpu": "1 core"})]}, "q")],
            "nodes.yaml: items[2].spec.containers[1].resources.requests.cpu: 1 core: accepted: a Kubernetes quantity",
            id="a quantity",
        ),
        pytest.param(
            [a_node(), a_pod({"containers": [resources(None, {"memory": "-1"})]})],
            "items[1].spec.containers[0].resources.limits.memory: -1:",
            id="a negative amount",
        ),
        pytest.param(
            [a_node(), a_pod({"containers": [resources({"memory": "9999E"})]})], "9999E", id="an amount beyond reason"
        ),
        pytest.param(
            [a_node(), a_pod({"priority": "high"})], "items[1].spec.priority: high: accepted: a whole", id="int"
        ),
        pytest.param([a_node(), a_pod({"priority": True})], "items[1].spec.priority: True", id="a truth is no number"),
        pytest.param(
            [a_node(), a_pod({"containers": {}})], "items[1].spec.containers: {}: accepted: a list", id="a map"
        ),
        pytest.param(
            [a_node(), a_pod({"containers": [7]})], "items[1].spec.containers[0]: 7: accepted: a map", id="a 7"
        ),
        pytest.param([a_node(), a_pod(uid="")], "items[1].metadata.uid: : accepted: a text", id="no uid"),
        pytest.param(
            [a_node(), a_pod(), a_pod()], "items[].metadata.uid: uid-p: accepted: each once", id="one uid twice"
        ),
        pytest.param([a_node(), a_node()], "items[].metadata.name: n: accepted: each once", id="one node twice"),
        pytest.param(
            [a_node(), a_pod(labels={"a": 1})], 'items[1].metadata.labels["a"]: 1: accepted: a text', id="a label"
        ),
        pytest.param(
            [a_node(), a_pod() | {"status": {"qosClass": "Best"}}], "items[1].status.qosClass: Best:", id="a qos class"
        ),
        pytest.param([a_node(), "pod"], "items[1]: pod: accepted: a map", id="an item"),
        pytest.param([a_node() | {"status": {}}], "items[0].status.capacity.cpu", id="no capacity"),
        pytest.param([], "items: 0 Nodes", id="nothing"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(items: list[dict[str, object]], said: str) -> None:
    """File, path, value, what is accepted."""
    with pytest.raises(ConfigError) as refused:
        read(items)

    assert said in str(refused.value)


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


@pytest.mark.parametrize("document", [None, [], "text", {}, {"kind": "Node"}, {"kind": "List", "items": {}}])
def test_what_is_no_list_is_refused(document: object) -> None:
    """Anything but a List of items says what it should be."""
    with pytest.raises(ConfigError, match="accepted:"):
        described(document, "nodes.yaml")


def test_findings_come_together_and_not_by_the_thousand() -> None:
    """A whole file of nonsense is told in twenty lines."""
    bad = [a_pod({"priority": "x"}, f"p{number}") for number in range(500)]
    with pytest.raises(ConfigError) as refused:
        read([a_node(), *bad])

    assert len(refused.value.findings) == 20


@pytest.mark.parametrize(
    "annotation",
    ["{", "[]", '{"resources": {"cpu": "x"}}', '{"reservedCPUs": 3}', '{"resources": 3}', '{"resources": {"cpu": -1}}'],
)
def test_reservation_that_cannot_be_read_is_ignored_and_said(annotation: str) -> None:
    """As the reference ignores it; the rest of the node counts."""
    found = read([a_node(annotations={"node.koordinator.sh/reservation": annotation})])

    assert (found.facts.reserved, found.facts.reserved_cpus) == (Resources(), "")
    assert "ignored" in found.notes[0]
    assert 'items[0].metadata.annotations["node.koordinator.sh/reservation"]' in found.notes[0]


def test_rules_count_by_what_a_node_can_allocate_before_it_was_amplified() -> None:
    """Batch resources, which the annotation does not have, are as the status shows them."""
    raw = '{"cpu": "3", "memory": "6Gi", "kubernetes.io/batch-cpu": "9"}'
    plain = read([a_node()]).facts
    facts = read([a_node(annotations={"node.koordinator.sh/raw-allocatable": raw})]).facts

    assert (facts.allocatable.cpu_milli, facts.allocatable.mem_bytes) == (3_000, 6 << 30)
    assert facts.allocatable.batch_cpu_milli == plain.allocatable.batch_cpu_milli
    assert facts.capacity == plain.capacity


@pytest.mark.parametrize("annotation", ["{", "[]", '{"cpu": "x"}', '{"memory": -1}'])
def test_raw_allocatable_that_cannot_be_read_is_ignored_with_a_note(annotation: str) -> None:
    found = read([a_node(annotations={"node.koordinator.sh/raw-allocatable": annotation})])

    assert found.facts.allocatable == read([a_node()]).facts.allocatable
    assert "raw-allocatable" in found.notes[0]


def test_a_pod_has_the_cpus_that_the_scheduler_bound_it_to() -> None:
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-3", "numaNodeResources": []}'}

    assert pod_of({}, annotations=status).cpuset == "0-3"
    assert pod_of({}).cpuset == ""


@pytest.mark.parametrize("annotation", ["{", "[]", '{"cpuset": 3}', "null"])
def test_cpus_that_cannot_be_read_are_ignored_and_said(annotation: str) -> None:
    found = read([a_node(), a_pod(annotations={"scheduling.koordinator.sh/resource-status": annotation})])

    assert found.pods[0].cpuset == ""
    assert 'metadata.annotations["scheduling.koordinator.sh/resource-status"]' in found.notes[0]
    assert "ignored; accepted: JSON" in found.notes[0]


def test_containers_are_those_that_last_with_their_ids() -> None:
    """Sidecars too, other init containers not; an id is told without the runtime's name, once there is one."""
    spec = {
        "containers": [
            {"name": "main", **resources({"cpu": "1"}, {"memory": "1Gi"})},
            {"name": "starting"},
            {"name": "new"},
        ],
        "initContainers": [{"name": "setup"}, {"name": "log", "restartPolicy": "Always"}],
    }
    status = {
        "containerStatuses": [
            {"name": "main", "containerID": "containerd://0a1b", "ready": True},
            {"name": "starting", "containerID": "", "state": {"waiting": {"reason": "ContainerCreating"}}},
        ],
        "initContainerStatuses": [
            {"name": "setup", "containerID": "cri-o://ffff"},
            {"name": "log", "containerID": "cri-o://2c3d"},
        ],
    }
    found = read([a_node(), a_pod(spec) | {"status": status}])

    assert found.pods[0].containers == [
        Container(
            name="main",
            id="0a1b",
            requests=Resources(cpu_milli=1000, mem_bytes=1024**3),
            limits=Resources(mem_bytes=1024**3),
        ),
        Container(name="starting"),
        Container(name="new"),
        Container(name="log", id="2c3d"),
    ]
    assert found.notes == ()


@pytest.mark.parametrize("written", ["0a1b", "docker://", "docker://../../cpu", "docker://a/b", 7])
def test_a_container_id_that_could_name_no_group_is_ignored_and_said(written: object) -> None:
    pod = a_pod({"containers": [{"name": "main"}]}) | {
        "status": {"containerStatuses": [{"name": "main", "containerID": written}]}
    }
    found = read([a_node(), pod])

    assert found.pods[0].containers == [Container(name="main")]
    assert f"items[1].status.containerStatuses[0].containerID: {written!r}: ignored" in found.notes[0]


def test_how_a_pod_wants_to_burst_and_to_be_evicted() -> None:
    wishes = pod_of(
        {"terminationGracePeriodSeconds": 5},
        labels={"koordinator.sh/eviction-enabled": "true"},
        annotations={
            "koordinator.sh/cpuBurst": '{"policy": "auto"}',
            "koordinator.sh/eviction-priority": "-3",
            "koordinator.sh/eviction-policy": '["BEMemoryEvict","MemoryEvict"]',
        },
    )

    assert (wishes.cpu_burst, wishes.grace_s) == ('{"policy": "auto"}', 5)
    assert (wishes.eviction_enabled, wishes.eviction_priority) == (True, -3)
    assert wishes.eviction_features == ["BEMemoryEvict", "MemoryEvict"]


def test_a_pod_that_wishes_nothing() -> None:
    pod = pod_of({}, labels={"koordinator.sh/eviction-enabled": "True"})

    assert (pod.cpu_burst, pod.grace_s, pod.containers) == (None, 30, [])
    assert (pod.eviction_enabled, pod.eviction_priority, pod.eviction_features) == (False, 0, None)


@pytest.mark.parametrize("written", ["BEMemoryEvict", "", "{}", "[1]", "null", "[]"])
def test_a_pod_whose_eviction_policy_names_no_feature_is_evicted_by_none(written: str) -> None:
    """As the reference has it: one that cannot be read guards the pod."""
    found = read([a_node(), a_pod(annotations={"koordinator.sh/eviction-policy": written})])

    assert found.pods[0].eviction_features == []
    assert ["no feature may evict the pod" in note for note in found.notes] == [True] * (written not in ("null", "[]"))


@pytest.mark.parametrize("written", ["high", "1.5", "2147483648", "1_000", " 1"])
def test_an_eviction_priority_that_cannot_be_read_is_0_and_said(written: str) -> None:
    found = read([a_node(), a_pod(annotations={"koordinator.sh/eviction-priority": written})])

    assert found.pods[0].eviction_priority == 0
    assert f'annotations["koordinator.sh/eviction-priority"]: {written!r}: ignored' in found.notes[0]


@pytest.mark.parametrize("written", [-1, "30s", True])
def test_a_grace_period_that_cannot_be_read_is_30_s_and_said(written: object) -> None:
    found = read([a_node(), a_pod({"terminationGracePeriodSeconds": written})])

    assert found.pods[0].grace_s == 30
    assert "items[1].spec.terminationGracePeriodSeconds" in found.notes[0]


def test_other_kinds_are_not_read_and_said() -> None:
    """A list may hold more than nodes and pods."""
    found = read([a_node(), {"kind": "Service", "metadata": 7}, a_pod(labels={"koordinator.sh/priority": "high"})])

    assert [note.split(": ", 1)[1] for note in found.notes] == [
        "items[2].metadata.labels[\"koordinator.sh/priority\"]: 'high': ignored; accepted: a whole number of 64 bits",
        "items of kind Service are not read",
    ]


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
