"""``slacktide doctor`` against a real API server: what an agent may there, and what its token says."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slacktide.agents.node.apiserver import HOST, PORT, in_cluster
from slacktide.deploy.cli.main import cli
from testbed.cluster.api_server import ApiServer
from testbed.cluster.evicting import RIGHTS, agent_account

pytestmark = pytest.mark.cluster
LISTS = [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}]


def doctor(server: ApiServer, token: str, folder: Path, url: str = "") -> dict[str, dict[str, Any]]:
    """Its checks of the cluster, by name."""
    file = folder / "token"
    file.write_text(token)
    arguments = ["--api-server", url or server.url, "--api-token", str(file), "--api-ca", str(server.ca)]
    result = CliRunner().invoke(cli, ["doctor", "--output", "json", *arguments])
    return {one["check"]: one for one in json.loads(result.stdout)["checks"] if one["check"].startswith("api.")}


def verdicts(checks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name.removeprefix("api."): one["verdict"] for name, one in checks.items()}


def test_an_agents_own_token_has_all_that_it_takes(api_server: ApiServer, namespace: str, tmp_path: Path) -> None:
    node = api_server.node()
    account = agent_account(api_server, namespace, node, rights=[*RIGHTS, *LISTS])
    told = doctor(api_server, account.token, tmp_path)

    assert set(verdicts(told).values()) == {"ok"}
    assert told["api.token"]["found"] == f"bound to pod {namespace}/{account.name} on node {node}"
    assert told["api.version"]["found"].startswith("Kubernetes v1.")


def test_a_token_of_no_pod_is_told_with_what_to_do(api_server: ApiServer, namespace: str, tmp_path: Path) -> None:
    told = doctor(api_server, api_server.account(namespace, "nobody").token, tmp_path)

    assert (told["api.token"]["verdict"], told["api.token"]["found"]) == ("failed", "not bound to a pod")
    assert "serviceAccountToken volume" in told["api.token"]["advice"]


def test_each_right_that_is_missing_is_named_with_the_rule_that_grants_it(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    told = doctor(api_server, api_server.account(namespace, "nobody").token, tmp_path)

    assert verdicts(told) == {
        "server": "ok",
        "version": "ok",
        "token": "failed",
        "right-to-evict": "failed",
        "right-to-tell": "warning",
        "right-to-list-pods": "failed",
    }
    assert told["api.right-to-evict"]["found"] == "may not create pods/eviction"
    assert 'apiGroups [""], resources [pods/eviction], verbs [create]' in told["api.right-to-evict"]["advice"]
    assert 'apiGroups [""], resources [events], verbs [create]' in told["api.right-to-tell"]["advice"]


def test_a_token_that_is_none_of_the_clusters_is_told(api_server: ApiServer, tmp_path: Path) -> None:
    told = doctor(api_server, "no-token-of-theirs", tmp_path)

    assert verdicts(told) == {"server": "failed"}
    assert "401" in told["api.server"]["found"]


def test_a_server_that_is_away_is_told(api_server: ApiServer, tmp_path: Path) -> None:
    told = doctor(api_server, "token", tmp_path, url="https://127.0.0.1:1")

    assert told["api.server"]["found"] == "https://127.0.0.1:1: no connection: Connection refused"


def test_a_pod_of_a_cluster_finds_its_server_token_and_authority_by_itself(tmp_path: Path) -> None:
    environment = {HOST: "10.96.0.1", PORT: "443"}
    assert in_cluster(environment, tmp_path) is None, "no token: it is to talk to nobody"
    (tmp_path / "token").write_text("a token")
    access = in_cluster(environment, tmp_path)

    assert access is not None
    assert (access.url, access.token, access.ca) == ("https://10.96.0.1:443", tmp_path / "token", tmp_path / "ca.crt")
    assert in_cluster({}, tmp_path) is None
    six = in_cluster({HOST: "fd00::1"}, tmp_path)
    assert six is not None
    assert six.url == "https://[fd00::1]:443"
