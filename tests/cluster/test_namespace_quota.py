"""A namespace's quotas by the four bands, and free pods, at a real API server with the webhook."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from testbed.brokers import EmbeddedBroker
from testbed.cluster.api_server import ApiServer, Json, KubectlError, RefusedError
from testbed.cluster.webhook import COLOCATED, SLACKTIDE, Webhook
from testbed.one_machine import eventually

pytestmark = pytest.mark.cluster

AMOUNTS = {"cpu": "2", "memory": "1Gi"}
SPEC: Json = {
    "containers": [{"name": "main", "image": "x", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}],
    "restartPolicy": "Never",
}
FREE_PROFILE = """\
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata:
  name: free-profile
spec:
  selector:
    matchLabels:
      app-type: free
  qosClass: BE
  priorityClassName: koord-free
"""
BORROWED = "quota.slacktide.io/borrowed"
POLICY = "/api/v1/namespaces/koordinator-system/configmaps"
NAME = "slo-controller-config"


@pytest.fixture
def server(admitting: ApiServer, webhook: Webhook) -> ApiServer:
    assert webhook.process.running
    return admitting


@pytest.fixture
def sells_free(server: ApiServer) -> Iterator[None]:
    """The policy enables the class, and a profile is for its pods."""
    server.apply(FREE_PROFILE)
    enabled = {"colocation-config": json.dumps({"enable": True, "freeClassEnable": True})}
    server.post(POLICY, {"metadata": {"name": NAME}, "data": enabled})
    yield
    server.delete(f"{POLICY}/{NAME}")
    server.delete("/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/free-profile")


def bounded(server: ApiServer, **annotations: str) -> str:
    namespace = server.namespace("quota", COLOCATED)
    body = {f"quota.slacktide.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    server.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": body}})
    return namespace


def create(server: ApiServer, namespace: str, name: str, kind: str = "batch", **annotations: str) -> Json:
    given = {f"quota.slacktide.io/{mark}": text for mark, text in annotations.items()}
    return server.pod(namespace, name, labels={"app-type": kind}, spec=SPEC, annotations=given)


def borrowed(pod: Json) -> str | None:
    mark: str | None = pod["metadata"].get("annotations", {}).get(BORROWED)
    return mark


def test_prod_succeeds_within_its_quota_and_is_refused_beyond_it(server: ApiServer) -> None:
    """Native requests count, whatever class a pod claims: it has no profile, so nothing of it is translated."""
    namespace = bounded(server, prod_cpu="4", prod_memory="8Gi")
    create(server, namespace, "one", "web")
    low = {**SPEC, "priorityClassName": "koord-mid"}
    server.pod(namespace, "two", spec=low)

    with pytest.raises(
        RefusedError, match=r"requested cpu=2000m, used 4000m, limited to 4000m by its annotation \S+/prod-cpu"
    ):
        create(server, namespace, "three", "web")
    create(server, namespace, "batch")
    server.delete(f"/api/v1/namespaces/{namespace}/pods/two")
    create(server, namespace, "three", "web")


def test_batch_beyond_its_quota_borrows_and_each_answer_is_in_the_log(
    server: ApiServer, webhook: Webhook, embedded_broker: EmbeddedBroker
) -> None:
    embedded_broker.apply_topics()
    webhook.stop()
    logging = Webhook(server, server.folder, bootstrap=embedded_broker.bootstrap)
    logging.start()
    namespace = bounded(server, batch_cpu="2000", prod_cpu="1")
    try:
        within = create(server, namespace, "within", borrowed="true")
        metadata = {"name": "beyond", "namespace": namespace, "labels": {"app-type": "batch"}}
        pod = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC})
        with pytest.raises(KubectlError, match=r"Warning: beyond the quota.*batch-cpu=2000, used 2000, quota 2000"):
            server.kubectl("create", "--warnings-as-errors", "-f", "-", given=pod)
        with pytest.raises(RefusedError, match="exceeded quota"):
            create(server, namespace, "web", "web")
        path = f"/api/v1/namespaces/{namespace}/pods"
        beyond = server.get(f"{path}/beyond")
        server.delete(f"{path}/within")
        again = create(server, namespace, "again")
        records = eventually(lambda: found if len(found := listed(embedded_broker, namespace)) == 4 else [])
    finally:
        logging.stop()

    assert (borrowed(within), borrowed(beyond), borrowed(again)) == (None, "true", None)
    assert [(one["name"], one["band"], one["result"]) for one in records] == [
        ("within", "batch", "admitted"),
        ("beyond", "batch", "borrowed"),
        ("web", "prod", "over_quota"),
        ("again", "batch", "admitted"),
    ]
    assert records[1]["uses"] == [{"resource": "batch_cpu_milli", "asked": 2_000, "used": 2_000, "quota": 2_000}]
    assert "used" not in records[3]["uses"][0], "what is borrowed uses no quota"
    with pytest.raises(RefusedError, match=r"annotation quota\.slacktide\.io/borrowed of a pod cannot be removed"):
        server.patch(f"{path}/beyond", {"metadata": {"annotations": {BORROWED: None}}})
    marked = server.patch(f"{path}/again", {"metadata": {"annotations": {BORROWED: "true"}}})
    assert borrowed(marked) == "true", "it only goes earlier"


def listed(broker: EmbeddedBroker, namespace: str) -> list[Json]:
    """The answers for a namespace's pods, as a reader of the audit gets them."""
    command = [SLACKTIDE, "audit", "admissions", "--pod", namespace, "-o", "json", "--bootstrap", broker.bootstrap]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [one["body"] for one in json.loads(ran.stdout)]


def test_a_namespace_that_never_borrows_refuses_batch_beyond_its_quota(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="4000", batch_borrowing="never")
    create(server, namespace, "one")
    create(server, namespace, "two")

    with pytest.raises(RefusedError, match=r"requested kubernetes\.io/batch-cpu=2000, used 4000, limited to 4000"):
        create(server, namespace, "three")
    server.delete(f"/api/v1/namespaces/{namespace}/pods/one")
    create(server, namespace, "three")
    create(server, server.namespace("other", COLOCATED), "elsewhere")


def test_pods_created_at_once_do_not_exceed_it(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="6000", batch_borrowing="never")

    def tried(number: int) -> bool:
        try:
            create(server, namespace, f"p{number}")
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(tried, range(12))) == 3


@pytest.mark.usefixtures("sells_free")
def test_a_free_pod_is_translated_and_has_no_quota(server: ApiServer) -> None:
    namespace = bounded(server, free_memory="1Gi", batch_cpu="0")
    probes = server.namespace("probe")
    names = (f"probe-{number}" for number in range(100))
    eventually(lambda: "kubernetes.io/free-cpu" in str(create(server, probes, next(names), "free")["spec"]))
    pod = create(server, namespace, "free", "free")
    resources: dict[str, Any] = pod["spec"]["containers"][0]["resources"]

    assert resources["requests"] == {"kubernetes.io/free-cpu": "2k", "kubernetes.io/free-memory": "1Gi"}
    assert pod["spec"]["priority"] == 3000
    metadata = {"name": "more", "namespace": namespace, "labels": {"app-type": "free"}}
    more = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC})
    with pytest.raises(KubectlError, match=r"Warning: .*free-memory has no effect: free has no quota"):
        server.kubectl("create", "--warnings-as-errors", "-f", "-", given=more)
    assert borrowed(server.get(f"/api/v1/namespaces/{namespace}/pods/more")) is None


def test_a_bound_that_is_no_amount_refuses_and_names_itself(server: ApiServer) -> None:
    namespace = bounded(server, batch_cpu="much")

    with pytest.raises(RefusedError, match=r"annotation quota\.slacktide\.io/batch-cpu"):
        create(server, namespace, "one")


def test_a_pod_with_more_text_than_anybody_reads_does_not_pass_over_the_bound(server: ApiServer) -> None:
    """The API server writes each ``<`` with six characters, and would ignore an error of the webhook."""
    namespace = bounded(server, batch_cpu="0")
    text = {"name": "TEXT", "value": "<" * 1_450_000}
    spec = {**SPEC, "containers": [{**SPEC["containers"][0], "env": [text]}]}

    with pytest.raises(RefusedError, match=r"beyond what is read in time: more than 2097152 bytes"):
        server.pod(namespace, "large", labels={"app-type": "batch"}, spec=spec)


def test_the_name_of_a_refused_pod_is_not_longer_than_a_name(server: ApiServer, webhook: Webhook) -> None:
    namespace = bounded(server, batch_cpu="0", batch_borrowing="never")

    with pytest.raises(RefusedError, match="exceeded quota of namespace"):
        create(server, namespace, "n" * 400_000)
    lines = webhook.process.log.read_text().splitlines()
    assert [line for line in lines if f"{namespace}/nnn" in line]
    assert max(map(len, lines)) < 4_000
