"""``kubectl apply -k deploy/kubernetes`` on an empty cluster, and what is there afterwards."""

import json

import pytest

from testbed.cluster.api_server import ApiServer, KubectlError
from testbed.cluster.manifests import MANIFESTS

pytestmark = pytest.mark.cluster

PRIORITY_CLASSES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}
# As the Koordinator's quick start has it.
PROFILE = """\
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: batch-workload-profile}
spec:
  namespaceSelector: {matchLabels: {koordinator.sh/enable-colocation: "true"}}
  selector: {matchLabels: {app-type: batch}}
  qosClass: BE
  priorityClassName: koord-batch
  schedulerName: koord-scheduler
  labels: {koordinator.sh/mutated: "true"}
"""


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def versions(server: ApiServer) -> dict[str, int | None]:
    """The generation of all that was applied: it grows with each change of what is wanted."""
    there = json.loads(server.kubectl("get", "-k", str(MANIFESTS), "-o", "json"))["items"]
    return {f"{each['kind']}/{each['metadata']['name']}": each["metadata"].get("generation") for each in there}


def test_applying_twice_changes_nothing(applied: ApiServer) -> None:
    before = versions(applied)
    applied.kubectl("apply", "-k", str(MANIFESTS))

    assert len(before) > 30
    assert versions(applied) == before


def test_applying_again_leaves_the_authority_that_the_webhook_filled_in(applied: ApiServer) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/slacktide"
    webhooks = applied.get(path)["webhooks"]
    webhooks[0]["clientConfig"]["caBundle"] = "bm9uZQ=="
    applied.patch(path, {"webhooks": webhooks})
    applied.kubectl("apply", "-k", str(MANIFESTS))

    assert applied.get(path)["webhooks"][0]["clientConfig"]["caBundle"] == "bm9uZQ=="


def test_the_four_priority_classes_are_koordinators(applied: ApiServer) -> None:
    listed = [row for row in columns(applied.kubectl("get", "priorityclass")) if row[0].startswith("koord-")]
    told = applied.get("/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
    descriptions = {each["metadata"]["name"]: each["description"] for each in told}

    assert {row[0]: (int(row[1]), row[2]) for row in listed} == {
        name: (value, "false") for name, value in PRIORITY_CLASSES.items()
    }
    for name in PRIORITY_CLASSES:
        kind = name.removeprefix("koord-")
        assert descriptions[name] == f"This priority class should be used for {kind} service pods only."


def test_a_node_metric_is_listed_with_what_the_node_uses(applied: ApiServer) -> None:
    path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    applied.post(path, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n"}})
    use = {"resources": {"cpu": "138m", "memory": "1815637738"}}
    pod = {"namespace": "default", "name": "storage", "podUsage": {"resources": {"cpu": "300m", "memory": "17828Ki"}}}
    spread = {"duration": "5m0s", "usage": dict.fromkeys(("avg", "p50", "p90", "p95", "p99"), use)}
    node = {"nodeUsage": use, "systemUsage": use, "aggregatedNodeUsages": [spread]}
    status = {"updateTime": "2026-11-21T12:00:00Z", "nodeMetric": node, "podsMetric": [pod]}
    applied.patch(f"{path}/n/status", {"status": status})

    head, row = columns(applied.kubectl("get", "nodemetrics", "n"))
    assert head == ["NAME", "CPU", "MEMORY", "SYSTEM-CPU", "SYSTEM-MEMORY", "UPDATED"]
    assert row[:5] == ["n", "138m", "1815637738", "138m", "1815637738"]
    assert applied.get(f"{path}/n")["status"] == status


def test_a_node_metric_keeps_what_koordinators_own_agent_writes(applied: ApiServer) -> None:
    path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    applied.post(path, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "k"}})
    devices = [{"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "50"}}]
    status = {
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1"}, "devices": devices}},
        "podsMetric": [{"name": "a", "priority": "koord-batch", "qos": "BE", "extensions": {"x": {"y": 1}}}],
        "hostApplicationMetric": [{"name": "yarn", "priority": "koord-batch", "qos": "BE", "usage": {"resources": {}}}],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2"}}},
    }
    applied.patch(f"{path}/k/status", {"status": status})

    assert applied.get(f"{path}/k")["status"] == status


def test_the_guides_profile_is_taken_and_listed(applied: ApiServer) -> None:
    applied.apply(PROFILE)
    head, row = columns(applied.kubectl("get", "clustercolocationprofiles", "batch-workload-profile"))

    assert head == ["NAME", "QOS", "PRIORITY-CLASS", "SCHEDULER", "PROBABILITY", "AGE"]
    assert row[:4] == ["batch-workload-profile", "BE", "koord-batch", "koord-scheduler"]


def test_a_profile_may_have_every_field_that_koordinator_knows(applied: ApiServer) -> None:
    spec = {
        "selector": {"matchExpressions": [{"key": "a.b/c", "operator": "NotIn", "values": ["x", ""]}]},
        "probability": "30%",
        "koordinatorPriority": 1000,
        "annotations": {"koordinator.sh/intercepted": "any text, at all"},
        "labelKeysMapping": {"app": "koordinator.sh/app"},
        "annotationKeysMapping": {"one": "other"},
        "labelSuffixes": {"app": "-batch"},
        "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
    }
    group = "config.koordinator.sh/v1alpha1"
    metadata = {"name": "whole", "annotations": {"config.koordinator.sh/skip-update-resources": "true"}}
    path = f"/apis/{group}/clustercolocationprofiles"
    body = {"apiVersion": group, "kind": "ClusterColocationProfile", "metadata": metadata, "spec": spec}

    assert applied.post(path, body)["spec"] == spec


def selecting(key: str, operator: str, values: list[str] | None = None) -> dict[str, object]:
    expression = {"key": key, "operator": operator, **({} if values is None else {"values": values})}
    return {"selector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(selecting("a", "Equals", ["b"]), "spec.selector.matchExpressions[0].operator", id="operator"),
        pytest.param(selecting("a", "In"), "spec.selector.matchExpressions[0].values", id="In without values"),
        pytest.param(selecting("a", "In", []), "spec.selector.matchExpressions[0].values", id="In of nothing"),
        pytest.param(
            selecting("a", "Exists", ["b"]), "spec.selector.matchExpressions[0].values", id="Exists with values"
        ),
        pytest.param(selecting("a b", "Exists"), "spec.selector.matchExpressions[0].key", id="key"),
        pytest.param(selecting("a", "In", ["b b"]), "spec.selector.matchExpressions[0].values[0]", id="value"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"-a": "b"}}}, "spec.namespaceSelector.matchLabels", id="-a"
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"a": "b b"}}}, "spec.namespaceSelector.matchLabels.a", id="label"
        ),
        pytest.param({"probability": 101}, "spec.probability", id="probability 101"),
        pytest.param({"probability": -1}, "spec.probability", id="probability -1"),
        pytest.param({"probability": "130%"}, "spec.probability", id="probability 130%"),
        pytest.param({"probability": "often"}, "spec.probability", id="probability often"),
        pytest.param({"probability": "30"}, "spec.probability", id="probability 30 as a text"),
        pytest.param({"qosClass": "BestEffort"}, "spec.qosClass", id="QoS class"),
        pytest.param({"labels": {"a": "b b"}}, "spec.labels.a", id="a label that no pod could have"),
        pytest.param({"labelSuffixes": {"a": "-"}}, "spec.labelSuffixes.a", id="a suffix that no label could have"),
        pytest.param({"patch": "text"}, "spec.patch", id="patch"),
    ],
)
def test_a_profile_that_means_nothing_is_refused_when_applied(
    applied: ApiServer, spec: dict[str, object], field: str
) -> None:
    group = "config.koordinator.sh/v1alpha1"
    body = {"apiVersion": group, "kind": "ClusterColocationProfile", "metadata": {"name": "bad"}, "spec": spec}
    with pytest.raises(KubectlError) as refused:
        applied.apply(json.dumps(body))

    assert f"{field}: " in str(refused.value)
    assert "is invalid" in str(refused.value)
