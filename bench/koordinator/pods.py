"""The pods that both systems have on the node: a service and its load, batch work, and pods that do nothing."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.cluster import images
from testbed.cluster.real_node import RealNode

Json = dict[str, Any]
PLACE = "bench"
LOAD, SERVICE, BATCH = "ls-load", "ls-serve", ("be-burn-0", "be-burn-1")
SERVES = ("serve", "100", "2000")
"""100 requests a second, each 2 ms of CPU time."""
IDLE_SERVICES, IDLE_BATCH = 3, 8
BURN_MILLI, IDLE_MILLI = 200, 20
BATCH_MILLI = len(BATCH) * BURN_MILLI + IDLE_BATCH * IDLE_MILLI
"""What batch work requests."""


def pod(name: str, qos: str, resources: Json, *command: str, image: str = images.BURN) -> Json:
    """One of the bench's."""
    tier = "prod" if qos == "LS" else "batch"
    container = {"name": "main", "image": image, "command": list(command), "resources": resources}
    spec = {
        "priorityClassName": f"koord-{tier}",
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
    }
    return {"metadata": {"name": name, "labels": {"koordinator.sh/qosClass": qos}}, "spec": spec}


def _service() -> Json:
    resources = {"requests": {"cpu": "300m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}}
    return pod(SERVICE, "LS", resources, "burn", *SERVES)


def _services() -> list[Json]:
    busy = {"requests": {"cpu": "300m", "memory": "32Mi"}, "limits": {"cpu": "800m", "memory": "128Mi"}}
    idle = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "20m", "memory": "32Mi"}}
    return [
        pod(LOAD, "LS", busy, "burn", "spin", "1"),
        _service(),
        *(pod(f"ls-idle-{at}", "LS", idle, "/pause", image=images.PAUSE) for at in range(IDLE_SERVICES)),
    ]


def batch(name: str, *command: str, cpu_milli: int, most_milli: int, mem_mib: int, image: str = images.BURN) -> Json:
    """A pod of batch work, which may use more CPU than it requests."""
    memory = {"kubernetes.io/batch-memory": f"{mem_mib}Mi"}
    resources = {
        "requests": memory | {"kubernetes.io/batch-cpu": str(cpu_milli)},
        "limits": memory | {"kubernetes.io/batch-cpu": str(most_milli)},
    }
    return pod(name, "BE", resources, *command, image=image)


def _batch() -> list[Json]:
    burns = [batch(name, "burn", "spin", "1", cpu_milli=BURN_MILLI, most_milli=2000, mem_mib=64) for name in BATCH]
    idle = (f"be-idle-{at}" for at in range(IDLE_BATCH))
    return [
        *burns,
        *(
            batch(name, "/pause", cpu_milli=IDLE_MILLI, most_milli=IDLE_MILLI, mem_mib=32, image=images.PAUSE)
            for name in idle
        ),
    ]


class Pods:
    """They run on the node until it goes; the load is stopped unless asked."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        if not node.exists(f"/api/v1/namespaces/{PLACE}"):
            node.post("/api/v1/namespaces", {"metadata": {"name": PLACE}})
            node.wait(lambda: node.exists(f"/api/v1/namespaces/{PLACE}/serviceaccounts/default"), "its account")

    def start_services(self) -> None:
        """The service, its load, and what is idle."""
        self.start(*_services())
        self._load = self.group(LOAD, "cpuacct")
        self.load(on=False)

    def renew_service(self) -> None:
        """Begin anew: what the service owes from a time when the machine had none to give does not count."""
        self.remove(SERVICE)
        self.start(_service())

    def start_batch(self) -> None:
        """Once the node offers batch resources."""
        self.start(*_batch())

    def start(self, *pods: Json) -> None:
        """Make pods, and wait until they run."""
        for each in pods:
            self._node.post(f"/api/v1/namespaces/{PLACE}/pods", each)
        names = {each["metadata"]["name"] for each in pods}
        self._node.wait(lambda: names <= self._running().keys(), f"{', '.join(sorted(names))} run", 180)

    def remove(self, *names: str) -> None:
        """Remove pods, and wait until they are gone."""
        path = f"/api/v1/namespaces/{PLACE}/pods"
        for name in names:
            if self._node.exists(f"{path}/{name}"):
                self._node.delete(f"{path}/{name}")
            self._node.wait(lambda: not self._node.exists(f"{path}/{name}"), f"{name} is gone")  # noqa: B023

    def _running(self) -> Mapping[str, Json]:
        return {
            one["metadata"]["name"]: one
            for one in self._node.pods(PLACE)
            if one["status"]["phase"] == "Running" and one["status"].get("qosClass")
        }

    @property
    def has_batch(self) -> bool:
        """Whether batch work runs."""
        return set(BATCH) <= self._running().keys()

    def used_s(self, *names: str) -> float:
        """CPU seconds of pods so far."""
        return sum(int((self.group(name, "cpuacct") / "cpuacct.usage").read_text()) for name in names) / 1e9

    def load_used_s(self) -> float:
        """CPU seconds of the load so far."""
        return int((self._load / "cpuacct.usage").read_text()) / 1e9

    def group(self, name: str, controller: str) -> Path:
        """Its control group."""
        return self._node.group(controller, self._running()[name])

    def load(self, *, on: bool) -> None:
        """Let the service's load run, or stop it where it stands."""
        for procs in self.group(LOAD, "cpu").rglob("cgroup.procs"):
            for pid in map(int, procs.read_text().split()):
                if b"burn" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)

    def served(self) -> list[Json]:
        """What the service said each second so far."""
        lines = self._node.kubectl("logs", SERVICE, "-n", PLACE).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
