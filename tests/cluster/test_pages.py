"""The pages about Kubernetes are run as they are written, on an empty API server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import MANIFESTS
from testbed.cluster.told import Command, commands

pytestmark = pytest.mark.cluster

# What Koordinator has made where it runs, as far as the page goes.
KOORDLET = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "koordlet", "namespace": "koordinator-system"},
    "spec": {
        "selector": {"matchLabels": {"koord-app": "koordlet"}},
        "template": {
            "metadata": {"labels": {"koord-app": "koordlet"}},
            "spec": {"containers": [{"name": "koordlet", "image": "koordlet"}]},
        },
    },
}
PATIENCE_S = 20.0


@pytest.fixture
def empty() -> Iterator[ApiServer]:
    """A cluster of its own on which nothing was done yet."""
    with running(ApiServer) as server:
        yield server


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The repository's root, as far as the pages go."""
    shutil.copytree(MANIFESTS, tmp_path / "deploy/kubernetes")
    return tmp_path


def run(server: ApiServer, checkout: Path, command: Command) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "PATH": path}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.text],
        cwd=checkout,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def follow(server: ApiServer, checkout: Path, page: str) -> int:
    """Run a page's commands that need no node, and return how many; each does and prints what the page shows."""
    asked = [command for command in commands(page) if not command.needs_a_node]
    for command in asked:
        until_s = time.monotonic() + (PATIENCE_S if command.refused else 0)
        while True:
            done = run(server, checkout, command)
            if (done.returncode != 0) is command.refused and command.fits(done.stdout or done.stderr):
                break
            # Policies are in force a moment after they were applied.
            assert time.monotonic() < until_s, f"{command.text}\n{done.returncode}: {done.stdout}{done.stderr}"
            time.sleep(0.2)
    return len(asked)


def test_from_an_empty_cluster(empty: ApiServer, checkout: Path) -> None:
    assert follow(empty, checkout, "kubernetes.md") >= 15


def test_beside_koordinator(empty: ApiServer, checkout: Path) -> None:
    empty.kubectl("apply", "-k", str(MANIFESTS / "language"))
    empty.kubectl("apply", "-f", "-", given=json.dumps(KOORDLET))
    empty.kubectl("create", "clusterrole", "koord-manager", "--verb=*", "--resource=nodes,nodes/status")
    subject = "--serviceaccount=koordinator-system:koord-manager"
    empty.kubectl("create", "clusterrolebinding", "koord-manager", "--clusterrole=koord-manager", subject)
    empty.node("node-1")

    assert follow(empty, checkout, "koordinator.md") == 5


def test_what_needs_a_node_is_marked() -> None:
    marked = [command.text for command in commands("kubernetes.md") if command.needs_a_node]

    assert len(marked) >= 10
    assert all(text.startswith(("kubectl rollout ", "kubectl wait ", "kubectl get ", "cpus=")) for text in marked)
