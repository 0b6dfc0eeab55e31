"""The components of the scheduler on the real node: its kube-scheduler and extender run beside the node."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from slacktide.schemas.units import cpu_milli
from slacktide.streams.decisions.load.load_aware_estimator import ANNOTATION
from testbed.brokers import free_port

from .installed import OWN, Installed
from .programs import Program, answers
from .scheduler_rig import ACCOUNT, COMPONENT, Scheduling

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))


@contextlib.contextmanager
def own_scheduler(slacktide: Installed, folder: Path, component: str) -> Iterator[None]:
    """With one more component, whose name is the extender's option, too. No other pods are placed meanwhile."""
    node = slacktide.node
    for name in ("service-account", "rbac", "configuration", "cores-policy"):
        node.apply(COMPONENT / f"{name}.yaml")
    for each in yaml.safe_load_all((COMPONENT / "deployment.yaml").read_text()):
        if each["kind"] == "Deployment":
            node.apply(yaml.safe_dump({**each, "spec": {**each["spec"], "replicas": 0}}))
    apply_component(slacktide, component)
    # Other tests fill the machine with load, which must not keep pods away here.
    annotation = json.dumps({"usageThresholds": {"cpu": 0, "memory": 0}})
    node.kubectl("annotate", "node", node.name, f"{ANNOTATION}={annotation}", "--overwrite")
    scheduling, extender = Scheduling(node), Program("slacktide scheduler", folder / "scheduler.log")
    given = {
        "bootstrap": slacktide.kafka.bootstrap,
        "kubeconfig": scheduling.account.kubeconfig,
        "port": scheduling.port,
        "metrics-port": (port := free_port()),
    }
    command = [SLACKTIDE, "scheduler", f"--{component}", *(f"--{name}={value}" for name, value in given.items())]
    node.scheduler.stop()  # it places pods of every scheduler's name, and asks nobody
    try:
        extender.start(command, lambda: answers(f"http://127.0.0.1:{port}/ready"))
        scheduling.start()
        yield
    finally:
        scheduling.program.stop()
        extender.stop()
        node.start()
        node.kubectl("annotate", "node", node.name, f"{ANNOTATION}-")
        node.kubectl("delete", "clusterrolebinding", ACCOUNT, f"{ACCOUNT}-{component}")


def apply_component(slacktide: Installed, component: str) -> None:
    """What a component adds; not its patches of Deployments."""
    folder = COMPONENT.parent / component
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        slacktide.node.apply(folder / name)


@contextlib.contextmanager
def with_option(slacktide: Installed, part: str, option: str) -> Iterator[None]:
    """One of the product's Deployments with one more option."""
    path = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-{part}"
    [container] = slacktide.node.get(path)["spec"]["template"]["spec"]["containers"]

    def given(args: list[str]) -> None:
        patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}]
        slacktide.node.kubectl(
            "patch", f"deployment/slacktide-{part}", "-n", OWN, "--type=json", "-p", json.dumps(patch)
        )
        slacktide.ready(f"deployment/slacktide-{part}")

    given([*container["args"], option])
    try:
        yield
    finally:
        given(container["args"])


def free_milli(slacktide: Installed) -> int:
    """CPU of the node that no running pod requests."""
    node = slacktide.node
    return cpu_milli(node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]["cpu"]) - sum(
        cpu_milli(container["resources"]["requests"]["cpu"])
        for pod in node.get("/api/v1/pods")["items"]
        if pod["status"]["phase"] == "Running"
        for container in pod["spec"]["containers"]
        if "cpu" in container.get("resources", {}).get("requests", {})
    )
