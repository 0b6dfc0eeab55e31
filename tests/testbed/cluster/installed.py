"""Slacktide on the real node, as its manifests install it; what only this machine needs is laid over them."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from testbed.brokers import KafkaBroker

from . import images
from .api_server import Json, KubectlError
from .real_node import RealNode
from .service_door import ServiceDoor

MANIFESTS = Path(__file__).parents[3] / "deploy/kubernetes"
OWN = "slacktide-system"
DEPLOYMENTS = ("slacktide-stream", "slacktide-bridge", "slacktide-webhook")
WEBHOOK_PORT = 8443
METRICS = "--metrics-host=127.0.0.1"
ROLLOUT_S = 180.0
CAP_SYS_RESOURCE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of the product: where its manifests are, and the name of its image."""

    manifests: Path = MANIFESTS
    image: str = images.SLACKTIDE
    components: tuple[str, ...] = ()
    """Of its manifests, in addition to what all have."""


NOW = Version()


def manifests(node: RealNode, bootstrap: str, version: Version = NOW) -> list[Json]:
    """What ``kubectl apply -k deploy/kubernetes`` applies with Kafka in plain text, as this machine can run it."""
    found = [each for each in yaml.safe_load_all(node.kubectl("kustomize", str(_plain(node, version)))) if each]
    found = [each for each in found if each["metadata"]["name"] != "slo-controller-config"]  # of the tests
    for each in found:
        if each["kind"] in {"Deployment", "DaemonSet"}:
            here(each, node, version.image)
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "slacktide-kafka":
            each["data"]["SLACKTIDE_BOOTSTRAP"] = bootstrap
    return found


def _plain(node: RealNode, version: Version) -> Path:
    """A kustomization of a version without logins to Kafka; those of 0.1.0 have none."""
    folder = node.folder.resolve() / "kustomization"
    folder.mkdir(exist_ok=True)
    overlay = version.manifests.parent.name == "overlays"
    there = (version.manifests.parents[1] if overlay else version.manifests) / "components"
    components = [there / name for name in (*version.components, "plain-kafka") if (there / name).is_dir()]
    named = {"resources": [version.manifests], "components": components}
    relative = {key: [os.path.relpath(path, folder) for path in paths] for key, paths in named.items()}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(relative))
    return folder


def here(workload: Json, node: RealNode, image: str = images.SLACKTIDE) -> None:
    """One replica on the one node; no way to the host but its network; the image, kubelet and state of the tests.

    That a pod is ready is asked each second: tests wait for it. Two replicas do not fit on the network of one host, so
    a rollout ends the old one first.
    """
    spec = workload["spec"]
    spec.pop("replicas", None)
    if workload["kind"] == "Deployment":
        spec["strategy"] = {"type": "Recreate"}
    pod = spec["template"]["spec"]
    pod["hostNetwork"] = True
    # No cluster DNS: the enrolment's Service is the bridge on loopback.
    pod["hostAliases"] = [{"ip": "127.0.0.1", "hostnames": [f"slacktide-bridge.{OWN}.svc"]}]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        container["image"] = image
        if "args" in container:
            container["args"] = [_kubelet(each, node) for each in container["args"]] + LOOPBACK[container["name"]]
        for probe in ("livenessProbe", "readinessProbe"):
            container.get(probe, {"httpGet": {}})["httpGet"]["host"] = "127.0.0.1"
        container.get("readinessProbe", {})["periodSeconds"] = 1
        added = container["securityContext"]["capabilities"].get("add", [])
        container["securityContext"]["capabilities"]["add"] = [each for each in added if has(each)]
    for volume in pod.get("volumes", []):
        if volume.get("hostPath", {}).get("path") == "/var/lib/slacktide":
            volume["hostPath"]["path"] = f"{node.folder}/agent"


# Given again, an option's last value counts.
LOOPBACK = {
    "webhook": ["--host=127.0.0.1", METRICS],
    "bridge": ["--enrol-host=127.0.0.1", METRICS],
    "stream": [METRICS],
    "agent": [METRICS],
    "queue": [METRICS],
}


def _named(each: Json) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def _kubelet(argument: str, node: RealNode) -> str:
    return f"--kubelet=https://127.0.0.1:{node.kubelet_port}" if argument.startswith("--kubelet=") else argument


def has(capability: str) -> bool:
    """Whether this machine may give it: in a container SYS_RESOURCE is often missing."""
    held = int(re.findall(r"CapBnd:\s+(\w+)", Path("/proc/self/status").read_text())[0], 16)
    return capability != "SYS_RESOURCE" or bool(held >> CAP_SYS_RESOURCE & 1)


class Installed:
    """The product in the cluster of a node, with Kafka beside it."""

    def __init__(self, node: RealNode, kafka: KafkaBroker) -> None:
        self.node = node
        self.kafka = kafka
        self._doors: list[ServiceDoor] = []
        self._imported = False

    def start(self, version: Version = NOW) -> None:
        """Install it, again where it was removed, and return when all its parts are ready."""
        self.stop()
        node = self.node
        if not self._imported:
            image = images.slacktide(node.folder / "images")
            self._imported = node.ctr("images", "import", "--no-unpack", str(image)) is not None
            assert self._imported, "containerd refused the image"
        self._doors.append(ServiceDoor(node.service_ip, 443, node.port))
        self.apply(version)
        service = node.get(f"/api/v1/namespaces/{OWN}/services/slacktide-webhook")["spec"]["clusterIP"]
        self._doors.append(ServiceDoor(service, 443, WEBHOOK_PORT))
        self.wait_ready()

    def apply(self, version: Version) -> None:
        """Apply the manifests of a version: over another one it is an upgrade, or a roll back."""
        wanted = manifests(self.node, self.kafka.bootstrap, version)
        first = [each for each in wanted if each["kind"] in {"Namespace", "CustomResourceDefinition"}]
        for part in (first, [each for each in wanted if each not in first]):
            self.node.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(part))

    @contextlib.contextmanager
    def with_components(self, *components: str) -> Iterator[None]:
        """With components of the manifests, ready; what they brought is gone afterwards."""
        version = Version(components=components)
        stays = {_named(each) for each in manifests(self.node, self.kafka.bootstrap)}
        wanted = manifests(self.node, self.kafka.bootstrap, version)
        added = [each for each in wanted if _named(each) not in stays]
        try:
            self.apply(version)
            self.wait_ready()
            for each in added:
                if each["kind"] == "Deployment":
                    self.ready(f"deployment/{each['metadata']['name']}")
            yield
        finally:
            self.node.kubectl("delete", "--ignore-not-found", "-f", "-", given=yaml.safe_dump_all(added))
            self.apply(NOW)
            self.wait_ready()

    def wait_ready(self) -> None:
        for each in [*(f"deployment/{name}" for name in DEPLOYMENTS), "daemonset/slacktide-agent"]:
            self.ready(each)

    def ready(self, workload: str) -> None:
        try:
            self.node.kubectl("rollout", "status", workload, "-n", OWN, f"--timeout={ROLLOUT_S:g}s")
        except KubectlError as late:
            told = [self.node.kubectl("get", "pods", "-n", OWN, "-o", "wide"), self.logs(workload)]
            raise TimeoutError("\n".join([str(late), *told])) from late

    def logs(self, workload: str) -> str:
        try:
            return self.node.kubectl("logs", workload, "-n", OWN, "--all-containers", "--tail=40")
        except KubectlError as none:
            return f"{none}\n{self.node.kubectl('get', 'events', '-n', OWN)}"

    def explain(self, *args: str, given: str | None = None) -> str:
        """What ``slacktide explain`` says, asked from outside the cluster."""
        command = [sys.executable, "-m", "slacktide.deploy.cli.main", "explain", *args]
        asked = [*command, "--bootstrap", self.kafka.bootstrap]
        ran = subprocess.run(asked, input=given, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, f"explain {' '.join(args)}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def stop(self) -> None:
        """Close the doors; the node takes the rest along."""
        for door in self._doors:
            door.close()
        self._doors.clear()
