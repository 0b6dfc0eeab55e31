"""From nothing to the first suppressed pod on the real node, by the chart with a Kafka of its own: how long it takes.

    PYTHONPATH=tests python -m bench.evaluation

As root, with what `tests/testbed/setup` gets for Kubernetes, helm and Kafka. Images are in the node before the clock
starts. The parts run on the host's network, as this machine's node has no way out of a pod's.
"""

import os
import shutil
import sys
import time
from pathlib import Path

import yaml

from bench.process import PATHS
from generate.chart import CHART, KUBERNETES
from testbed.brokers import free_port
from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.helm import RELEASE, helm, rendered
from testbed.cluster.installed import OWN, WEBHOOK_PORT, here
from testbed.cluster.real_node import RealNode, running_node
from testbed.cluster.service_door import ServiceDoor

KAFKA_IMAGE = "docker.io/apache/kafka:4.1.2"
SELLS = {"enable": True, "cpuReclaimThresholdPercent": 600, "memoryReclaimThresholdPercent": 200}
"""Two CPUs, on which all else of this machine runs, too: by default they sell less than the example's CPU."""
WITHIN_S = 180.0


def values(node: RealNode) -> Json:
    """All that this machine needs beside kafka.embedded."""
    one: Json = {"replicas": 1}
    config = yaml.safe_load((CHART / "values.yaml").read_text())["policy"]["config"]
    config["resource-threshold-config"]["clusterStrategy"]["cpuSuppressSignal"] = "usage"  # whose limits can be awaited
    return {
        "kafka": {"embedded": True},
        "preflight": False,  # helm hands no hook to a post-renderer: preflight() below runs it
        "image": {"repository": images.SLACKTIDE.partition(":")[0], "tag": images.SLACKTIDE.partition(":")[2]},
        "stream": one,
        "bridge": one,
        "webhook": one,
        "scheduler": {"enabled": False},  # the node's own has the profile koord-scheduler
        "policy": {"config": config | {"colocation-config": SELLS}},
    }


def rendered_here(text: str, node: RealNode, kafka: int, controller: int) -> str:
    """The chart's objects as this machine can run them."""
    found = [each for each in yaml.safe_load_all(text) if each]
    for each in found:
        if each["kind"] in {"Deployment", "DaemonSet"}:
            here(each, node)
        if each["kind"] == "StatefulSet":
            pod = each["spec"]["template"]["spec"]
            pod["hostNetwork"] = True
            for probe in ("readinessProbe", "livenessProbe"):
                pod["containers"][0][probe]["tcpSocket"]["host"] = "127.0.0.1"
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "slacktide-kafka":
            each["data"]["SLACKTIDE_BOOTSTRAP"] = f"127.0.0.1:{kafka}"
    texts = {"slacktide-kafka.slacktide-system.svc:9092": f"127.0.0.1:{kafka}", "//:9092": f"//127.0.0.1:{kafka}"}
    texts |= {"localhost:9093": f"localhost:{controller}", "containerPort: 9092": f"containerPort: {kafka}"}
    made = yaml.safe_dump_all(found)
    for old, new in texts.items():
        made = made.replace(old, new)
    return made


def volume(node: RealNode) -> None:
    """What a cluster's storage would make of the claim."""
    folder = node.folder / "kafka"
    folder.mkdir()
    shutil.chown(folder, 1000, 1000)
    spec = {"capacity": {"storage": "8Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(folder)}}
    node.post("/api/v1/persistentvolumes", {"metadata": {"name": "kafka"}, "spec": spec})


def load(node: RealNode) -> None:
    """Put all images into the node."""
    from testbed.stack.images import kafka_archive  # noqa: PLC0415

    for tar in (images.slacktide(node.folder / "images"), kafka_archive(node.folder / "images", KAFKA_IMAGE)):
        assert node.ctr("images", "import", "--no-unpack", str(tar)) is not None, tar
    assert node.ctr("images", "tag", "--force", images.BUSYBOX, "docker.io/library/busybox:1.36") is not None


def renderer(node: RealNode, kafka: int, controller: int) -> Path:
    """A program that helm passes its objects through."""
    script = node.folder / "post-renderer"
    code = (
        "import sys; from pathlib import Path; from types import SimpleNamespace; "
        "from bench.evaluation import rendered_here; "
        f"node = SimpleNamespace(folder=Path({str(node.folder)!r}), kubelet_port={node.kubelet_port}); "
        f"sys.stdout.write(rendered_here(sys.stdin.read(), node, {kafka}, {controller}))"
    )
    path = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
    script.write_text(f"#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -c '{code.replace(chr(39), chr(34))}'\n")
    script.chmod(0o755)
    return script


def preflight(node: RealNode) -> None:
    """Run the chart's Job as helm does first, on the host's network."""
    made = rendered(values(node) | {"preflight": True})
    hooks = [each for each in made if "pre-install" in each["metadata"].get("annotations", {}).get("helm.sh/hook", "")]
    [job] = [each for each in hooks if each["kind"] == "Job"]
    job["spec"]["template"]["spec"]["hostNetwork"] = True
    node.kubectl("create", "namespace", OWN)
    node.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(hooks))
    node.kubectl("wait", "-n", OWN, "--for=condition=Complete", "job/slacktide-preflight", f"--timeout={WITHIN_S:g}s")
    print(node.kubectl("logs", "-n", OWN, "job/slacktide-preflight"))  # noqa: T201


def measure(node: RealNode) -> dict[str, float]:
    """Seconds since the first command, by what was seen then."""
    volume(node)
    load(node)
    through = str(renderer(node, free_port(), free_port()))
    seen: dict[str, float] = {}
    start_s = time.monotonic()

    def see(what: str) -> None:
        seen[what] = time.monotonic() - start_s
        print(f"{seen[what]:6.1f} s  {what}", flush=True)  # noqa: T201

    preflight(node)
    see("the preflight has succeeded")
    given = yaml.safe_dump(values(node))
    how = ["--create-namespace", "--values", "-", "--post-renderer", through]
    helm("install", RELEASE, str(CHART), *how, server=node, given=given)
    see("helm install has ended")
    service = node.get(f"/api/v1/namespaces/{OWN}/services/slacktide-webhook")["spec"]["clusterIP"]
    door = ServiceDoor(service, 443, WEBHOOK_PORT)
    try:
        for each in ("statefulset/slacktide-kafka", "deployment/slacktide-stream", "deployment/slacktide-bridge",
                     "deployment/slacktide-webhook", "daemonset/slacktide-agent"):  # fmt: skip
            node.kubectl("rollout", "status", each, "-n", OWN, f"--timeout={WITHIN_S:g}s")
            see(f"{each} is ready")
        node.kubectl("create", "namespace", "batch-demo")
        node.kubectl("label", "namespace", "batch-demo", "koordinator.sh/enable-colocation=true")
        node.apply(KUBERNETES / "examples/batch-colocation-profile.yaml")
        sold = "jsonpath={.status.allocatable.kubernetes\\.io/batch-cpu}"
        node.kubectl("wait", f"--for={sold}", "node", "--all", f"--timeout={WITHIN_S:g}s")
        see("the node sells batch resources")
        node.apply(KUBERNETES / "examples/batch-job.yaml")
        ready = ["--for=condition=Ready", "pod", "-l", "app-type=batch", f"--timeout={WITHIN_S:g}s"]
        node.kubectl("wait", "-n", "batch-demo", *ready)
        see("the batch pod runs")
        node.apply(KUBERNETES / "examples/service.yaml")
        node.kubectl("scale", "deployment", "busy-service", f"--replicas={((os.cpu_count() or 1) + 1) // 2}")
        node.wait(lambda: node.best_effort_quota_us is not None, "a limit", WITHIN_S)
        see(f"the batch pod is suppressed, at {node.best_effort_quota_us} of 100,000 us")
    finally:
        door.close()
    return seen


if __name__ == "__main__":
    with running_node() as real:
        api = ServiceDoor(real.service_ip, 443, real.port)
        try:
            took = measure(real)
        finally:
            api.close()
    sys.exit(max(took.values()) > WITHIN_S)
