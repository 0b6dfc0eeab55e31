"""The webhook beside a real API server, as the manifests install it: what it makes of pods, and whom it lets go."""

import asyncio
import contextlib
import secrets
import threading
import time
from typing import Any

import pytest
import yaml

from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.kubernetes.api_server import ApiServer as DoorToApi
from testbed.brokers import free_port
from testbed.cluster.api_server import ApiServer, Json, KubectlError, RefusedError
from testbed.cluster.bridge_rig import until
from testbed.cluster.identity import access_of
from testbed.cluster.manifests import evict_by_load
from testbed.cluster.service_door import ServiceDoor
from testbed.cluster.webhook import COLOCATED, CONFIGURATIONS, NAMESPACE, SECRET, Webhook, agent_on, evict
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

MEANWHILE_S = 1.5
JOB = """\
metadata:
  labels:
    app-type: batch  # This label triggers the profile
spec:
  containers:
  - name: worker
    image: python:3.9
    command: [python, -c, "print('Job completed!')"]
    resources:
      requests:
        cpu: "2"
        memory: "4Gi"
      limits:
        cpu: "2"
        memory: "4Gi"
  restartPolicy: Never
"""
MANUAL = """\
metadata:
  labels:
    koordinator.sh/qosClass: BE  # Explicitly set QoS
spec:
  priorityClassName: koord-batch  # Explicitly set priority
  schedulerName: koord-scheduler  # Use Koordinator scheduler
  containers:
  - name: worker
    image: python:3.9
    resources:
      requests:
        kubernetes.io/batch-cpu: "1000"     # Use batch resources
        kubernetes.io/batch-memory: "2Gi"
      limits:
        kubernetes.io/batch-cpu: "1000"
        kubernetes.io/batch-memory: "2Gi"
  restartPolicy: Never
"""
KIND = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}


def create(api: ApiServer, namespace: str, template: str, **labels: str) -> Json:
    """A pod of a Job's template, as the Job's controller makes it."""
    pod = yaml.safe_load(template)
    pod["metadata"] |= {"name": f"job-{secrets.token_hex(4)}"}
    pod["metadata"]["labels"] |= labels
    return api.post(f"/api/v1/namespaces/{namespace}/pods", pod)


def evictions(webhook: Webhook, result: str) -> float:
    """How many there were of which this became."""
    return webhook.metric(f'slacktide_webhook_evictions_total{{result="{result}"}}')


def refused(api: ApiServer, pod: Json, by: Any, *, uid: str | None = None) -> tuple[int, str]:
    with pytest.raises(RefusedError) as error:
        evict(api, pod, by, uid=uid)
    return error.value.status, str(error.value)


def test_the_first_batch_job_of_the_quick_start_comes_out_as_it_says(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    pod = create(admitting, batch, JOB)

    assert pod["metadata"]["labels"] == {
        "app-type": "batch",
        "koordinator.sh/qosClass": "BE",
        "koordinator.sh/mutated": "true",
    }
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("koord-batch", 5000)
    assert pod["spec"]["schedulerName"] == "koord-scheduler"
    # The API server writes 2000 as 2k.
    asked = {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "4Gi"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": asked, "requests": asked}
    assert pod["status"]["qosClass"] == "BestEffort"
    assert "batch-cpu" in pod["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"]


def test_the_manual_job_keeps_what_it_says_and_gets_the_annotation_that_the_node_reads(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    pod = create(admitting, batch, MANUAL)

    assert pod["metadata"]["labels"] == {"koordinator.sh/qosClass": "BE"}
    assert pod["spec"]["priority"] == 5000
    assert pod["spec"]["containers"][0]["resources"]["limits"]["kubernetes.io/batch-cpu"] == "1k"
    assert set(pod["metadata"]["annotations"]) == {"node.koordinator.sh/extended-resource-spec"}


def test_a_pod_of_a_runtime_class_with_overhead_is_let_in(admitting: ApiServer, webhook: Webhook, batch: str) -> None:
    """The API server holds its overhead to the class's, after the webhook."""
    fixed = {"cpu": "250m", "memory": "120Mi"}
    kata = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": fixed}}
    admitting.post("/apis/node.k8s.io/v1/runtimeclasses", kata)
    pod = yaml.safe_load(JOB)
    pod["metadata"] |= {"name": "in-kata"}
    pod["spec"] |= {"runtimeClassName": "kata"}

    made = admitting.post(f"/api/v1/namespaces/{batch}/pods", pod)
    assert made["spec"]["overhead"] == fixed
    assert set(made["spec"]["containers"][0]["resources"]["requests"]) == {
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
    }


def test_a_namespace_without_the_label_stays_untouched(admitting: ApiServer, webhook: Webhook) -> None:
    pod = create(admitting, admitting.namespace(), JOB)

    assert pod["metadata"]["labels"] == {"app-type": "batch"}
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert "annotations" not in pod["metadata"]


def test_a_namespace_labelled_a_moment_ago_is_known(admitting: ApiServer, webhook: Webhook) -> None:
    """It is asked for where nothing was heard of it yet."""
    for _ in range(10):
        pod = create(admitting, admitting.namespace("new", COLOCATED), JOB)

        assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"


def test_a_profile_whose_priority_class_is_not_there_refuses_its_pods_and_says_so(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    lost = {"selector": {"matchLabels": {"app-type": "lost"}}, "priorityClassName": "koord-lost"}
    admitting.apply(yaml.safe_dump(KIND | {"metadata": {"name": "lost"}, "spec": lost}))

    def said() -> str:
        with contextlib.suppress(RefusedError):
            create(admitting, batch, JOB, **{"app-type": "lost"})
            return ""
        with pytest.raises(RefusedError) as error:
            create(admitting, batch, JOB, **{"app-type": "lost"})
        return f"{error.value.status} {error.value}"

    told = eventually(said)
    admitting.kubectl("delete", "clustercolocationprofile", "lost")

    assert told.startswith("422")
    assert "ClusterColocationProfile lost: there is no PriorityClass koord-lost; correct the profile" in told


def test_who_creates_a_pod_is_warned_of_what_a_profile_in_dry_run_would_change(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    spec = {"selector": {"matchLabels": {"app-type": "dry"}}, "qosClass": "BE", "priorityClassName": "koord-batch"}
    metadata = {"name": "dry", "annotations": {"slacktide.io/dry-run": "true"}}
    admitting.apply(yaml.safe_dump(KIND | {"metadata": metadata, "spec": spec}))
    dry = "slacktide_webhook_dry_runs_total"

    def counted() -> Json | None:
        pod = create(admitting, batch, JOB, **{"app-type": "dry"})
        return pod if webhook.metric(dry) else None

    pod = eventually(counted)
    given = "apiVersion: v1\nkind: Pod\n" + JOB.replace("app-type: batch", "app-type: dry\n  name: dry")
    with pytest.raises(KubectlError) as warned:
        admitting.kubectl("create", "-n", batch, "--warnings-as-errors", "-f", "-", given=given)
    admitting.kubectl("delete", "clustercolocationprofile", "dry")

    assert pod is not None
    assert "koordinator.sh/qosClass" not in pod["metadata"]["labels"]
    assert "Warning: colocation profiles in dry run: would change /metadata/labels/" in str(warned.value)


@pytest.mark.parametrize("namespace", [NAMESPACE, "kube-system"])
def test_its_own_namespace_and_the_systems_are_left_out(admitting: ApiServer, webhook: Webhook, namespace: str) -> None:
    pod = create(admitting, namespace, JOB, **{"app-type": "probe"})

    assert "probed" not in pod["metadata"]["labels"]


def test_an_agent_evicts_a_best_effort_pod_of_its_own_node(admitting: ApiServer, webhook: Webhook, batch: str) -> None:
    node = admitting.node()
    pod = admitting.pod(batch, "worker", node=node, labels={"app-type": "batch"})
    evict(admitting, pod, agent_on(admitting, node))

    conditions = admitting.get(f"/api/v1/namespaces/{batch}/pods/worker")["status"]["conditions"]
    assert [one["reason"] for one in conditions if one["type"] == "DisruptionTarget"] == ["EvictionByEvictionAPI"]


def test_the_fence_refuses_what_is_not_the_agents_and_says_what_to_do(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    mine, others = admitting.node(), admitting.node()
    agent = agent_on(admitting, mine)
    job = admitting.pod(batch, "worker", node=mine, labels={"app-type": "batch"})
    elsewhere = admitting.pod(batch, "elsewhere", node=others, labels={"app-type": "batch"})
    service = admitting.pod(batch, "web", node=mine, labels={"koordinator.sh/qosClass": "LS"})
    unbound = admitting.account(NAMESPACE, "slacktide-agent")
    # Other tests ask the same webhook.
    whys = ("other_node", "not_best_effort", "other_uid", "no_uid", "no_node_claim")
    before = {why: evictions(webhook, why) for why in whys}

    found = {
        "another node's pod": refused(admitting, elsewhere, agent),
        "an LS pod": refused(admitting, service, agent),
        "a wrong uid": refused(admitting, job, agent, uid="0"),
        "no uid": refused(admitting, job, agent, uid=""),
        "an unbound token": refused(admitting, job, unbound),
    }

    assert {what: status for what, (status, _) in found.items()} == {
        "another node's pod": 403,
        "an LS pod": 403,
        "a wrong uid": 404,
        "no uid": 403,
        "an unbound token": 403,
    }
    said = {
        "another node's pod": f"is not on node {mine}, the node of the token",
        "an LS pod": f"pod {batch}/web is not of QoS class BE, the only class that may be evicted",
        "a wrong uid": "decide again with the newest pod list",
        "no uid": "deleteOptions.preconditions.uid is missing",
        "an unbound token": "evict with a token of the agent's own pod",
    }
    assert [what for what, words in said.items() if words not in found[what][1]] == []
    for name in ("worker", "elsewhere", "web"):
        assert "deletionTimestamp" not in admitting.get(f"/api/v1/namespaces/{batch}/pods/{name}")["metadata"]
    assert {why: evictions(webhook, why) - asked for why, asked in before.items()} == dict.fromkeys(before, 1.0)


def test_the_bridge_evicts_best_effort_pods_of_any_node_and_no_others(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    bridge = admitting.account(NAMESPACE, "slacktide-bridge")
    job = admitting.pod(batch, "worker", node=admitting.node(), labels={"app-type": "batch"})
    service = admitting.pod(batch, "web", node=admitting.node(), labels={"koordinator.sh/qosClass": "LS"})

    with evict_by_load(admitting):
        status, said = refused(admitting, service, bridge)
        assert (status, "is not of QoS class BE, the only class that may be evicted" in said) == (403, True)
        assert refused(admitting, job, bridge, uid="0")[0] == 404
        assert refused(admitting, job, bridge, uid="")[0] == 422, "by the policy that looks first"
        evict(admitting, job, bridge)


def test_the_webhook_away_pods_come_as_they_are_written_and_agents_evict_nobody(
    admitting: ApiServer, webhook: Webhook, batch: str
) -> None:
    node = admitting.node()
    agent = agent_on(admitting, node)
    job = admitting.pod(batch, "worker", node=node, labels={"app-type": "batch"})
    webhook.kill()
    pod = create(admitting, batch, JOB)
    status, said = refused(admitting, job, agent)
    other = admitting.pod(batch, "other", node=node)
    evicted = admitting.kubectl("get", "--raw", f"/api/v1/namespaces/{batch}/pods/other")
    admitting.request("POST", f"/api/v1/namespaces/{batch}/pods/other/eviction", {"metadata": {"name": "other"}})

    assert pod["metadata"]["labels"] == {"app-type": "batch"}
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert (status, "failed calling webhook" in said) == (500, True)
    assert other["metadata"]["uid"] in evicted, "everybody else's evictions go on as before"


def test_replicas_that_start_at_once_share_one_certificate(admitting: ApiServer, webhook: Webhook) -> None:
    """The Secret is there already: whoever starts takes it, and patches nothing."""
    configuration = f"{CONFIGURATIONS}/mutatingwebhookconfigurations/slacktide"
    secret, version = admitting.get(SECRET), admitting.get(configuration)["metadata"]["resourceVersion"]
    webhook.stop()
    webhook.start()

    assert admitting.get(SECRET)["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
    assert admitting.get(configuration)["metadata"]["resourceVersion"] == version
    trusts = admitting.get(configuration)["webhooks"][0]["clientConfig"]["caBundle"]
    assert trusts == secret["data"]["ca.crt"]


def test_told_to_stop_it_answers_until_everybody_has_heard_of_it(admitting: ApiServer, webhook: Webhook) -> None:
    """Whoever asks meanwhile is answered; pods that are created one after the other all come out changed."""
    namespace = admitting.namespace()
    ended = threading.Thread(target=webhook.stop)
    ended.start()
    until_s = time.monotonic() + MEANWHILE_S
    changed = []
    while time.monotonic() < until_s:
        changed.append("probed" in create(admitting, namespace, JOB, **{"app-type": "probe"})["metadata"]["labels"])
    ended.join()

    assert changed
    assert all(changed)


def test_without_its_configurations_it_says_that_nobody_asks(admitting: ApiServer, webhook: Webhook) -> None:
    kept = admitting.get(f"{CONFIGURATIONS}/validatingwebhookconfigurations/slacktide")
    admitting.delete(f"{CONFIGURATIONS}/validatingwebhookconfigurations/slacktide")
    said = eventually(lambda: "validatingwebhookconfigurations" in webhook.fresh and webhook.fresh)
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        kept["metadata"].pop(field, None)
    admitting.post(f"{CONFIGURATIONS}/validatingwebhookconfigurations", kept)

    assert (
        "no validatingwebhookconfigurations/slacktide: the API server does not call the webhook; apply the manifests"
        in str(said)
    )


async def test_once_the_api_server_is_heard_again_what_is_known_is_fresh_though_nothing_has_changed(
    admitting: ApiServer,
) -> None:
    port = free_port()
    access = access_of(admitting.kubeconfig)
    access.configuration.host = f"https://127.0.0.1:{port}"
    way = ServiceDoor("127.0.0.1", port, admitting.port)
    async with DoorToApi(access, name="test") as api:
        cache = ClusterCache(api, ConfigMapName(namespace="koordinator-system", name="slo-controller-config"))
        following = asyncio.create_task(cache.run())
        await cache.known()
        assert not cache.trouble
        way.close()
        await until(lambda: cache.trouble)
        way = ServiceDoor("127.0.0.1", port, admitting.port)
        await until(lambda: not cache.trouble)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    way.close()
