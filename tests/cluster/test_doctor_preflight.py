"""``slacktide doctor --kubeconfig`` on a real API server: what of a cluster stands in the way, and what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slacktide.deploy.cli.main import cli
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.quotas import LIMITED, in_force

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CRITICAL = {"priorityClassName": "system-node-critical"}
REQUESTS = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}]}
SCOPED = {
    "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["other"]}]}
}


def doctor(kubeconfig: Path) -> dict[str, Json]:
    result = CliRunner().invoke(cli, ["doctor", "--output", "json", "--kubeconfig", str(kubeconfig)])
    return {one["check"].removeprefix("cluster."): one for one in json.loads(result.stdout)["checks"]}


def verdicts(checks: dict[str, Json]) -> dict[str, str]:
    return {name: one["verdict"] for name, one in checks.items()}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A cluster of its own."""
    with running(ApiServer) as api:
        yield api


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[ApiServer]:
    """A cluster whose critical PriorityClasses need a quota."""
    file = tmp_path / "admission.json"
    file.write_text(json.dumps(LIMITED))

    class Limited(ApiServer):
        API_FLAGS = {**ApiServer.API_FLAGS, "admission-control-config-file": str(file)}

    with running(Limited) as api:
        yield api


def quota(server: ApiServer, name: str, hard: Json, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    server.post("/api/v1/namespaces/default/resourcequotas", body)


def test_of_an_empty_cluster_nothing_is_advised(server: ApiServer) -> None:
    assert set(verdicts(doctor(server.kubeconfig)).values()) == {"ok"}


def test_critical_pods_without_requests_are_named_with_what_agents_do_beside_them(server: ApiServer) -> None:
    server.pod("kube-system", "kube-proxy-1", spec=CRITICAL)
    server.pod("kube-system", "kube-dns-1", spec=CRITICAL | REQUESTS)
    server.pod("default", "job")
    told = doctor(server.kubeconfig)["critical-pods"]

    assert (told["verdict"], told["found"]) == ("warning", "without requests: kube-system/kube-proxy-1")
    assert "holds each other pod of the tier by its own quota" in told["advice"]
    assert "--requests=cpu=10m" in told["advice"]


def test_quotas_that_refuse_batch_pods_are_named_and_no_others(server: ApiServer) -> None:
    quota(server, "cpu", {"requests.cpu": "4", "pods": "10"})
    quota(server, "limits", {"limits.memory": "4Gi"})
    quota(server, "count", {"pods": "10"})
    quota(server, "services", {"requests.cpu": "4"}, scopes=["NotBestEffort"])
    quota(server, "others", {"requests.cpu": "4"}, **SCOPED)
    told = doctor(server.kubeconfig)["batch-quota"]

    assert (told["verdict"], told["found"]) == ("warning", "ResourceQuota default/cpu, default/limits")
    assert "must specify requests.cpu" in told["advice"]
    assert "scopes: [NotBestEffort]" in told["advice"]


def test_where_critical_classes_need_a_quota_that_of_the_base_is_asked_for(limited: ApiServer) -> None:
    before = doctor(limited.kubeconfig)["critical-quota"]
    limited.post("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    without = doctor(limited.kubeconfig)["critical-quota"]
    limited.kubectl("apply", "-f", str(Path("deploy/kubernetes/base/critical-pods-quota.yaml").absolute()))
    in_force(limited, SYSTEM, "slacktide-critical-pods")
    after = doctor(limited.kubeconfig)["critical-quota"]

    assert (before["verdict"], without["verdict"], after["verdict"]) == ("warning", "failed", "ok")
    assert before["found"] == "refused in default: critical PriorityClasses need a ResourceQuota there"
    assert "slacktide-critical-pods" in before["advice"]
    assert "no agent, bridge or webhook is created" in without["advice"]


def test_who_may_not_look_is_told_which_right_it_takes(server: ApiServer) -> None:
    told = doctor(server.account("default", "nobody").kubeconfig)

    assert set(verdicts(told).values()) == {"warning"}
    assert told["batch-quota"]["advice"] == "ask with a kubeconfig that may list resourcequotas"
    assert "403" in told["critical-pods"]["found"]
