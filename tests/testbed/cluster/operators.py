"""The operators of JobSet and MPIJob beside a real node: their own controllers, as processes on loopback."""

import base64
import json

import yaml

from testbed.brokers import free_port
from testbed.reaching import needs
from testbed.rungs import built_program

from .api_server import flagged
from .programs import Program, answers
from .real_node import RealNode

MANIFESTS = built_program("jobset").parent
DEFINITIONS = ("jobset.x-k8s.io_jobsets.yaml", "kubeflow.org_mpijobs.yaml")
"""Of their kinds, as the modules have them."""
OF_JOBSETS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
"""The pods about which JobSet's webhook is asked."""


@needs("operators")
class Operators:
    def __init__(self, node: RealNode) -> None:
        self._node = node
        self._jobset = Program("jobset", node.folder / "jobset.log")
        self._mpi = Program("mpi-operator", node.folder / "mpi-operator.log")
        self._ports = {"webhook": free_port(), "health": free_port()}
        self._webhooks = ""

    def start(self) -> None:
        node = self._node
        for name in DEFINITIONS:
            node.kubectl("create", "-f", str(MANIFESTS / name))  # too large for what apply remembers
        node.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self._jobset.spawn([str(built_program("jobset")), *flagged(self._jobset_flags())])
        self._mpi.spawn([str(built_program("mpi-operator")), "--kubeConfig", str(node.kubeconfig)])
        health = f"http://127.0.0.1:{self._ports['health']}/readyz"
        self._jobset.await_ready(lambda: answers(health))
        self._mpi.await_ready(lambda: "Started workers" in self._mpi.log.read_text())
        self._webhooks = self._webhooks_by_address()
        node.apply(self._webhooks)

    def _jobset_flags(self) -> dict[str, str]:
        folder = self._node.folder / "jobset"
        folder.mkdir(mode=0o700)
        for made, name in zip(
            self._node.pki.certificate("jobset", "/CN=jobset", "IP:127.0.0.1"), ("crt", "key"), strict=True
        ):
            (folder / f"tls.{name}").write_bytes(made.read_bytes())
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._ports['health']}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": self._ports["webhook"], "certDir": str(folder)},
        }
        (folder / "config.json").write_text(json.dumps(config))
        return {"config": f"{folder}/config.json", "kubeconfig": str(self._node.kubeconfig)}

    def _webhooks_by_address(self) -> str:
        """JobSet's own webhooks, which the API server finds without a Service."""
        found = list(yaml.safe_load_all((MANIFESTS / "manifests.yaml").read_text()))
        ca = base64.b64encode(self._node.ca.read_bytes()).decode()
        for each in found:
            each["metadata"]["name"] = f"jobset-{each['metadata']['name']}"
            for hook in each["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": f"https://127.0.0.1:{self._ports['webhook']}{path}", "caBundle": ca}
                if "pods" in hook["rules"][0]["resources"]:
                    hook["objectSelector"] = OF_JOBSETS
        return yaml.safe_dump_all(found)

    def stop(self) -> None:
        """Take the webhooks back first: without its server no object of theirs could be written."""
        node = self._node
        if self._webhooks:
            node.kubectl("delete", "--ignore-not-found", "-f", "-", given=self._webhooks)
        for name in DEFINITIONS:
            node.kubectl("delete", "--ignore-not-found", "-f", str(MANIFESTS / name))
        self._mpi.stop()
        self._jobset.stop()
