"""``slacktide doctor --cluster`` on a real API server: what of a cluster stands in the way, and what to do."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from slacktide.deploy.cli.doctor import cluster_facts
from slacktide.deploy.cli.doctor.cluster_checks import EXAMPLE_CPU_MILLI, Kubelet, preflight_findings
from slacktide.deploy.cli.main import cli
from slacktide.schemas.topics import TOPICS
from slacktide.schemas.units import cpu_milli
from slacktide.streams.kafka import describe_topics
from testbed.brokers import KafkaBroker, running
from testbed.cluster.api_server import ApiServer, RefusedError
from testbed.cluster.manifests import MANIFESTS, SYSTEM
from testbed.cluster.pki import Pki
from testbed.cluster.quotas import LIMITED, in_force
from testbed.kubelet import KubeletServer

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CRITICAL = {"priorityClassName": "system-node-critical"}
REQUESTS = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}]}
SCOPED = {
    "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["other"]}]}
}


def doctor(kubeconfig: Path, *more: str) -> dict[str, Json]:
    where = {"KUBECONFIG": str(kubeconfig)}
    result = CliRunner().invoke(cli, ["doctor", "--output", "json", "--cluster", *more], env=where)
    return {one["check"].removeprefix("cluster."): one for one in json.loads(result.stdout)["checks"]}


def verdicts(checks: dict[str, Json]) -> dict[str, str]:
    return {name: one["verdict"] for name, one in checks.items()}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A cluster of its own."""
    with running(ApiServer) as api:
        yield api


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[ApiServer]:
    """A cluster whose critical PriorityClasses need a quota."""
    file = tmp_path / "admission.json"
    file.write_text(json.dumps(LIMITED))

    class Limited(ApiServer):
        API_FLAGS = {**ApiServer.API_FLAGS, "admission-control-config-file": str(file)}

    with running(Limited) as api:
        yield api


def quota(server: ApiServer, name: str, hard: Json, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    server.post("/api/v1/namespaces/default/resourcequotas", body)


def test_of_an_empty_cluster_nothing_is_advised(server: ApiServer) -> None:
    assert set(verdicts(doctor(server.kubeconfig)).values()) == {"ok"}


def test_a_webhook_that_requires_a_certificate_which_no_api_server_presents_fails(server: ApiServer) -> None:
    server.kubectl("create", "namespace", SYSTEM)
    held = {"name": "main", "image": "none", "resources": REQUESTS["containers"][0]["resources"]}
    asks = {"command": ["slacktide", "webhook"], "args": ["--client-ca=/etc/slacktide/client-ca/ca.crt"]}
    labels = {"app.kubernetes.io/component": "webhook"}
    server.pod(SYSTEM, "webhook", node=server.node(), labels=labels, spec={"containers": [held | asks]})
    unseen = doctor(server.kubeconfig)["webhook-clients"]
    flags = {"command": ["kube-apiserver", "--secure-port=6443"]}
    server.pod(
        "kube-system", "kube-apiserver-a", labels={"component": "kube-apiserver"}, spec={"containers": [held | flags]}
    )
    seen = doctor(server.kubeconfig)["webhook-clients"]

    assert (unseen["verdict"], unseen["found"]) == ("warning", "required; API servers are not visible")
    assert (seen["verdict"], seen["found"].rpartition(": ")[2]) == ("failed", "kube-apiserver-a")


def test_critical_pods_without_requests_are_named_with_what_agents_do_beside_them(server: ApiServer) -> None:
    server.pod("kube-system", "kube-proxy-1", spec=CRITICAL)
    server.pod("kube-system", "kube-dns-1", spec=CRITICAL | REQUESTS)
    server.pod("default", "job")
    told = doctor(server.kubeconfig)["critical-pods"]

    assert (told["verdict"], told["found"]) == ("warning", "without requests: kube-system/kube-proxy-1")
    assert "must limit the other pods one by one" in told["advice"]
    assert "--requests=cpu=10m" in told["advice"]


def test_quotas_that_refuse_batch_pods_are_named_and_no_others(server: ApiServer) -> None:
    quota(server, "cpu", {"requests.cpu": "4", "pods": "10"})
    quota(server, "limits", {"limits.memory": "4Gi"})
    quota(server, "count", {"pods": "10"})
    quota(server, "services", {"requests.cpu": "4"}, scopes=["NotBestEffort"])
    quota(server, "others", {"requests.cpu": "4"}, **SCOPED)
    told = doctor(server.kubeconfig)["batch-quota"]

    assert (told["verdict"], told["found"]) == ("warning", "ResourceQuota default/cpu, default/limits")
    assert "must specify requests.cpu" in told["advice"]
    assert "scopes: [NotBestEffort]" in told["advice"]


def test_quotas_for_free_are_named_for_they_have_no_effect(server: ApiServer) -> None:
    annotations = {"quota.slacktide.io/free-cpu": "1", "quota.slacktide.io/batch-cpu": "1"}
    server.post("/api/v1/namespaces", {"metadata": {"name": "team", "annotations": annotations}})
    told = doctor(server.kubeconfig)["free-quota"]

    assert (told["verdict"], told["found"]) == ("warning", "without effect: team quota.slacktide.io/free-cpu")


def bridge_account(server: ApiServer) -> None:
    """What of an installation the preflight knows it by."""
    server.post("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    server.post(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": "slacktide-bridge"}})


def test_nodes_without_a_ready_agent_are_named_with_the_reason(server: ApiServer) -> None:
    server.post("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    labels = {"app.kubernetes.io/name": "slacktide", "app.kubernetes.io/component": "agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "agent", "image": "none"}]}}
    sets = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets"
    spec = {"selector": {"matchLabels": labels}, "template": template}
    server.post(sets, {"metadata": {"name": "slacktide-agent"}, "spec": spec})
    counts = {"currentNumberScheduled": 3, "desiredNumberScheduled": 4, "numberMisscheduled": 0, "numberReady": 1}
    server.patch(f"{sets}/slacktide-agent/status", {"status": counts})
    for node in "abcd":
        server.node(node)
    for node in "ab":
        server.pod(SYSTEM, f"agent-{node}", node=node, labels=labels)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    server.pod(SYSTEM, "agent-c", labels=labels, spec=template["spec"] | {"affinity": {"nodeAffinity": required}})
    again = {"name": "agent", "image": "none", "imageID": "", "ready": False, "restartCount": 5}
    again |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}
    full = {"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available: 1 Insufficient cpu."}
    crashed = {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [again]}
    for pod, status in (("agent-b", crashed), ("agent-c", {"conditions": [full]})):
        server.patch(f"/api/v1/namespaces/{SYSTEM}/pods/{pod}/status", {"status": status})
    told = doctor(server.kubeconfig)["agents"]

    assert (told["verdict"], told["found"].split(", ", 1)[0]) == ("failed", "b: CrashLoopBackOff")
    assert "c: not scheduled: 0/4 nodes are available: 1 Insufficient cpu." in told["found"]
    assert "d: no pod" in told["found"]
    assert "agents" not in doctor(server.kubeconfig, "--preflight"), "an upgrade may repair it"


def test_an_invalid_policy_is_named_with_its_field_value_and_range(server: ApiServer) -> None:
    server.post("/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
    data = {"resource-threshold-config": json.dumps({"clusterStrategy": {"memoryEvictThresholdPercent": 170}})}
    body = {"metadata": {"name": "slo-controller-config"}, "data": data}
    server.post("/api/v1/namespaces/koordinator-system/configmaps", body)
    told = doctor(server.kubeconfig)["policy"]

    assert told["verdict"] == "failed"
    assert told["found"].startswith("policy refused since 20")
    assert "memoryEvictThresholdPercent: 170: accepted: a whole number from 0 to 100" in told["found"]
    assert told["found"].endswith("; the last valid version stays in force")


def test_where_critical_classes_need_a_quota_an_installation_without_it_fails(limited: ApiServer) -> None:
    before = doctor(limited.kubeconfig)["critical-quota"]
    bridge_account(limited)
    without = doctor(limited.kubeconfig)["critical-quota"]
    limited.kubectl("apply", "-f", str(Path("deploy/kubernetes/base/critical-pods-quota.yaml").absolute()))
    in_force(limited, SYSTEM, "slacktide-critical-pods")
    after = doctor(limited.kubeconfig)["critical-quota"]

    assert (before["verdict"], without["verdict"], after["verdict"]) == ("ok", "failed", "ok")
    assert before["found"] == "the installation creates ResourceQuota slacktide-critical-pods"
    assert "agent, bridge and webhook cannot be created" in without["advice"]


def test_an_installation_without_that_quota_is_fine_where_critical_classes_need_none(server: ApiServer) -> None:
    bridge_account(server)

    assert doctor(server.kubeconfig)["critical-quota"]["found"] == "accepted without a quota"


def test_who_may_not_look_is_told_which_right_it_takes(server: ApiServer) -> None:
    told = doctor(server.account("default", "nobody").kubeconfig)

    assert {name for name, verdict in verdicts(told).items() if verdict == "ok"} == {"version", "kube-scheduler"}
    assert "failed" not in verdicts(told).values()
    assert told["batch-quota"]["advice"] == "use a kubeconfig with the right to list resourcequotas"
    assert "403" in told["critical-pods"]["found"]


@contextmanager
def kubelet(server: ApiServer, signed: Path, key: Path) -> Iterator[int]:
    """One that shows this certificate; its port."""
    shown = SimpleNamespace(server=signed, server_key=key, ca=server.ca)
    answering = KubeletServer(shown)
    try:
        yield int(answering.url.rpartition(":")[2])
    finally:
        answering.close()


def node(server: ApiServer, name: str, port: int, cpus: str = "8", version: str = "v1.34.4", **labels: str) -> None:
    info = dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion"), "-")
    info |= dict.fromkeys(("containerRuntimeVersion", "operatingSystem", "architecture"), "-")
    size = {"cpu": cpus, "memory": "16Gi", "pods": "110"}
    status = {
        "capacity": size,
        "allocatable": size,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": info | {"kubeletVersion": version},
    }
    server.node(name, status, labels=labels)


@pytest.fixture(scope="module")
def crowded() -> Iterator[ApiServer]:
    """A cluster in which much is amiss."""
    with running(ApiServer) as api, ExitStack() as kubelets:
        trusted = api.pki.certificate("kubelet", "/CN=system:node:a", "IP:127.0.0.1")
        own = Pki(api.folder / "own").certificate("kubelet", "/CN=system:node:b", "IP:127.0.0.1")
        node(api, "a", kubelets.enter_context(kubelet(api, *trusted)))
        node(api, "b", kubelets.enter_context(kubelet(api, *own)), cpus="4", version="v1.32.9")
        koordlet = {"labels": {"koord-app": "koordlet"}}
        api.post("/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
        api.pod("koordinator-system", "koordlet-1", node="a", **koordlet)
        for name, requests in (("no-requests", {}), ("requests", REQUESTS)):
            api.pod("default", name, node="a", spec=requests, labels={"koordinator.sh/qosClass": "LSR"})
        yield api


def test_a_kubelet_that_signed_its_own_certificate_is_named_and_what_to_do(crowded: ApiServer) -> None:
    told = doctor(crowded.kubeconfig)
    insecure = doctor(crowded.kubeconfig, "--kubelet-insecure")

    assert told["kubelet-certificates"]["verdict"] == "failed"
    assert told["kubelet-certificates"]["found"].startswith("b: its certificate could not be verified")
    assert "serverTLSBootstrap" in told["kubelet-certificates"]["advice"]
    assert "kubelet.insecure=true" in told["kubelet-certificates"]["advice"]
    assert insecure["kubelet-certificates"]["found"] == "2 of 2 nodes checked"


def test_kubelets_that_need_nodes_proxy_are_named(crowded: ApiServer) -> None:
    told = doctor(crowded.kubeconfig)["kubelet-versions"]

    assert (told["verdict"], told["found"]) == ("warning", "b v1.32.9")
    assert "kubelet.access=proxy" in told["advice"]


def test_pods_of_a_latency_sensitive_class_without_requests_are_named(crowded: ApiServer) -> None:
    told = doctor(crowded.kubeconfig)["latency-sensitive-pods"]

    assert (told["verdict"], told["found"]) == ("warning", "without requests: default/no-requests")


def test_koordlet_is_a_failure_until_it_has_other_nodes_than_slacktide(crowded: ApiServer) -> None:
    before = doctor(crowded.kubeconfig)["koordinator"]
    crowded.patch("/api/v1/nodes/b", {"metadata": {"labels": {"colocation-agent": "slacktide"}}})
    apart = doctor(crowded.kubeconfig)["koordinator"]
    crowded.patch("/api/v1/nodes/a", {"metadata": {"labels": {"colocation-agent": "slacktide-dry-run"}}})
    trying = doctor(crowded.kubeconfig)["koordinator"]
    crowded.pod("koordinator-system", "koordlet-2", node="b", labels={"koord-app": "koordlet"})
    together = doctor(crowded.kubeconfig)["koordinator"]

    assert (before["verdict"], before["found"]) == ("failed", "koordlet runs: koordinator-system/koordlet-1")
    assert (apart["verdict"], apart["found"]) == ("ok", "koordlet runs, but not on the 1 node of Slacktide")
    assert (trying["verdict"], trying["found"]) == ("ok", f"{apart['found']}; 1 node in dry run")
    assert together["verdict"] == "failed"
    assert together["found"].endswith("koordinator-system/koordlet-2")


def test_what_koordinator_left_is_named(api_server: ApiServer) -> None:
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    name = "koordinator-mutating-webhook-configuration"
    api_server.post(hooks, {"metadata": {"name": name}, "webhooks": []})
    told = doctor(api_server.kubeconfig)["koordinator"]
    api_server.delete(f"{hooks}/{name}")

    assert (told["verdict"], told["found"]) == ("warning", name)


def test_how_much_a_node_sells_is_compared_with_what_the_example_requests(server: ApiServer) -> None:
    job = yaml.safe_load((MANIFESTS / "examples/batch-job.yaml").read_text())
    [worker] = job["spec"]["template"]["spec"]["containers"]
    node(server, "small", 1, cpus="2")
    before = doctor(server.kubeconfig)["batch-amounts"]
    bridge_account(server)
    server.pod(SYSTEM, "agent", node="small", spec=REQUESTS)
    small = doctor(server.kubeconfig)["batch-amounts"]
    busy = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "800m"}}}]}
    server.pod("default", "busy", node="small", spec=busy)
    busier = doctor(server.kubeconfig)["batch-amounts"]
    raised = {"colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": 600})}
    server.post("/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
    policy = {"metadata": {"name": "slo-controller-config"}, "data": raised}
    server.post("/api/v1/namespaces/koordinator-system/configmaps", policy)
    policed = doctor(server.kubeconfig)["batch-amounts"]

    assert cpu_milli(worker["resources"]["requests"]["cpu"]) == EXAMPLE_CPU_MILLI
    requests = " if all its pods use what they request"
    assert (before["verdict"], before["found"]) == ("warning", f"small can offer up to 1200m, and 0m{requests}")
    assert small["verdict"] == "ok"
    assert (busier["verdict"], busier["found"]) == ("warning", f"small can offer up to 1200m, and 390m{requests}")
    assert "cpuReclaimThresholdPercent" in busier["advice"]
    assert (policed["verdict"], policed["found"].split()[5]) == ("ok", "2000m,")


LIMITED_BY = {
    "defaults": {"type": "Container", "default": {"cpu": "1"}},
    "largest": {"type": "Container", "max": {"memory": "1Gi"}},
    "pods": {"type": "Pod", "max": {"cpu": "1"}},
    "storage": {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
}
BATCH = {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "64Mi"}
BATCH_POD = {"containers": [{"name": "main", "image": "none", "resources": {"requests": BATCH, "limits": BATCH}}]}


def test_limit_ranges_do_to_batch_pods_what_is_reported(crowded: ApiServer) -> None:
    done = {}
    for name, limit in LIMITED_BY.items():
        crowded.post("/api/v1/namespaces", {"metadata": {"name": name}})
        body = {"metadata": {"name": name}, "spec": {"limits": [limit]}}
        crowded.post(f"/api/v1/namespaces/{name}/limitranges", body)
        try:
            done[name] = crowded.pod(name, "batch", spec=BATCH_POD)["status"]["qosClass"]
        except RefusedError as refused:
            done[name] = str(refused.status)
    told = doctor(crowded.kubeconfig)["limit-ranges"]

    assert done == {"defaults": "Burstable", "largest": "Burstable", "pods": "403", "storage": "BestEffort"}
    assert told["verdict"] == "warning"
    assert told["found"] == (
        "sets native requests or limits: defaults/defaults, largest/largest; rejects pods without them: pods/pods"
    )


@pytest.mark.parametrize(("tag", "verdict"), [("v1.34.0", "ok"), ("v1.33.9", "warning"), ("v1.35.0", "failed")])
def test_a_kube_scheduler_of_another_version_is_named(api_server: ApiServer, tag: str, verdict: str) -> None:
    facts = asyncio.run(cluster_facts.gather(api_server.kubeconfig))[1]
    image = f"registry.k8s.io/kube-scheduler:{tag}"
    found = {one.check: one for one in preflight_findings(replace(facts, kube_scheduler=image))}
    told = found["cluster.kube-scheduler"]

    assert told.verdict == verdict
    assert verdict == "ok" or f"kube-scheduler:{facts.version}" in told.advice


def test_what_of_versions_and_kubelets_is_old_or_not_reached_is_named(api_server: ApiServer) -> None:
    facts = asyncio.run(cluster_facts.gather(api_server.kubeconfig))[1]
    away = Kubelet(node="a", version="v1.34.0", certificate="not reached", trouble="no route")
    old = {one.check: one for one in preflight_findings(replace(facts, version="v1.29.9", kubelets=[away]))}
    unknown = {one.check: one for one in preflight_findings(replace(facts, version=""))}

    assert (old["cluster.version"].verdict, unknown["cluster.version"].verdict) == ("failed", "warning")
    assert old["cluster.kubelet-certificates"].verdict == "warning"
    assert old["cluster.kubelet-certificates"].found == "not reached: a: no route"
    assert unknown["cluster.kube-scheduler"].verdict == "warning"


@pytest.mark.kafka
def test_missing_topics_are_fine_where_they_may_be_created_and_are_not(
    api_server: ApiServer, kafka_broker: KafkaBroker
) -> None:
    asked = ["doctor", "--output", "json", "--kubeconfig", str(api_server.kubeconfig)]
    result = CliRunner().invoke(cli, [*asked, "--bootstrap", kafka_broker.bootstrap])
    told = {one["check"]: one for one in json.loads(result.stdout)["checks"]}["log.topics"]

    assert (told["verdict"], told["found"].split(":")[1]) == ("ok", " workers create them when they start")
    assert asyncio.run(describe_topics(kafka_broker.cluster, [topic.name for topic in TOPICS])) == {}
