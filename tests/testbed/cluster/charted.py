"""The chart on the real node: its objects as this machine can run them, hooks included.

Helm passes what it renders through this module as a program, but not hooks: these are changed in a copy of the chart.
"""

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from . import images
from .helm import CHART
from .installed import here
from .real_node import RealNode

HOOK_POD = "restartPolicy: Never\n"
"""How the template of each hook's pod begins."""


def copied(folder: Path) -> Path:
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    helpers = chart / "templates/_helpers.tpl"
    text = helpers.read_text()
    assert text.count(HOOK_POD) == 1
    helpers.write_text(text.replace(HOOK_POD, f"{HOOK_POD}hostNetwork: true\n"))
    return chart


def renderer(node: RealNode, folder: Path) -> Path:
    script = folder / "post-renderer"
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    program = f"{sys.executable} -m testbed.cluster.charted {node.folder} {node.kubelet_port}"
    script.write_text(f"#!/bin/sh\nPYTHONPATH={path} exec {program}\n")
    script.chmod(0o755)
    return script


def values(bootstrap: str) -> dict[str, Any]:
    """What this machine needs beside the defaults; the node's own scheduler has the profile koord-scheduler."""
    repository, _, tag = images.SLACKTIDE.partition(":")
    one = {"replicas": 1}
    return {
        "kafka": {"bootstrap": bootstrap, "secured": False},
        "image": {"repository": repository, "tag": tag},
        "stream": one,
        "bridge": one,
        "webhook": one,
        "scheduler": {"enabled": False},
        "policy": {"create": False},
    }


def main(folder: str, kubelet_port: str) -> None:
    found = [each for each in yaml.safe_load_all(sys.stdin) if each]
    node: Any = SimpleNamespace(folder=Path(folder), kubelet_port=int(kubelet_port))
    for each in found:
        if each["kind"] in {"Deployment", "DaemonSet"}:
            here(each, node, each["spec"]["template"]["spec"]["containers"][0]["image"])
    sys.stdout.write(yaml.safe_dump_all(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
