"""``slacktide webhook`` as a process beside the API server, under its own account, behind the Service's address."""

import contextlib
import re
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from testbed.filled import FILES

from .api_server import Account, ApiServer, Json
from .programs import Program

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))
NAMESPACE, NAME = "slacktide-system", "slacktide-webhook"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}-tls"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
COLOCATED = {"koordinator.sh/enable-colocation": "true"}
PROFILES = FILES / "colocation-profiles.yaml"
NOWHERE = "127.0.0.1:1"
"""Of a broker: none."""


class Webhook:
    """One replica. There is no kube-proxy: whoever listens on the Service's address is the Service."""

    def __init__(self, api: ApiServer, folder: Path, *, bootstrap: str = NOWHERE, options: Sequence[str] = ()) -> None:
        self.api = api
        self._options = options
        self.process = Program("slacktide webhook", folder / f"webhook-{secrets.token_hex(4)}.log")
        self._bootstrap = bootstrap

    def start(self) -> None:
        self.process.start(self._command(), self._ready)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.stop(9)

    @property
    def url(self) -> str:
        """Where it answers: no name that a certificate has, but the address of one."""
        service = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["spec"]
        return f"https://{service['clusterIP']}:{service['ports'][0]['port']}"

    @property
    def metrics(self) -> str:
        return self._asked("/metrics")

    @property
    def fresh(self) -> str:
        try:
            return self._asked("/fresh")
        except urllib.error.HTTPError as stale:
            return stale.read().decode()

    def metric(self, name: str) -> float:
        """The value of a metric, with its labels as they are written; 0 where there is none."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def _command(self) -> list[str]:
        service = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["spec"]
        account = self.api.account(NAMESPACE, NAME)
        given = {
            "kubeconfig": account.kubeconfig,
            "namespace": NAMESPACE,
            "host": service["clusterIP"],
            "port": service["ports"][0]["port"],
            "bootstrap": self._bootstrap,
            "metrics-port": 0,
            "log-format": "json",
        }
        return [SLACKTIDE, "webhook", *(f"--{name}={value}" for name, value in given.items()), *self._options]

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, urllib.error.URLError, LookupError):
            return self._asked("/ready") is not None
        return False

    def _asked(self, path: str) -> str:
        url = re.findall(r'"url": ?"(http://[^"]+)"', self.process.log.read_text())[-1]
        with urllib.request.urlopen(url + path, timeout=60) as answer:
            return answer.read().decode()


def install(api: ApiServer) -> None:
    """Apply the project's manifests; what they start is not run, for there is no kubelet."""
    api.kubectl("apply", "-k", str(MANIFESTS / "language"))
    api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    api.kubectl("apply", "-k", str(MANIFESTS / "base"))


def agent_on(api: ApiServer, node: str) -> Account:
    """The agent of a node, with a token that is bound to its pod there."""
    name = f"slacktide-agent-{secrets.token_hex(4)}"
    api.account(NAMESPACE, "slacktide-agent")
    api.pod(NAMESPACE, name, node=node, spec={"serviceAccountName": "slacktide-agent"})
    return api.account(NAMESPACE, "slacktide-agent", pod=name)


def eviction(pod: Json, *, uid: str | None = None) -> Json:
    """The body of an eviction, for this pod's uid unless another is given; "": for none."""
    uid = pod["metadata"]["uid"] if uid is None else uid
    options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, **options}


def evict(api: ApiServer, pod: Json, by: Account, *, uid: str | None = None) -> Json:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
    return api.request("POST", path, eviction(pod, uid=uid), token=by.token)


def until_asked(api: ApiServer, namespace: str) -> None:
    """Wait until the API server asks the webhook: it hears of a changed configuration some hundred milliseconds on."""

    def asked() -> bool:
        name = f"probe-{secrets.token_hex(4)}"
        pod = api.pod(namespace, name, labels={"app-type": "probe"})
        api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")
        return "probed" in pod["metadata"]["labels"]

    api.wait(asked, "the API server asks the webhook", 60)
