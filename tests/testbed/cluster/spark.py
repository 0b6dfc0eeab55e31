"""Spark on a real node: an image, and a way from a driver to the API server, which pods of the test bed do not have."""

import contextlib
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from testbed.filled import FILES
from testbed.lan import enter
from testbed.reaching import needs
from testbed.rungs import SPARK_VERSION, spark_home

from . import images
from .real_node import RealNode
from .service_door import ServiceDoor

IMAGE = f"docker.io/apache/spark:{SPARK_VERSION}"
HOME, ENTRYPOINT = "/opt/spark", "/opt/entrypoint"


@needs("spark")
def image(folder: Path) -> Path:
    """Write the image: Spark from PyPI with this machine's Java, Python and bash."""
    layer = images.Layer()
    images.shell(layer)
    images.python(layer)
    images.java(layer)
    images.program(layer, "/bin/bash", Path(shutil.which("bash") or "").resolve())
    layer.link("/usr/bin/env", "/bin/busybox")
    images.library(layer, spark_home(), HOME)
    layer.text(ENTRYPOINT, (FILES / "spark-entrypoint").read_text())
    layer.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")  # Java asks for its user's home
    layer.folder("/root")
    made = folder / "spark.tar"
    images.archive(made, IMAGE, layer.done(), [], entrypoint=[ENTRYPOINT], SPARK_HOME=HOME)
    return made


@contextlib.contextmanager
def api_door(node: RealNode) -> Iterator[str]:
    """An address in the network of pods: who dials its port 443 reaches the API server."""
    space = node.namespace("door")
    path = f"/api/v1/namespaces/{space}/pods/api-door"
    node.pod(space, "api-door", spec={"containers": [{"name": "main", "image": images.PAUSE}]})
    node.wait(lambda: node.get(path)["status"]["phase"] == "Running", "the pod behind the door runs")
    pod = node.get(path)
    [pid, *_] = [line for file in node.group("cpu", pod).glob("*/cgroup.procs") for line in file.read_text().split()]
    thread = ThreadPoolExecutor(1, initializer=enter, initargs=(f"/proc/{pid}/ns/net",))
    address = pod["status"]["podIP"]
    door = ServiceDoor(address, 443, node.port, lambda work: thread.submit(work).result())
    try:
        yield address
    finally:
        door.close()
        thread.shutdown()
        node.kubectl("delete", "namespace", space, "--wait=false")


def settings(folder: Path, door: str) -> Path:
    """Write what this node needs beside a page's options, as Spark reads it: its folder for ``SPARK_CONF_DIR``."""
    api = {"ip": door, "hostnames": ["kubernetes.default.svc"]}
    (folder / "driver.yaml").write_text(yaml.safe_dump({"spec": {"hostAliases": [api]}}))
    (folder / "spark-defaults.conf").write_text(f"spark.kubernetes.driver.podTemplateFile {folder}/driver.yaml\n")
    return folder
