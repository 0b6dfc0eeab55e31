"""``slacktide assess`` on a real Prometheus, with the series that kube-state-metrics and cAdvisor write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slacktide.deploy.cli.main import cli
from testbed.brokers import free_port
from testbed.kubelet import Certificates
from testbed.recorded_cluster import World, prometheus

pytestmark = pytest.mark.prometheus
SPAN = ("--since", "2026-01-01T00:10:00Z", "--until", "2026-01-02T23:50:00Z")
WORLD = World(replicas=2, jobs=2, nodes=2, hours=48)
LOGIN = "basic_auth_users:\n  ann: $2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n"
"""The password is ``U*U``: a published vector of bcrypt."""


def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, ["assess", *arguments], env=env)


def found(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus(tmp_path_factory.mktemp("healthy"), WORLD) as url:
        yield url


@pytest.mark.story
def test_it_reports_what_the_rule_sells_and_where_it_hurts(healthy: str) -> None:
    """Two replicas of kube-state-metrics count once, as do two scrapes of one kubelet.

    A node sells 60% of 16 cores and 65% of 64 GiB, less one core reserved and some 3 used, and 4 GiB and 12.
    """
    answer = found("--prometheus", healthy, *SPAN)
    whole = answer["cluster"]

    assert (whole["nodes"], whole["capacity_cores"], whole["requested_cores"]) == (2, 32, 24)
    assert whole["used_cores"] == pytest.approx(6, rel=0.02)
    assert whole["cpu"]["p50"] == pytest.approx(2 * (0.6 * 16 - 1 - 3), rel=0.03)
    assert whole["memory"]["p50"] == pytest.approx(2 * (0.65 * 64 - 4 - 12), rel=0.01)
    assert [pool["name"] for pool in answer["pools"]] == ["web"]
    assert [(hot["node"], hot["hours_of_day"]) for hot in answer["hot_nodes"]] == [("node-0000", [12])]
    assert answer["hot_nodes"][0]["evicting_hours"] == pytest.approx(2, abs=0.2)
    assert answer["covered_share"] == 1
    assert answer["findings"] == ["The recording is short: the oracle looks 23.8 h ahead."]


def test_a_recording_answers_as_its_server_did(healthy: str, tmp_path: Path) -> None:
    recording, page = tmp_path / "recording.gz", tmp_path / "page.html"
    live = found("--prometheus", healthy, *SPAN, "--record", str(recording), "--html", str(page))

    assert found("--from", str(recording)) == live
    assert page.read_text().count("<svg") == 3
    text = run("--from", str(recording)).stdout
    assert f"{live['cluster']['cpu']['p50']:,.1f} ± {live['cluster']['cpu']['p50_spread']:,.1f} cores" in text
    recording.write_bytes(recording.read_bytes()[:-200])
    assert "Record it again" in run("--from", str(recording)).output


def test_another_policy_sells_by_requests(healthy: str, tmp_path: Path) -> None:
    strategy = {"enable": True, "cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "slo-controller-config"},
                "data": {"colocation-config": json.dumps(strategy)},
            }
        )
    )
    whole = found("--prometheus", healthy, *SPAN, "--policy", str(policy))["cluster"]

    assert (whole["cpu"]["p50"], whole["memory"]["p50"]) == (0, 0)


def test_the_idle_part_of_cpus_that_a_pod_has_alone_is_not_sold(tmp_path: Path) -> None:
    """Of 16 cores the service has 12, whatever it uses; its memory is sold as any other."""
    span = ("--since", "2026-01-01T00:10:00Z", "--until", "2026-01-01T05:50:00Z")
    with prometheus(tmp_path, World(nodes=2, hours=6, static_cpus=True, replicas=2, jobs=2)) as url:
        whole = found("--prometheus", url, *span)["cluster"]

    assert whole["cpu"]["p50"] == 0
    assert whole["used_cores"] < 12
    assert whole["memory"]["p50"] == pytest.approx(2 * (0.65 * 64 - 4 - 12), rel=0.01)


def test_gaps_and_restarted_counters_cost_only_their_own_steps(tmp_path: Path) -> None:
    with prometheus(tmp_path, World(nodes=2, hours=48, gap=(5, 8), restarts_at_hour=30)) as url:
        answer = found("--prometheus", url, *SPAN)

    assert answer["cluster"]["cpu"]["p50"] == pytest.approx(2 * (0.6 * 16 - 1 - 3), rel=0.05)
    assert max(value for value in answer["curve"]["used"] if value is not None) < 11
    assert None in answer["curve"]["sold"]


def test_series_that_are_missing_or_renamed_are_named(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "renamed").mkdir()
    span = ("--since", "2026-01-01T00:10:00Z", "--until", "2026-01-01T02:00:00Z")
    with prometheus(tmp_path / "bare", World(nodes=1, hours=3, cadvisor=False)) as url:
        assert "no series container_cpu_usage_seconds_total of pods" in run("--prometheus", url, *span).output
        other = run("--prometheus", url, "--since", "2025-01-01T00:00:00Z", "--until", "2025-01-01T02:00:00Z")
        assert "no series kube_node_status_capacity" in other.output
        wrong = run("--prometheus", url + "/elsewhere", *span)
        assert (wrong.exit_code, "Give the address without /api/v1" in wrong.output) == (1, True)
        broken = run("--prometheus", url, *span, "--matcher", "cluster=")
        assert (broken.exit_code, "rejected a query (400)" in broken.output) == (1, True)
    with prometheus(tmp_path / "renamed", World(nodes=1, hours=3, cadvisor_label="instance")) as url:
        renamed = run("--prometheus", url, *span)
        assert (renamed.exit_code, "have no label node. Give the label" in renamed.output) == (1, True)
        assert found("--prometheus", url, *span, "--node-label", "instance")["cluster"]["nodes"] == 1
        other = run("--prometheus", url, *span, "--node-label", "pod")
        assert (other.exit_code, "contains 'web-node-0000', but kube-state-metrics knows nodes" in other.output) == (
            1,
            True,
        )
    for name, target, complaint in (("exported", "", "have no label node"), ("moved", "node-0000", "has 1 node")):
        (tmp_path / name).mkdir()
        world = World(nodes=3, hours=3, kube_label="exported_node", kube_target=target)
        with prometheus(tmp_path / name, world) as url:
            honor = run("--prometheus", url, *span)
            assert (honor.exit_code, complaint in honor.output, "honorLabels: true" in honor.output) == (1, True, True)
    assert "--window: whole seconds" in run("--prometheus", "http://127.0.0.1:1", "--window", "500ms").output


def test_a_server_of_a_private_authority_needs_its_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates")
    web = f"tls_server_config:\n  cert_file: {made.server}\n  key_file: {made.server_key}\n"
    with prometheus(tmp_path, None, web=web, ca=made.ca) as url:
        assert "give the CA that signed it with --ca FILE" in run("--prometheus", url).output
        assert "no series kube_node_status_capacity" in run("--prometheus", url, "--ca", str(made.ca)).output


@pytest.mark.story
def test_a_server_that_is_away_or_asks_for_a_login_is_named_with_what_to_do(tmp_path: Path) -> None:
    away = run("--prometheus", f"http://127.0.0.1:{free_port()}")
    assert (away.exit_code, "cannot be reached: Connection refused" in away.output) == (1, True)
    login = {"SLACKTIDE_PROMETHEUS_USER": "ann", "SLACKTIDE_PROMETHEUS_PASSWORD": "U*U"}
    with prometheus(tmp_path, None, web=LOGIN) as url:
        assert "--token-file FILE" in run("--prometheus", url).output
        assert "no series kube_node_status_capacity" in run("--prometheus", url, env=login).output
    assert "accepted: http://HOST:PORT" in run("--prometheus", "prometheus:9090").output
