"""A webhook that answers the API server alone, which shows a certificate of its own; and what others learn of it."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.brokers import running
from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.webhook import COLOCATED, NAME, NAMESPACE, PROFILES, Webhook, agent_on, evict, install, until_asked

pytestmark = pytest.mark.cluster

BATCH = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}
SERVICE = f"{NAME}.{NAMESPACE}.svc"


class AskingByName(ApiServer):
    """One that shows the webhook a client certificate, as docs/kubernetes.md has it."""

    def api_command(self) -> list[str]:
        """kube-apiserver's command line."""
        client = self.pki.client(self.folder / "webhooks.kubeconfig", self.url, "/CN=kube-apiserver-webhook")
        users = json.loads(client.read_text())["users"]
        client.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": [users[0] | {"name": SERVICE}]}))
        how = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
        plugins = [
            {"name": f"{kind}AdmissionWebhook", "configuration": how | {"kubeConfigFile": str(client)}}
            for kind in ("Mutating", "Validating")
        ]
        config = self.folder / "admission.json"
        config.write_text(
            json.dumps({"apiVersion": how["apiVersion"], "kind": "AdmissionConfiguration", "plugins": plugins})
        )
        return [*super().api_command(), f"--admission-control-config-file={config}"]


@pytest.fixture(scope="module")
def asking() -> Iterator[ApiServer]:
    with running(AskingByName) as api:
        install(api)
        api.apply(PROFILES)
        yield api


@pytest.fixture(scope="module")
def guarded(asking: ApiServer) -> Iterator[Webhook]:
    options = [f"--client-ca={asking.ca}", "--client-names=kube-apiserver-webhook"]
    webhook = Webhook(asking, asking.folder, options=options)
    webhook.start()
    until_asked(asking, asking.namespace())
    yield webhook
    webhook.stop()


def posted(webhook: Webhook, path: str, body: Json, certificate: tuple[Path, Path] | None) -> tuple[int, str]:
    """What somebody who reaches the webhook's port is answered."""
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(*certificate)
    request = urllib.request.Request(webhook.url + path, data=json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def review(pod: Json, uid: str) -> Json:
    """The question whether the bridge may evict a pod."""
    options = {"deleteOptions": {"preconditions": {"uid": uid}}}
    user = {"username": f"system:serviceaccount:{NAMESPACE}:slacktide-bridge"}
    named = {name: pod["metadata"][name] for name in ("name", "namespace")}
    request = {"uid": "1", "operation": "CREATE", "userInfo": user, "object": options, **named}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_the_api_server_is_answered(asking: ApiServer, guarded: Webhook) -> None:
    namespace, node = asking.namespace("batch", COLOCATED), asking.node()
    pod = asking.pod(namespace, "worker", node=node, labels={"app-type": "batch"})
    elsewhere = asking.pod(namespace, "elsewhere", node=asking.node(), labels={"app-type": "batch"})
    agent = agent_on(asking, node)
    evict(asking, pod, agent)

    assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE", "as the profile says"
    with pytest.raises(RefusedError, match=f"is not on node {node}"):
        evict(asking, elsewhere, agent)


@pytest.mark.parametrize("path", ["/mutate-pods", "/validate-evictions"])
def test_nobody_else_is_answered(asking: ApiServer, guarded: Webhook, path: str) -> None:
    pod = asking.pod(asking.namespace(), "job", labels=BATCH)
    asked = review(pod, pod["metadata"]["uid"])
    kubelet = asking.pki.certificate("kubelet", "/O=system:nodes/CN=system:node:a")
    own = asking.pki.certificate("webhooks.kubeconfig", "")

    assert posted(guarded, path, asked, kubelet) == (403, "the common name of the client certificate is not allowed")
    assert posted(guarded, path, asked, None) == (403, "a client certificate is required")
    assert posted(guarded, "/validate-evictions", asked, own)[0] == 200, "the API server's own"
    assert "client certificate" not in guarded.fresh, "the API server presents one"
    assert guarded.metric('slacktide_webhook_clients_total{certificate="refused"}') >= 2


def test_one_that_asks_for_no_certificate_tells_nothing_of_a_pod(admitting: ApiServer, webhook: Webhook) -> None:
    namespace, node = admitting.namespace(), admitting.node()
    pod = admitting.pod(namespace, "job", node=node, labels=BATCH)
    absent = {"metadata": {"name": "absent", "namespace": namespace}}

    status, there = posted(webhook, "/validate-evictions", review(pod, "guess"), None)
    _, not_there = posted(webhook, "/validate-evictions", review(absent, "guess"), None)

    assert status == 200
    assert pod["metadata"]["uid"] not in there
    assert node not in there
    assert there.replace("job", "absent") == not_there, "nor whether there is such a pod"
