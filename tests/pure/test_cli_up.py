"""Parts of the one-machine stack that need no process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli import machine
from slacktide.deploy.cli.log_side import FirstDecisions
from slacktide.deploy.cli.machine import MachineError
from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.up import SHIPPED_POLICY, UpSettings, parts_of
from slacktide.deploy.runtime.supervisor import how
from slacktide.schemas import policy as policies
from slacktide.schemas.connection import Cluster, Security
from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.kubernetes import described
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.policy.idle import unused
from slacktide.schemas.sample import Limits

UNLIMITED, HALF = Limits(be_cfs_quota_us=None), Limits(be_cfs_quota_us=50_000)
STARTED_MS = 1763712000000


def outcome(origin: str, result: str, before: Limits | None = UNLIMITED, after: Limits | None = HALF) -> NodeOutcome:
    return NodeOutcome(
        node="node-1",
        boot_id="000000000001-00000000",
        seq=1,
        command_id="c",
        rule="cpu_suppress",
        target="besteffort",
        origin=origin,
        result=result,
        policy_version="v",
        observed_ms=STARTED_MS,
        acted_ms=STARTED_MS + 4_260,
        age_ms=12,
        before=before,
        after=after,
        bound="stepped",
    )


def told(*outcomes: NodeOutcome) -> list[str]:
    first = FirstDecisions(STARTED_MS)
    return [said for each in outcomes if (said := first.line_of(each))]


def test_the_first_act_is_said_once_with_who_decided_and_what_changed() -> None:
    said = told(outcome("stream", "unchanged"), outcome("stream", "applied"), outcome("stream", "applied"))

    assert said == [
        "first decision by the stream 4.3 s after the start: limit unchanged: 500 millicores (stepped)",
        "first applied decision 4.3 s after the start, by the stream: no limit -> 500 millicores (stepped)",
    ]


def test_where_the_guard_acted_first_the_streams_first_decision_is_said_too() -> None:
    said = told(outcome("guard", "applied"), outcome("guard", "unchanged"), outcome("stream", "unchanged", HALF))

    assert [line.partition(" 4.3 s")[0] for line in said] == ["first applied decision", "first decision by the stream"]


def test_refusals_and_housekeeping_are_no_decisions() -> None:
    assert told(outcome("stream", "refused"), outcome("agent", "applied"), outcome("stream", "failed")) == []


def test_a_dry_run_says_what_would_change() -> None:
    (said,) = told(outcome("stream", "dry-run", UNLIMITED, UNLIMITED))

    assert said == "first dry-run decision 4.3 s after the start, by the stream: no limit would change (stepped)"


def test_this_machine_is_an_inventory_without_pods(tmp_path: Path) -> None:
    """A file as kubectl would print it: what reads inventories reads this one, too."""
    (tmp_path / "meminfo").write_text("MemTotal:       16318480 kB\nMemFree: 1 kB\n")
    file = machine.inventory("my-node", tmp_path / "state", tmp_path)
    found = described(load_yaml(file), str(file), "my-node")

    assert (found.facts.capacity.mem_bytes, found.pods, found.notes) == (16318480 * 1024, [], ())
    assert found.facts.capacity == found.facts.allocatable
    before = file.stat().st_mtime_ns
    assert machine.inventory("my-node", tmp_path / "state", tmp_path) == file
    assert file.stat().st_mtime_ns == before, "unchanged, so nobody who watches it reads it again"


def test_a_machine_that_tells_no_memory_has_to_be_described(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\n")

    with pytest.raises(MachineError, match=r"meminfo: no MemTotal .* --inventory FILE"):
        machine.inventory("my-node", tmp_path, tmp_path)


def test_the_shipped_policy_has_idle_pods_a_high_quota_and_memory_eviction_and_nothing_in_vain() -> None:
    parsed = policies.parse(load_yaml(SHIPPED_POLICY), "policy.yaml")
    document = yaml.safe_load(SHIPPED_POLICY.read_text())

    assert parsed.notes == ()
    assert document["metadata"] == {"name": "slo-controller-config", "namespace": "koordinator-system"}
    assert parsed.policy.colocation == policies.Colocation(enable=True)
    assert parsed.policy.resource_threshold == policies.ResourceThreshold(
        enable=True,
        cpu_suppress_threshold_pct=95,
        cpu_suppress_policy="cfsQuota",
        mem_evict_threshold_pct=70,
        sub_priority_enable=True,
    )
    assert list(unused(parsed.policy)) == []
    facts = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
    assert resource_threshold_on(parsed.policy, facts).mem_evict_threshold_pct == 70


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (1, "exit code 1"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")],
)
def test_how_a_process_ended_is_said_in_words(code: int, text: str) -> None:
    assert how(code) == text


def test_the_stream_serves_on_the_port_after_the_agents() -> None:
    agent, stream = parts_of(replace(UpSettings(), metrics_port=9464), Cluster("kafka:9092"), Path("node.yaml"))

    assert (agent.name, agent.url) == ("agent", "http://127.0.0.1:9464")
    assert (stream.name, stream.url) == ("stream", "http://127.0.0.1:9465")


def test_endpoints_open_to_all_are_asked_on_loopback() -> None:
    agent, _ = parts_of(replace(UpSettings(), metrics_host="0.0.0.0"), Cluster("kafka:9092"), Path("node.yaml"))

    assert agent.url == "http://127.0.0.1:9464"


def test_who_lists_the_pods_is_passed_on_to_the_agent() -> None:
    settings = replace(
        UpSettings(),
        kubepods="kubepods",
        kubelet="https://n:10250",
        kubelet_token=Path("t"),
        kubelet_insecure=True,
    )
    agent, _ = parts_of(settings, Cluster("kafka:9092"), Path("node.yaml"))
    flags = "--kubepods kubepods --kubelet https://n:10250 --kubelet-token t --kubelet-insecure"

    assert flags in " ".join(agent._command)
    assert "--kube" not in " ".join(parts_of(UpSettings(), Cluster("kafka:9092"), Path("node.yaml"))[0]._command)
    settings = replace(UpSettings(), host_workloads=Path("host.yaml"))
    host, _ = parts_of(settings, Cluster("kafka:9092"), Path("node.yaml"))
    assert "--host-workloads host.yaml" in " ".join(host._command)


def test_how_to_connect_to_kafka_is_passed_on_to_both() -> None:
    brokers = Cluster("kafka:9093", Security(protocol="SSL", file="kafka.conf"))
    for part in parts_of(UpSettings(), brokers, Path("node.yaml")):
        assert "--bootstrap kafka:9093 --metrics-host 127.0.0.1 --kafka-config kafka.conf" in " ".join(part._command)
    assert "--kafka-config" not in parts_of(UpSettings(), Cluster("kafka:9092"), Path("node.yaml"))[0]._command


@pytest.mark.parametrize("command", ["agent", "up"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--kubelet-token t", "--kubelet-token requires a kubelet: give its address with --kubelet"),
        ("--kubelet-insecure", "--kubelet-insecure requires a kubelet"),
        ("--kubelet https://n --kubelet-key k", "give it with --kubelet-cert"),
        ("--kubelet https://n --host-workloads h.yaml", "both list the pods; remove one of both"),
        ("--kubepods kubepods --host-workloads h.yaml", "--kubepods and --host-workloads"),
    ],
)
def test_options_that_contradict_each_other_are_refused(command: str, given: str, says: str) -> None:
    refused = CliRunner().invoke(cli, [command, *given.split()])

    assert refused.exit_code == 2
    assert says in " ".join(refused.output.split())
