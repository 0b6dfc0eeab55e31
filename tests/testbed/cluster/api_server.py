"""etcd and kube-apiserver: the API alone, as envtest gives it; nothing runs a pod and nothing controls."""

import contextlib
import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from testbed.brokers import free_port
from testbed.hosts import HERE, Host
from testbed.reaching import needs
from testbed.rungs import built_program

from .pki import Pki
from .programs import Program

KUBECTL_S = 240.0
WAIT_S = 120.0
ADMIN = "/O=system:masters/CN=admin"
MERGE = "application/merge-patch+json"
Json = dict[str, Any]


class RefusedError(Exception):
    """The API server's answer was an error: ``status`` and its Status object."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status} {body.get('reason')}: {body.get('message')}")
        self.status = status
        self.body = body


class KubectlError(Exception):
    """A kubectl that failed: its arguments and what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    namespace: str
    name: str
    token: str
    kubeconfig: Path


def flagged(flags: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _established(definition: Json) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@needs("cluster")
class ApiServer:
    """A cluster of etcd and kube-apiserver in a folder: ``.url``, ``.ca``, ``.kubeconfig`` (the admin's)."""

    # Without a controller-manager no namespace gets its default account.
    API_FLAGS: Mapping[str, str] = {"disable-admission-plugins": "ServiceAccount"}

    def __init__(self, folder: Path, host: Host = HERE, asking: Host = HERE) -> None:
        """Not started yet; the test asks it from the host ``asking``."""
        self.folder = folder
        self._host, self._asking = host, asking
        self.pki = Pki(folder / "pki")
        self.ca = self.pki.ca
        self.port = free_port()
        self.url = f"https://{host.address}:{self.port}"
        # Services get addresses of loopback: whoever binds one, serves it (there is no kube-proxy).
        self.service_range = f"127.{64 + self.port % 128}.0.0/16"
        self.service_ip = f"127.{64 + self.port % 128}.0.1"
        self.kubeconfig = self.pki.client(folder / "admin.kubeconfig", self.url, ADMIN)
        self.etcd = Program("etcd", folder / "etcd.log")
        self.api = Program("kube-apiserver", folder / "kube-apiserver.log")
        self._etcd_port = free_port()
        self._tls = ssl.create_default_context(cafile=str(self.ca))
        self._tls.load_cert_chain(*map(str, self.pki.certificate("admin.kubeconfig", ADMIN)))
        self._tls_bare = ssl.create_default_context(cafile=str(self.ca))

    def start(self) -> None:
        """Start both; a second call starts what is not running, with the same data, on the same port."""
        if not self.etcd.running:
            self.etcd.stop()
            self.etcd.start([*self._host.prefix, *self._etcd_command()], lambda: self._host.inside(self._etcd_listens))
        if not self.api.running:
            self.api.stop()
            self.api.start([*self._host.prefix, *self.api_command()], self.ready)

    def stop(self) -> None:
        """End both at once: the data is a throw-away."""
        self.api.stop(signal.SIGKILL)
        self.etcd.stop(signal.SIGKILL)

    def _etcd_command(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", "http://127.0.0.1:0"
        urls = {"listen-client-urls": client, "advertise-client-urls": client}
        peers = {"listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"default={peer}"}
        flags = {"data-dir": str(self.folder / "etcd"), **urls, **peers}
        # The data is a throw-away, so etcd need not wait for the disk.
        return [str(built_program("etcd")), "--unsafe-no-fsync", *flagged(flags)]

    def api_command(self) -> list[str]:
        names = f"IP:{self._host.address},DNS:localhost,DNS:kubernetes.default.svc,IP:{self.service_ip}"
        crt, key = self.pki.certificate("apiserver", "/CN=kube-apiserver", names)
        flags = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd_port}",
            "bind-address": self._host.address,
            "secure-port": str(self.port),
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": self.service_range,
            "client-ca-file": str(self.ca),
            "tls-cert-file": str(crt),
            "tls-private-key-file": str(key),
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            **self.API_FLAGS,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self.pki.sa_pub),
            "service-account-signing-key-file": str(self.pki.sa_key),
        }
        return [str(built_program("kube-apiserver")), *flagged(flags)]

    def ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self._send("GET", "/readyz", None, {}, None)[0] == 200
        return False

    def _etcd_listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._etcd_port), timeout=1):
            return True
        return False

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], token: str | None
    ) -> tuple[int, bytes]:
        # The API server keeps track of who wrote what (managedFields) where a client gives its name.
        headers = {**headers, "User-Agent": "slacktide-tests"}
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        tls = self._tls if token is None else self._tls_bare

        def ask() -> tuple[int, bytes]:
            connection = HTTPSConnection(self._host.address, self.port, timeout=60, context=tls)
            with contextlib.closing(connection):
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()

        return self._asking.inside(ask)

    def request(
        self, method: str, path: str, body: Json | None = None, *, token: str | None = None, kind: str = ""
    ) -> Json:
        """Ask the API as the admin, or as whose token it is; ``kind`` is the content type."""
        kind = kind or (MERGE if method == "PATCH" else "application/json")
        raw = None if body is None else json.dumps(body).encode()
        status, answer = self._send(method, path, raw, {"Content-Type": kind, "Accept": "application/json"}, token)
        try:
            told: Json = json.loads(answer)
        except ValueError:
            told = {"message": answer.decode(errors="replace")}
        if not 200 <= status < 300:
            raise RefusedError(status, told)
        return told

    def get(self, path: str) -> Json:
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except RefusedError as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def text(self, path: str) -> str:
        """What a path that answers no object says, such as ``/metrics``, as the admin."""
        return self._send("GET", path, None, {}, None)[1].decode()

    def watch(self, path: str) -> Iterator[Json]:
        """What is there and then each change, as the admin, until the API server ends."""
        connection = HTTPSConnection(self._host.address, self.port, context=self._tls)
        with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException):
            while True:
                connection.request("GET", f"{path}?watch=1", headers={"Accept": "application/json"})
                answer = connection.getresponse()
                if answer.status == 200:
                    break
                if answer.status != 429:  # a new definition: its storage begins
                    raise RefusedError(answer.status, json.loads(answer.read()))
                answer.read()
                time.sleep(0.1)
            yield from map(json.loads, answer)

    def post(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        return self.request("PATCH", path, body)

    def delete(self, path: str) -> Json:
        """Delete at once, without a grace period, as the admin."""
        return self.request("DELETE", path, {"gracePeriodSeconds": 0})

    def heartbeat(self, node: str) -> str:
        """When a node last reported that it is Ready; empty where it is not."""
        if not self.exists(f"/api/v1/nodes/{node}"):
            return ""
        conditions = self.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])
        ready = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
        return str(ready[0]["lastHeartbeatTime"]) if ready else ""

    def wait(self, until: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
        """Look until it is so."""
        until_s = time.monotonic() + within_s
        while not until():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what}: not within {within_s:g} s")
            time.sleep(0.1)

    def kubectl(self, *args: str, given: str | None = None, config: Path | None = None) -> str:
        """Run kubectl (as the admin unless ``config`` says who), and return what it printed."""
        command = [*self._asking.prefix, str(built_program("kubectl"))]
        command += ["--kubeconfig", str(config or self.kubeconfig), *args]
        ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=KUBECTL_S)
        if ran.returncode:
            raise KubectlError(f"kubectl {' '.join(args)}: {ran.stderr}{ran.stdout}")
        return ran.stdout

    def apply(self, manifest: str | Path, namespace: str | None = None) -> str:
        """``kubectl apply`` YAML: its text, a file, or a folder with a kustomization."""
        where = [] if namespace is None else ["-n", namespace]
        if isinstance(manifest, str):
            return self.kubectl("apply", *where, "-f", "-", given=manifest)
        how = "-k" if manifest.is_dir() else "-f"
        return self.kubectl("apply", *where, how, str(manifest))

    def define(self, definitions: Path) -> None:
        """Install a file of CustomResourceDefinitions, and return when they are served."""
        # Not `apply` on the client: a definition may be larger than an annotation.
        how = ["--server-side", "--force-conflicts", "-o", "name"]
        names = [one.partition("/")[2] for one in self.kubectl("apply", *how, "-f", str(definitions)).split()]
        paths = [f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}" for name in names]
        self.wait(lambda: all(map(self._serves, paths)), f"{', '.join(names)} are served", 60)

    def _serves(self, definition: str) -> bool:
        """Whether objects of a kind can be listed: a little after its definition is established."""
        found = self.get(definition)
        if not _established(found):
            return False
        spec = found["spec"]
        kinds = [
            f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            for version in spec["versions"]
            if version["served"]
        ]
        try:
            return all(self.get(f"{kind}?limit=1") for kind in kinds)
        except RefusedError:
            return False

    def namespace(self, prefix: str = "test", labels: Mapping[str, str] | None = None) -> str:
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        return name

    def node(self, name: str = "", status: Json | None = None, **metadata: Any) -> str:
        """Make a Node that is Ready by what its status says (8 CPUs, 16 Gi unless given), and return its name."""
        name = name or f"node-{secrets.token_hex(4)}"
        self.post("/api/v1/nodes", {"metadata": {"name": name, **metadata}})
        size = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        given = {"capacity": size, "allocatable": size, "conditions": [ready], **(status or {})}
        self.patch(f"/api/v1/nodes/{name}/status", {"status": given})
        return name

    def account(self, namespace: str, name: str, *, pod: str | None = None, seconds: int = 3600) -> Account:
        """Make a ServiceAccount unless it is there, and a token for it.

        With ``pod`` the token is bound to it; a pod on a node gives the token the node claim.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.post(path, {"metadata": {"name": name}})
        except RefusedError as exists:
            if exists.status != 409:
                raise
        spec: Json = {"expirationSeconds": seconds}
        if pod is not None:
            uid = self.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        token = self.post(f"{path}/{name}/token", {"spec": spec})["status"]["token"]
        config = self.folder / f"{namespace}.{name}.{secrets.token_hex(4)}.kubeconfig"
        self.pki.kubeconfig(config, self.url, {"token": token})
        return Account(namespace=namespace, name=name, token=token, kubeconfig=config)

    def pod(self, namespace: str, name: str, *, node: str | None = None, **parts: Any) -> Json:
        """Make a pod, on a node if named, and return it; ``labels``, ``annotations``, ``spec`` add to it.

        No kubelet runs it: on a node it is said to be Running, as the kubelet would.
        """
        spec = {"containers": [{"name": "main", "image": "localhost/busybox:1"}], **parts.get("spec", {})}
        if node is not None:
            spec["nodeName"] = node
        metadata = {"name": name, "labels": parts.get("labels", {}), "annotations": parts.get("annotations", {})}
        pod = self.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
        if node is None:
            return pod
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": running})
