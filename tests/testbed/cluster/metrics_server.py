"""metrics-server beside a real node, which ``kubectl top`` asks: a process that serves the metrics API."""

from testbed.brokers import free_port
from testbed.filled import FILES
from testbed.reaching import needs
from testbed.rungs import built_program

from .api_server import flagged
from .programs import Program
from .real_node import RealNode
from .service_door import ServiceDoor

NAME, SYSTEM = "metrics-server", "kube-system"
API = "/apis/metrics.k8s.io/v1beta1"
OFFERED = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
RESOLUTION_S = 10
"""Between two looks at the kubelet: the least that it accepts."""


@needs("metricsserver")
class MetricsServer:
    def __init__(self, node: RealNode) -> None:
        self._node = node
        self._port = free_port()
        self._program = Program(NAME, node.folder / f"{NAME}.log")
        self._door: ServiceDoor | None = None

    def start(self) -> None:
        node = self._node
        crt, key = node.pki.certificate(NAME, f"/CN={NAME}")
        config = str(node.kubeconfig)
        flags = {
            "kubeconfig": config,
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            "kubelet-certificate-authority": str(node.ca),
            "kubelet-preferred-address-types": "Hostname",
            "kubelet-use-node-status-port": "true",
            "metric-resolution": f"{RESOLUTION_S}s",
            "kubelet-request-timeout": f"{RESOLUTION_S - 1}s",
            "bind-address": "127.0.0.1",
            "secure-port": str(self._port),
            "tls-cert-file": str(crt),
            "tls-private-key-file": str(key),
        }
        self._program.spawn([*node.naming_itself(), str(built_program(NAME)), *flagged(flags)])
        node.apply(FILES / "metrics-server.yaml")
        address = node.get(f"/api/v1/namespaces/{SYSTEM}/services/{NAME}")["spec"]["clusterIP"]
        self._door = ServiceDoor(address, 443, self._port)
        self._program.await_ready(self._offered, within_s=120)

    def _offered(self) -> bool:
        conditions = self._node.get(OFFERED).get("status", {}).get("conditions", [])
        return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)

    def stop(self) -> None:
        """Take the API back: without its server, clients that ask for all APIs get an error."""
        self._node.kubectl("delete", "apiservice", "v1beta1.metrics.k8s.io", "--ignore-not-found")
        if self._door is not None:
            self._door.close()
        self._program.stop()
