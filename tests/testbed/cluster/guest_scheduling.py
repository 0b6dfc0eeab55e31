"""Who places pods on the node in a guest: a real kube-scheduler, and Slacktide's extender when it is started."""

import contextlib
import json
from collections.abc import Iterator

from testbed.parts import Part, running_part

from .guest_node import GuestNode
from .manifests import objects
from .scheduler_rig import COMPONENT, Scheduling

SCHEDULER = "koord-scheduler"


class GuestScheduling:
    """The component ``scheduler`` on a node's cluster. Its kube-scheduler has no extender until ``extender`` runs."""

    def __init__(self, node: GuestNode) -> None:
        node.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects(COMPONENT))}))
        self._node = node
        self._scheduling = Scheduling(node)
        self._scheduling.start()

    @contextlib.contextmanager
    def extender(self) -> Iterator[Part]:
        kubeconfig, port = str(self._scheduling.account.kubeconfig), str(self._scheduling.port)
        given = ["--bootstrap", self._node.broker.bootstrap, "--kubeconfig", kubeconfig, "--port", port]
        with running_part(self._node.folder, "scheduler", *given) as part:
            part.wait_ready()
            yield part

    def stop(self) -> None:
        self._scheduling.program.stop()
