"""The pages about Kubernetes are run as they are written, on an empty API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.follow import checkout, follow
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


@pytest.fixture
def empty() -> Iterator[ApiServer]:
    """A cluster of its own on which nothing was done yet."""
    with running(ApiServer) as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository's root, as far as the pages go."""
    return checkout(tmp_path)


def needing_no_node(page: str) -> list[Command]:
    return [command for command in commands(page) if not command.needs_a_node]


def test_from_an_empty_cluster(empty: ApiServer, root: Path) -> None:
    asked = needing_no_node("kubernetes.md")

    assert len(asked) >= 15
    follow(empty, root, asked)


def test_beside_koordinator(empty: ApiServer, root: Path) -> None:
    empty.kubectl("apply", "-k", str(MANIFESTS / "language"))
    empty.kubectl("apply", "-f", "-", given=json.dumps(KOORDLET))
    empty.kubectl("create", "clusterrole", "koord-manager", "--verb=*", "--resource=nodes,nodes/status")
    subject = "--serviceaccount=koordinator-system:koord-manager"
    empty.kubectl("create", "clusterrolebinding", "koord-manager", "--clusterrole=koord-manager", subject)
    empty.kubectl("apply", "-k", str(MANIFESTS / "policy"))
    empty.node("node-1")

    asked = needing_no_node("koordinator.md")

    assert len(asked) == 14
    policy = "/api/v1/namespaces/koordinator-system/configmaps/slo-controller-config"
    theirs = {"resource-threshold-config": '{"clusterStrategy": {"enable": true, "memoryEvictThresholdPercent": 90}}'}
    empty.patch(policy, {"data": theirs})
    follow(empty, root, asked)
    assert empty.get(policy)["data"]["resource-threshold-config"] == theirs["resource-threshold-config"]


def test_what_needs_a_node_is_marked() -> None:
    marked = [command.text for command in commands("kubernetes.md") if command.needs_a_node]
    looks = tuple(f"kubectl {verb} " for verb in ("rollout", "wait", "get", "slacktide"))

    assert len(marked) >= 10
    assert all(text.startswith((*looks, "cpus=")) for text in marked)
