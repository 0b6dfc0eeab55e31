"""The real Koordinator: koord-manager beside an API server and koordlet on the test bed's node, as processes.

Its manifests are the module's own, but for what they run: the processes take the accounts and the names that its chart
gives them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed.brokers import free_port
from testbed.reaching import needs
from testbed.rungs import built_program

from .api_server import ApiServer, flagged
from .programs import Program, answers, unverified
from .real_node import RealNode

NAMESPACE = "koordinator-system"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/slo-controller-config"
START_S = 120.0
TOKEN_S = 24 * 3600
BINDINGS = {"koord-manager": "manager-role", "koordlet": "koordlet-role"}
"""By account, its ClusterRole."""
ENABLED = {"colocation-config": {"enable": True}, "resource-threshold-config": {"clusterStrategy": {"enable": True}}}
"""As its manifests have it."""


@needs("koordinator")
def install(server: ApiServer, config: Mapping[str, Any] = ENABLED) -> None:
    """Install its definitions, PriorityClasses, accounts and policy; all but its programs and webhooks."""
    manifests = built_program("koord-manager").parent / "config"
    for each in sorted((manifests / "crd/bases").iterdir()):
        server.define(each)
    for each in sorted((manifests / "manager").glob("koord-*.yaml")):
        made = yaml.safe_load(each.read_text())
        if made["kind"] == "PriorityClass":
            made["metadata"]["name"] = f"koord-{made['metadata']['name']}"
            server.apply(yaml.safe_dump(made))
    if not server.exists(f"/api/v1/namespaces/{NAMESPACE}"):
        server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    roles = [manifests / "rbac/role.yaml", manifests / "rbac/koordlet.yaml"]
    for one in (one for each in roles for one in yaml.safe_load_all(each.read_text())):
        if one and one["kind"] == "ClusterRole":
            server.apply(yaml.safe_dump(one))
    for account, role in BINDINGS.items():
        server.apply(f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {account}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}
subjects: [{{kind: ServiceAccount, name: {account}, namespace: {NAMESPACE}}}]
""")
    configure(server, config)


def configure(server: ApiServer, config: Mapping[str, Any]) -> None:
    """Set its ConfigMap."""
    metadata = {"name": "slo-controller-config", "namespace": NAMESPACE}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    server.apply(yaml.safe_dump(made | {"data": {name: json.dumps(value) for name, value in config.items()}}))


class Manager:
    """koord-manager: computes what nodes sell and, unless without ``webhooks``, admits pods."""

    def __init__(self, server: ApiServer, *, webhooks: bool = True, qps: int = 30) -> None:
        """Not started yet; ``qps``: its limit of requests, 30 unless set."""
        self._server, self._webhooks, self._qps = server, webhooks, qps
        self._ports = {name: free_port() for name in ("health", "metrics", "webhook")}
        self.url = f"https://127.0.0.1:{self._ports['webhook']}"
        """Where its webhooks answer."""
        self.program = Program("koord-manager", server.folder / "koord-manager.log")

    def start(self) -> None:
        """Start it; with webhooks, return when the API server has been told of them."""
        if self._webhooks:
            self._register()
        account = self._server.account(NAMESPACE, "koord-manager", seconds=TOKEN_S)
        certificates = self._server.folder / "koord-manager"
        environment = [
            "WEBHOOK_HOST=127.0.0.1",
            f"WEBHOOK_PORT={self._ports['webhook']}",
            f"WEBHOOK_CERT_DIR={certificates}",
            f"POD_NAMESPACE={NAMESPACE}",
        ]
        flags = {
            "kubeconfig": str(account.kubeconfig),
            "enable-leader-election": "false",
            "metrics-addr": f"127.0.0.1:{self._ports['metrics']}",
            "health-probe-addr": f"127.0.0.1:{self._ports['health']}",
            "enable-pprof": "false",
            "config-namespace": NAMESPACE,
            "rest-config-qps": str(self._qps),
            "rest-config-burst": str(2 * self._qps),
            "feature-gates": f"WebhookFramework={str(self._webhooks).lower()}",
            "v": "4",
            "logtostderr": "true",
        }
        ready = f"http://127.0.0.1:{self._ports['metrics']}/metrics"
        command = ["env", *environment, str(built_program("koord-manager")), *flagged(flags)]
        self.program.start(command, lambda: answers(ready), START_S)
        if self._webhooks:
            self._server.wait(lambda: answers(f"{self.url}/healthz", unverified()), "its webhooks answer")

    def _register(self) -> None:
        """It gives them its address and certificate itself."""
        folder = built_program("koord-manager").parent / "config/webhook"
        for one in yaml.safe_load_all(self._server.kubectl("kustomize", str(folder))):
            if one["kind"] != "Service":
                one["metadata"]["name"] = f"koordinator-{one['metadata']['name']}"
                self._server.apply(yaml.safe_dump(one))

    def stop(self) -> None:
        """End it, and let the API server forget its webhooks."""
        self.program.stop()
        if self._webhooks:
            for kind in ("mutating", "validating"):
                plural = f"{kind}webhookconfigurations"
                name = f"koordinator-{kind}-webhook-configuration"
                self._server.delete(f"/apis/admissionregistration.k8s.io/v1/{plural}/{name}")


class Koordlet:
    """koordlet on the node, with ``proc`` as its /proc."""

    def __init__(self, node: RealNode, *, proc: Path = Path("/proc"), gates: str = "BEMemoryEvict=true") -> None:
        self._node, self._proc, self._gates = node, proc, gates
        self._port = free_port()
        self.program = Program("koordlet", node.folder / "koordlet.log")

    def start(self) -> None:
        """Start it; return when it serves its metrics."""
        node, folder = self._node, self._node.folder / "koordlet"
        places = {name: folder / name for name in ("metrics", "checkpoints", "hooks", "devices", "run")}
        for each in places.values():
            each.mkdir(parents=True, exist_ok=True)
        account = node.account(NAMESPACE, "koordlet", seconds=TOKEN_S)
        environment = [f"KUBECONFIG={account.kubeconfig}", f"NODE_NAME={node.name}", "agent_mode=hostMode"]
        socket = str(places["run"] / "koordlet.sock")
        flags = {
            "addr": f"127.0.0.1:{self._port}",
            "cgroup-root-dir": "/sys/fs/cgroup/",
            "proc-root-dir": f"{self._proc}/",
            "var-lib-kubelet-dir": f"{node.folder}/kubelet/",
            "containerd-endpoint": f"{node.folder}/containerd.sock",
            "kubelet-preferred-address-type": "Hostname",
            "tsdb-path": f"{places['metrics']}/",
            "prediction-checkpoint-filepath": str(places["checkpoints"]),
            "pod-resources-proxy-path": str(places["run"] / "pod-resources"),
            "xpu-device-infos-dir": str(places["devices"]),
            "runtime-hooks-network": "unix",
            "runtime-hooks-addr": socket,
            "runtime-hooks-host-endpoint": socket,
            "runtime-hooks-config-path": str(places["hooks"]),
            "feature-gates": self._gates,
            "logtostderr": "true",
            "v": "4",
        }
        command = [*node.naming_itself(), "env", *environment, str(built_program("koordlet")), *flagged(flags)]
        self.program.start(command, lambda: answers(f"http://127.0.0.1:{self._port}/metrics"), START_S)

    def stop(self) -> None:
        """End it; what it wrote into control groups stays."""
        self.program.stop()
