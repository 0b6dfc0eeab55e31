"""Parts of the one-machine stack that need no process."""

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
from testbed import chains
from testbed.snapshots import command_text, situations
from testbed.vectors import each_row

UNLIMITED, HALF = Limits(be_cfs_quota_us=None), Limits(be_cfs_quota_us=50_000)
STARTED_MS = 1763712000000


def outcome(origin: str, result: str, before: Limits | None = UNLIMITED, after: Limits | None = HALF) -> NodeOutcome:
    return chains.outcome(origin=origin, result=result, acted_ms=STARTED_MS + 4_260, before=before, after=after,
                          bound="stepped")  # fmt: skip


@situations(
    "outcomes",
    {
        "the first act, once, with who decided and what changed": [
            outcome("stream", "unchanged"), outcome("stream", "applied"), outcome("stream", "applied"),
        ],
        "where the guard acted first, the stream's first decision too": [
            outcome("guard", "applied"), outcome("guard", "unchanged"), outcome("stream", "unchanged", HALF),
        ],
        "refusals and housekeeping are no decisions": [
            outcome("stream", "refused"), outcome("agent", "applied"), outcome("stream", "failed"),
        ],
        "a dry run, with what would change": [outcome("stream", "dry-run", UNLIMITED, UNLIMITED)],
    },
)  # fmt: skip
def test_the_first_decisions_are_said(outcomes: list[NodeOutcome], snapshot) -> None:
    first = FirstDecisions(STARTED_MS)
    assert "\n".join(said for each in outcomes if (said := first.line_of(each))) == snapshot


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


def test_the_shipped_policy_has_idle_pods_the_pressure_gate_and_memory_eviction_and_nothing_in_vain() -> None:
    parsed = policies.parse(load_yaml(SHIPPED_POLICY), "policy.yaml")
    document = yaml.safe_load(SHIPPED_POLICY.read_text())

    assert parsed.notes == ()
    assert document["metadata"] == {"name": "slo-controller-config", "namespace": "koordinator-system"}
    assert parsed.policy.colocation == policies.Colocation(enable=True, learned_caps="shadow")
    assert parsed.policy.resource_threshold == policies.ResourceThreshold(
        enable=True,
        cpu_suppress_threshold_pct=95,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_signal="pressure",
        mem_evict_threshold_pct=70,
        sub_priority_enable=True,
    )
    assert list(unused(parsed.policy)) == []
    facts = NodeFacts(name="node-1", capacity=Resources(), allocatable=Resources())
    assert resource_threshold_on(parsed.policy, facts).mem_evict_threshold_pct == 70


@each_row("code", "text")
def test_how_a_process_ended_is_said_in_words(code: int, text: str) -> None:
    assert how(code) == text


HERE = replace(UpSettings(), node_name="node-1", state_folder=Path("state"))
KUBELET = {"kubelet": "https://n:10250", "kubelet_token": Path("t"), "kubelet_insecure": True}


@situations(
    "settings",
    {
        "as they are": {},
        "the stream serves on the port after the agent's": {"metrics_port": 9470},
        "endpoints open to all are asked on loopback": {"metrics_host": "0.0.0.0"},
        "who lists the pods is passed on to the agent": {"kubepods": "kubepods"} | KUBELET,
        "workloads of a host": {"host_workloads": Path("host.yaml")},
    },
)
@pytest.mark.parametrize("security", [Security(), Security(protocol="SSL", file="kafka.conf")], ids=["plain", "SSL"])
def test_what_is_run_and_asked(settings: dict[str, object], security: Security, snapshot) -> None:
    parts = parts_of(replace(HERE, **settings), Cluster("kafka:9092", security), Path("node.yaml"))
    said = [f"{part.name} {part.url}: {' '.join(map(str, part._command[1:]))}" for part in parts]
    assert "\n".join(said) == snapshot


@pytest.mark.parametrize("command", ["agent", "up"])
@each_row("given")
def test_options_that_contradict_each_other_are_refused(command: str, given: str, snapshot) -> None:
    assert command_text(CliRunner().invoke(cli, [command, *given.split()])) == snapshot
