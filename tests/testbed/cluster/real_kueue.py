"""The real Kueue beside an API server: a process of this machine, with its own definitions and its webhooks by URL."""

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from testbed.brokers import free_port
from testbed.filled import filled
from testbed.reaching import needs
from testbed.rungs import built_program

from .api_server import ApiServer
from .programs import Program, answers

GROUPS = {"batch", "kueue.x-k8s.io"}
"""Whose objects exist here: a webhook for others would never be asked."""
NAMESPACE = "kueue-system"
START_S = 120.0
AT_HOME = 'mount --bind "$1" /etc && shift && exec "$@"'
"""Kueue reads the certificate of its metrics at one place below /etc: only it sees another /etc."""


@needs("kueue")
class Kueue:
    """Manages Jobs that name a LocalQueue, once ``start`` has returned."""

    def __init__(self, server: ApiServer, *, fair_sharing: bool = False, qps: int = 300) -> None:
        """Not started yet; ``qps``: its limit of requests, 300 as in its manifests."""
        self._server, self._fair_sharing, self._qps = server, fair_sharing, qps
        self._folder = server.folder / "kueue"
        self._ports = {name: free_port() for name in ("health", "metrics", "webhook")}
        self._webhooks: list[str] = []
        self.program = Program("kueue", server.folder / "kueue.log")

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.program.pid

    @property
    def _built(self) -> Path:
        return built_program("kueue").parent

    def start(self) -> None:
        """Install its definitions, start it, and let the API server ask its webhooks."""
        server = self._server
        server.define(self._built / "crds.yaml")
        if not server.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        home = self._folder / "etc"
        for folder in (certificates := self._folder / "webhook", home / "kueue/metrics/certs"):
            folder.mkdir(parents=True, exist_ok=True)
            both = server.pki.certificate("kueue", "/CN=kueue", "IP:127.0.0.1")
            for made, name in zip(both, ("tls.crt", "tls.key"), strict=True):
                (folder / name).write_bytes(made.read_bytes())
        config = filled("kueue.yaml", certificates=certificates, qps=self._qps, **self._ports)
        if self._fair_sharing:
            strategies = "[LessThanOrEqualToFinalShare, LessThanInitialShare]"
            config += f"fairSharing: {{preemptionStrategies: {strategies}}}\n"
        (self._folder / "config.yaml").write_text(config)
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        command = ["unshare", "--mount", *root, "sh", "-c", AT_HOME, "sh", str(home), str(built_program("kueue"))]
        flags = [f"--kubeconfig={server.kubeconfig}", f"--config={self._folder / 'config.yaml'}"]
        logs = ["--zap-log-level=2", "--zap-encoder=json", "--zap-devel=false"]
        ready = f"http://127.0.0.1:{self._ports['health']}/readyz"
        self.program.start([*command, *flags, *logs], lambda: answers(ready), START_S)
        self._ask_webhooks()

    def _ask_webhooks(self) -> None:
        trusted = base64.b64encode(self._server.ca.read_bytes()).decode()
        for one in yaml.safe_load_all((self._built / "webhooks.yaml").read_text()):
            hooks = [each for each in one["webhooks"] if GROUPS & {*_groups(each)}]
            for each in hooks:
                url = f"https://127.0.0.1:{self._ports['webhook']}{each['clientConfig']['service']['path']}"
                each["clientConfig"] = {"url": url, "caBundle": trusted}
            name = f"kueue-{one['metadata']['name']}"
            plural = f"{one['kind'].lower()}s"
            self._server.post(
                f"/apis/{one['apiVersion']}/{plural}", one | {"metadata": {"name": name}, "webhooks": hooks}
            )
            self._webhooks.append(f"/apis/{one['apiVersion']}/{plural}/{name}")

    def stop(self) -> None:
        """End it, and let the API server forget its webhooks; its objects stay."""
        while self._webhooks:
            self._server.delete(self._webhooks.pop())
        self.program.stop()


def _groups(hook: dict[str, Any]) -> list[str]:
    return [group for rule in hook["rules"] for group in rule["apiGroups"]]
