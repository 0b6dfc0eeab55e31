"""What goes away comes back, and nobody's work is lost meanwhile: kubelet, agent, API server, Kafka, webhook."""

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.deploy.cli.webhook import METRICS_PORT
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.topics import MISSED_POD
from testbed.audit import Audit, records
from testbed.cluster import batch, images
from testbed.cluster.api_server import Json, RefusedError
from testbed.cluster.installed import OWN, Installed
from testbed.cluster.real_node import RealNode
from testbed.rungs import NIGHTLY

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

OUTAGE_S = 60.0 if NIGHTLY else 8.0
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
PROFILE = Path(__file__).with_name("guide") / "profile.yaml"
COLOCATED = {"koordinator.sh/enable-colocation": "true"}
BEFORE_PCT, AFTER_PCT = 65, 75
"""An outage is over when what the operator says after it is what agents do."""
AGENT = "app.kubernetes.io/component=agent"


@pytest.fixture
def node(slacktide: Installed) -> RealNode:
    return slacktide.node


@pytest.fixture(scope="module")
def _here(slacktide: Installed) -> Iterator[str]:
    node = slacktide.node
    batch.set_policy(node, cpuSuppressThresholdPercent=BEFORE_PCT)
    namespace = node.namespace("outage")
    for name in ("one", "two"):
        batch.pod(node, namespace, name, "burn", "spin", "1")
    node.wait(lambda: phases(node, namespace) == ["Running"] * 2, "both pods run")
    yield namespace
    node.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def here(node: RealNode, _here: str) -> str:
    """A namespace with two best-effort pods at work, which outlive one outage after the other."""
    batch.set_policy(node, cpuSuppressThresholdPercent=BEFORE_PCT)
    return _here


@pytest.fixture
def audit(slacktide: Installed, node: RealNode, here: str) -> Audit:
    """Begun while all is well."""
    audit = Audit(slacktide.kafka.bootstrap, node.name)
    node.wait(lambda: [each for each in audit.outcomes() if each.origin == "stream"], "the stream decides")
    return audit


def phases(node: RealNode, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in node.pods(namespace)]


def work(node: RealNode, namespace: str) -> list[tuple[str, int]]:
    """Which containers there are, and how often each was started again."""
    found: list[Json] = [each for pod in node.pods(namespace) for each in pod["status"]["containerStatuses"]]
    return [(each["containerID"], each["restartCount"]) for each in found]


def assert_all_is_as_before(node: RealNode, audit: Audit, namespace: str, before: list[tuple[str, int]]) -> None:
    """The same containers run, nobody was evicted, the operator is heard and obeyed, and the log lacks nothing."""
    settles(node, audit)

    assert phases(node, namespace) == ["Running"] * 2
    assert work(node, namespace) == before
    assert not [each for pod in node.pods(namespace) for each in pod["status"]["conditions"] if disrupted(each)]
    audit.assert_nobody_was_evicted()
    audit.assert_whole()


def settles(node: RealNode, audit: Audit) -> None:
    """Another policy goes the whole way round, and the kernel holds what comes of it; what was late has arrived."""
    known = {each.policy_version for each in audit.outcomes()}
    batch.set_policy(node, cpuSuppressThresholdPercent=AFTER_PCT)

    def obeyed() -> bool:
        told = [each for each in audit.outcomes() if each.about_limit and each.policy_version not in known]
        last = told[-1] if told else None
        if last is None or last.origin != "stream" or last.after is None:
            return False
        return last.after.be_cfs_quota_us == node.best_effort_quota_us

    node.wait(obeyed, "the stream decides by what the operator says")
    node.wait(lambda: not audit.holes(), "all samples are in the log")


def disrupted(condition: Json) -> bool:
    return bool(condition["type"] == "DisruptionTarget")


def agent_stops(node: RealNode) -> None:
    """No node matches what it asks for: the agent's pod goes, and its DaemonSet stays."""
    only = {"spec": {"template": {"spec": {"nodeSelector": {"slacktide.io/nowhere": "true"}}}}}
    node.patch(f"/apis/apps/v1/namespaces/{OWN}/daemonsets/slacktide-agent", only)
    node.wait(lambda: not node.pods(OWN, AGENT), "the agent has gone")


def agent_starts(slacktide: Installed) -> None:
    anywhere = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    slacktide.node.patch(f"/apis/apps/v1/namespaces/{OWN}/daemonsets/slacktide-agent", anywhere)
    slacktide.ready("daemonset/slacktide-agent")


def restarts_of_agent(node: RealNode) -> int:
    (agent,) = node.pods(OWN, AGENT)
    return int(agent["status"]["containerStatuses"][0]["restartCount"])


def kill_agent(node: RealNode) -> None:
    """Without a word, as a crash does."""
    (agent,) = node.pods(OWN, AGENT)
    container = agent["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    for pid in (node.group("cpu", agent) / container / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def replicas(node: RealNode, name: str, count: int) -> None:
    node.patch(f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-{name}", {"spec": {"replicas": count}})
    if not count:
        component = f"app.kubernetes.io/component={name}"
        node.wait(lambda: not node.pods(OWN, component), f"the {name} has gone")


def batch_pod(node: RealNode, namespace: str, *, how: str = "") -> Json:
    """One that the guide's profile is for, as it was stored."""
    spec = {"containers": [{"name": "main", "image": images.BUSYBOX, "command": ["sleep", "3600"]}]}
    pod = {"metadata": {"generateName": "made-", "labels": {"app-type": "batch"}}, "spec": spec}
    return node.post(f"/api/v1/namespaces/{namespace}/pods{how}", pod)


def is_admitted(pod: Json) -> bool:
    """Whether it came out as the profile says."""
    return bool(pod["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE")


def admits(node: RealNode, namespace: str) -> bool:
    """Whether such a pod would come out as the profile says."""
    return is_admitted(batch_pod(node, namespace, how="?dryRun=All"))


def missed(slacktide: Installed, namespace: str) -> list[str]:
    """The uids of a namespace's pods that slipped by, as the log says."""
    told = records(slacktide.kafka.bootstrap, MISSED_POD, MissedPod)
    return [each.pod_uid for each in told if each.namespace == namespace]


def missed_count() -> float:
    """Of all pods that run, by the webhook's metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=5) as answer:
        found = re.search(r"^slacktide_webhook_missed_pods (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found
    return float(found[1])


def test_a_kubelet_started_again_while_the_agent_is_silent_keeps_all_pods(
    slacktide: Installed, node: RealNode, here: str, audit: Audit
) -> None:
    """It admits running pods anew by what the node shows: never less than they ask for."""
    before = work(node, here)
    agent_stops(node)
    time.sleep(OUTAGE_S)
    node.kubelet.stop()
    node.start_kubelet()
    time.sleep(3)

    assert phases(node, here) == ["Running"] * 2
    agent_starts(slacktide)
    assert_all_is_as_before(node, audit, here, before)


def test_an_agent_that_is_killed_comes_back_and_its_audit_has_no_gap(
    slacktide: Installed, node: RealNode, here: str, audit: Audit
) -> None:
    """What it was doing just then is told by the next one."""
    before, restarts = work(node, here), restarts_of_agent(node)
    kill_agent(node)
    node.wait(lambda: restarts_of_agent(node) == restarts + 1, "the kubelet starts it again")
    slacktide.ready("daemonset/slacktide-agent")

    assert_all_is_as_before(node, audit, here, before)
    assert len({each.boot_id for each in audit.outcomes()}) == 2


def test_while_the_api_server_is_away_pods_keep_running(
    slacktide: Installed, node: RealNode, here: str, audit: Audit
) -> None:
    before = work(node, here)
    node.api.stop()
    time.sleep(OUTAGE_S)
    node.start()
    for deployment in ("slacktide-bridge", "slacktide-webhook"):
        slacktide.ready(f"deployment/{deployment}")

    assert_all_is_as_before(node, audit, here, before)
    assert node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"][BATCH[0]] != "0"


def test_while_kafka_is_away_pods_keep_running_and_what_was_done_is_told_afterwards(
    slacktide: Installed, node: RealNode, here: str, audit: Audit
) -> None:
    before, away_ms = work(node, here), time.time_ns() // 1_000_000
    slacktide.kafka.stop()
    time.sleep(OUTAGE_S)
    back_ms = time.time_ns() // 1_000_000
    slacktide.kafka.start()
    for workload in ("deployment/slacktide-stream", "daemonset/slacktide-agent"):
        slacktide.ready(workload)

    assert_all_is_as_before(node, audit, here, before)
    guarded = [each for each in audit.outcomes() if each.origin == "guard" and away_ms < each.acted_ms < back_ms]
    assert guarded


def test_while_the_webhook_is_away_pods_are_made_as_written_and_agents_evict_nobody(
    slacktide: Installed, node: RealNode, here: str, audit: Audit
) -> None:
    """Who slipped by is listed once it is back."""
    node.apply(PROFILE)
    there = node.namespace("missed", COLOCATED)
    node.wait(lambda: admits(node, there), "the profile is in force")
    before = work(node, here)
    replicas(node, "webhook", 0)
    (agent,) = node.pods(OWN, AGENT)
    token = node.account(OWN, "slacktide-agent", pod=agent["metadata"]["name"]).token
    one = node.get(f"/api/v1/namespaces/{here}/pods/one")["metadata"]
    eviction = {"metadata": {"name": "one"}, "deleteOptions": {"preconditions": {"uid": one["uid"]}}}
    with pytest.raises(RefusedError, match="failed calling webhook"):
        node.request("POST", f"/api/v1/namespaces/{here}/pods/one/eviction", eviction, token=token)
    slipped = batch_pod(node, there)
    time.sleep(OUTAGE_S)
    replicas(node, "webhook", 1)
    slacktide.ready("deployment/slacktide-webhook")
    node.wait(lambda: missed(slacktide, there), "the log lists who slipped by")

    assert not is_admitted(slipped)
    assert missed(slacktide, there) == [slipped["metadata"]["uid"]]
    assert missed_count() == 1
    assert admits(node, there)
    assert_all_is_as_before(node, audit, here, before)
    node.kubectl("delete", "namespace", there, "--wait=false")


def test_had_the_node_lost_its_batch_resources_the_same_kubelet_would_have_failed_them(
    slacktide: Installed, node: RealNode, here: str
) -> None:
    """What the plain rule does, which withdraws them from a silent node. The last test here: no pod outlives it."""
    replicas(node, "bridge", 0)
    gone = dict.fromkeys(BATCH, "0")
    node.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": gone, "allocatable": gone}})
    node.kubelet.stop()
    node.start_kubelet()
    node.wait(lambda: phases(node, here) == ["Failed"] * 2, "both pods fail")

    assert {pod["status"]["reason"] for pod in node.pods(here)} <= {f"OutOf{resource}" for resource in BATCH} | {
        "UnexpectedAdmissionError"
    }
    replicas(node, "bridge", 1)
    slacktide.ready("deployment/slacktide-bridge")
