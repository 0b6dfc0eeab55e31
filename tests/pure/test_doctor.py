"""``slacktide doctor``: what is found, what is said of it, and what is advised."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from slacktide.agents.node.host_pods import Remark
from slacktide.agents.node.pressure import NO_GROUPS
from slacktide.agents.node.run_delay import NO_HOST_PID
from slacktide.deploy.cli.doctor import machine_facts
from slacktide.deploy.cli.doctor.agent_checks import agent_findings, kafka_findings, node_findings
from slacktide.deploy.cli.doctor.cluster_checks import drain_finding, webhook_clients_finding
from slacktide.deploy.cli.doctor.facts import (
    AgentFacts,
    CgroupFacts,
    HostFacts,
    KafkaFacts,
    KnobFacts,
    MachineFacts,
    Newest,
    NoKafka,
    WebhookClients,
)
from slacktide.deploy.cli.doctor.finding import Finding, as_table, failed, good, plain, ready, warned
from slacktide.deploy.cli.doctor.machine_checks import cgroup_findings, host_findings, machine_findings
from slacktide.deploy.cli.doctor.policy_checks import KNOB_OF, knob_of, policy_findings
from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.topic_plan import Change
from slacktide.deploy.runtime.text import rendered
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.knob_table import CONTROLS
from slacktide.schemas.policy import parse
from slacktide.schemas.policy.features import FEATURES
from slacktide.streams.analysis.explain.evidence import Finding as Explained
from testbed.doctor_facts import V2
from testbed.policies import config_map
from testbed.snapshots import cases, checks, json_text, situations, stable
from testbed.vectors import each_row

CASES = cases(__file__)
NOW_MS = 1_800_000_000_000
DAC_OVERRIDE = 1 << 1
KILL = 1 << 5
V1 = replace(
    V2,
    version=1,
    knobs={
        knob.name: KnobFacts(files=knob.v1, state="writable" if knob.v1 else "absent", trouble="") for knob in CONTROLS
    },
)
LOG = KafkaFacts(
    bootstrap=Cluster("kafka-1:9092"),
    brokers=3,
    cluster="4L6g3nShT-eMCtK--X86sw",
    round_trip_ms=0.8,
    idempotence_trouble="",
    transactions=True,
    changes=[],
    newest=Newest(topic="slacktide.node.sample.v2", timestamp_ms=NOW_MS - 700, by_broker=False),
    now_ms=NOW_MS,
)

STAMPED = {
    "message.timestamp.type": "LogAppendTime", "compression.type": "producer", "max.message.bytes": "1048588",
}  # fmt: skip
RUN_DELAY = replace(V2, no_stall="cpu.pressure: Operation not supported")
NO_PSI = replace(RUN_DELAY, no_run_delay=NO_HOST_PID)
V1_ALONE = replace(V1, no_stall=NO_GROUPS, no_run_delay=NO_HOST_PID)


def groups(of: str = "v2", *, knobs: Any = (), controllers: Any = (), **facts: object) -> CgroupFacts:
    """Control groups with another state of some knobs and controllers, and other facts."""
    there = {"v2": V2, "v2 without PSI": NO_PSI, "v1": V1}[of]
    others = {name: replace(there.knobs[name], **knobs[name]) for name in knobs}
    held = dict(there.controllers) | dict(controllers)
    return replace(there, knobs=dict(there.knobs) | others, controllers=held, **facts)


def change(kind: str) -> Change:
    return Change(topic="slacktide.policy.v1", kind=kind, text="", config={})


def machine(*, quota_writable: bool = True, **facts: object) -> Iterator[Finding]:
    return machine_findings(msgspec.convert(CASES["machine"] | facts, MachineFacts), quota_writable=quota_writable)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(machine, id="machine"),
        pytest.param(lambda: cgroup_findings(V2), id="control groups v2"),
        pytest.param(lambda: kafka_findings(LOG), id="log"),
        pytest.param(lambda: kafka_findings(replace(LOG, newest=None, transactions=False)), id="log without records"),
        pytest.param(lambda: cgroup_findings(replace(V1_ALONE, hybrid=True)), id="control groups v1"),
        pytest.param(lambda: cgroup_findings(RUN_DELAY), id="control groups without PSI"),
    ],
)
def test_what_is_as_it_should_be_is_shown(found: Callable[[], Iterator[Finding]], snapshot) -> None:
    assert checks(found(), good=True) == snapshot


def test_of_what_is_as_it_should_be_nothing_is_advised() -> None:
    """Nor of kernels, files and clocks that just will do, or of rights that were not needed."""
    for facts in (
        *({"kernel": "5.3.0"}, {"kernel": "10.2"}, {"open_files": 1_024}, {"open_files": -1}),
        {"clock_kept_by": "chronyd", "clock_synchronised": False},
        {"capabilities": KILL, "user_id": 1000},
    ):
        assert {(one.verdict, one.advice) for one in machine(**facts)} == {("ok", "")}, facts
    rights = machine(capabilities=KILL | DAC_OVERRIDE, user_id=1000, quota_writable=False)
    assert {one.verdict for one in rights} == {"ok"}


@situations("facts", CASES["what_a_machine_lacks_is_said_with_what_to_do"])
def test_what_a_machine_lacks_is_said_with_what_to_do(facts: dict[str, object], snapshot) -> None:
    assert checks(machine(**facts)) == snapshot


def test_a_right_is_missed_only_where_something_does_not_work_without_it(snapshot) -> None:
    """An agent that was given its files needs no more."""
    assert checks(machine(capabilities=KILL, user_id=1000, quota_writable=False)) == snapshot


@each_row("facts")
def test_what_control_groups_lack_is_said_with_what_to_do(facts: dict[str, Any], snapshot) -> None:
    assert checks(cgroup_findings(groups(**facts))) == snapshot


@each_row("facts")
def test_what_stands_on_something_missing_is_not_complained_of_too(facts: dict[str, object], snapshot) -> None:
    handed_on = dict.fromkeys(V2.controllers, "not handed on")
    facts = replace(V2, knobs={}, trouble="it is away", controllers=handed_on, **facts)
    assert checks(cgroup_findings(facts)) == snapshot


@situations(
    "facts",
    {
        "far away": {"round_trip_ms": 100.5},
        "no idempotent producer": {"idempotence_trouble": "no producer id"},
        "topics missing": {"changes": [change("create"), change("create"), change("set")]},
        "drift": {"changes": [change("set")]},
        "what stays": {"changes": [change("differs")]},
        "a record from the future": {"newest": Newest(topic="t", timestamp_ms=NOW_MS + 5_001, by_broker=True)},
        "a record a little ahead is in order": {
            "newest": Newest(topic="t", timestamp_ms=NOW_MS + 5_000, by_broker=False)
        },
        "times of clients": {"settings": {"a": STAMPED, "b": STAMPED | {"message.timestamp.type": "CreateTime"}}},
        "batches that would not be read": {"settings": {"a": STAMPED | {"max.message.bytes": "20000000"}}},
    },
)
def test_what_a_log_lacks_is_said_with_what_to_do(facts: dict[str, object], snapshot) -> None:
    assert checks(kafka_findings(replace(LOG, **facts))) == snapshot


def test_how_topics_are_compressed_is_shown(snapshot) -> None:
    settings = {"a": STAMPED, "b": STAMPED, "c": STAMPED | {"compression.type": "zstd"}}
    assert checks(kafka_findings(replace(LOG, settings=settings)), good=True) == snapshot


def test_the_embedded_broker_and_its_lacks_are_named(snapshot) -> None:
    lacking = replace(
        LOG, cluster="tansu_cluster-1a2b3c4d", brokers=1, idempotence_trouble="no producer id", transactions=False
    )
    assert checks(kafka_findings(lacking), good=True) == snapshot


def test_a_log_that_does_not_answer_is_one_failure(snapshot) -> None:
    silent = NoKafka(bootstrap=Cluster("kafka-1:9092"), trouble="kafka-1:9092: no answer within 10 s")
    assert checks(kafka_findings(silent)) == snapshot


def of_policy(cgroups: CgroupFacts = V2, cpus: int = 8, **configs: object) -> list[Finding]:
    """What is said of a policy, but that it is valid."""
    parsed = parse(config_map(**configs), "policy.yaml")
    first, *rest = policy_findings("policy.yaml", parsed, cgroups, cpus)
    assert (first.check, first.verdict) == ("policy.valid", "ok")
    assert {one.verdict for one in rest} <= {"warning"}
    return rest


CGROUPS = {"v2": V2, "v2 with run-queue delay": RUN_DELAY, "v2 without PSI": NO_PSI, "v1": V1_ALONE}


@situations("given", CASES["what_a_policy_cannot_do_here_is_said"])
def test_what_a_policy_cannot_do_here_is_said(given: dict, snapshot) -> None:
    assert checks(of_policy(CGROUPS[given["cgroups"]], given["cpus"], **given["policy"])) == snapshot


@each_row("configs", "knob_name")
def test_a_rule_whose_knob_cannot_be_used_is_void_here(configs: dict, knob_name: str, snapshot) -> None:
    for without_void in (V2, replace(V2, knobs={})):  # that there is no group is said already
        assert "policy.void-here" not in {one.check for one in of_policy(without_void, **configs)}
    assert checks(of_policy(groups(knobs={knob_name: {"state": "not writable"}}), **configs)) == snapshot


@pytest.mark.parametrize("mode", ["off", "shadow", "on"])
def test_caps_that_are_learned_need_psi_of_cgroups_and_no_run_queue_delay(mode: str, snapshot) -> None:
    configs = {"colocation": {"enable": True, "learnedCaps": mode}}
    assert of_policy(V2, **configs) == []
    found = [one for one in of_policy(RUN_DELAY, **configs) if one.check == "policy.unmeasured-here"]
    assert bool(found) == (mode != "off")
    assert checks(found) == snapshot


def test_a_policy_that_is_refused_fails_with_every_finding(snapshot) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(config_map(burst={"clusterStrategy": {"policy": "some", "cpuBurstPercent": 0}}), "policy.yaml")
    assert checks(policy_findings("policy.yaml", refused.value, V2, 8)) == snapshot


@pytest.mark.parametrize("nodes", ["403 Forbidden", [], ["a", "b", "a"], ["a", "a"]], ids=str)
def test_a_drain_that_leaves_pods_without_the_webhook_is_warned_of(nodes: list[str] | str, snapshot) -> None:
    assert checks([drain_finding(nodes)]) == snapshot


@pytest.mark.parametrize("required", [None, False, True])
@pytest.mark.parametrize(
    "api_servers", [{}, {"a": True, "b": True}, {"a": False, "b": True}], ids=["not visible", "all", "some"]
)
def test_a_webhook_that_requires_a_certificate_nobody_presents_fails(
    required: bool | None,  # noqa: FBT001
    api_servers: dict[str, bool],
    snapshot,
) -> None:
    finding = webhook_clients_finding(WebhookClients(required=required, api_servers=api_servers))

    assert f"{finding.found}\n{checks([finding])}" == snapshot


def test_every_feature_with_a_knob_is_one_of_the_policys(snapshot) -> None:
    assert "\n".join(feature.name for feature in FEATURES if knob_of(feature)) == snapshot
    assert set(KNOB_OF.values()) <= {one.name for one in CONTROLS}


FINDINGS = [
    good("a.fine", "as it is", "as it is"),
    warned("b.so-so", "short " * 20, "more", "add some"),
    failed("c.bad", "nothing", "something", "get it"),
]


def test_for_machines_there_is_one_shape_and_for_people_a_table_with_failures_first(snapshot) -> None:
    assert rendered(plain(FINDINGS), "json", text=str) == snapshot(name="json")
    assert as_table(FINDINGS) == snapshot(name="table")
    assert as_table(FINDINGS[:1]).splitlines()[-1] == "ready, 0 warnings"
    assert [ready(FINDINGS[:2]), ready(FINDINGS)] == [True, False]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """A fake tree."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
PROC = {
    "sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "self/status": "Name:\tpython\nCapEff:\t0000000000000002\n",
} | {f"pressure/{kind}": PSI for kind in ("cpu", "memory", "io")}
GROUP = "kubepods/besteffort"
TREE_V2 = {
    "cgroup.controllers": "cpuset cpu memory\n",
    f"{GROUP}/cgroup.controllers": "cpu memory\n",
    "kubepods/burstable/cpu.pressure": PSI,
    "kubepods/burstable/memory.pressure": PSI,
} | {
    f"{GROUP}/{name}": "0\n"
    for name in [
        "cpu.max",
        "cpu.weight",
        "cpu.idle",
        "memory.max",
        "memory.min",
        "memory.low",
        "memory.high",
        "cgroup.freeze",
    ]
}


def gathered(folder: Path, files: Mapping[str, str]) -> str:
    """What is found in a fake tree."""
    facts = machine_facts.gather_cgroups(write(folder, files), None)
    facts.refused_triggers.pop("memory", None)  # on v1, of the machine that runs the test
    return stable(json_text(facts), folder)


def test_v2_is_found_with_what_was_handed_on(tmp_path: Path, snapshot) -> None:
    assert gathered(tmp_path, TREE_V2) == snapshot
    (tmp_path / GROUP / "cpu.idle").write_text("1\n")
    assert machine_facts.gather_cgroups(tmp_path, None).idle_tier


def test_psi_of_groups_is_readable_where_a_group_of_latency_sensitive_pods_tells_its_stall(tmp_path: Path) -> None:
    burstable = write(tmp_path, TREE_V2) / "kubepods/burstable/cpu.pressure"
    assert machine_facts.gather_cgroups(tmp_path, None).no_stall == ""

    burstable.write_text("some avg10=0.00\n")
    assert "not 'some' and its total" in machine_facts.gather_cgroups(tmp_path, None).no_stall
    burstable.unlink()
    assert machine_facts.gather_cgroups(tmp_path, None).no_stall == "cpu.pressure: No such file or directory"
    write(tmp_path, {"kubepods/podguaranteed/cpu.pressure": PSI})
    assert machine_facts.gather_cgroups(tmp_path, None).no_stall == "", "one group is enough"


def test_the_run_queue_delay_of_pods_is_readable_where_their_threads_are(tmp_path: Path) -> None:
    threads = write(tmp_path, TREE_V2 | {"kubepods/burstable/poda/cgroup.threads": f"{os.getpid()}\n"})
    file = threads / "kubepods/burstable/poda/cgroup.threads"
    assert machine_facts.gather_cgroups(tmp_path, None).no_run_delay == ""

    file.write_text(f"{os.getpid()}\n0\n")
    assert machine_facts.gather_cgroups(tmp_path, None).no_run_delay == NO_HOST_PID
    file.unlink()
    assert machine_facts.gather_cgroups(tmp_path, None).no_run_delay == (
        f"threads of pods: [Errno 2] No such file or directory: '{file}'"
    )


PODS_V1 = "cpu,cpuacct/kubepods.slice/kubepods-besteffort.slice"


@situations(
    "files",
    {
        "v1 controllers may share a mount and lack the group": {
            **{f"{PODS_V1}/{name}": "-1\n" for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares")},
            "unified/cgroup.controllers": "",
            "memory/x": "",
        },
        "of a knob with two files, the one that is missing is named": {f"cpu/{GROUP}/cpu.cfs_quota_us": "-1\n"},
        "nothing mounted": {"x": ""},
        "no kubelet": {"cgroup.controllers": "cpu\n"},
    },
)
def test_what_is_there_and_what_is_not_is_told(tmp_path: Path, files: dict[str, str], snapshot) -> None:
    assert gathered(tmp_path, files) == snapshot


def test_a_knob_that_is_looked_at_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, TREE_V2)
    before = {path: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    machine_facts.gather_cgroups(tmp_path, None)

    assert {p: (p.read_text(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()} == before


SYS = {"sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock\n"}
PID = {"run/chrony/chronyd.pid": "17\n"}


@situations(
    "files",
    {
        "proc, sys and run": {f"proc/{name}": text for name, text in PROC.items()}
        | SYS
        | {"run/systemd/timesync/synchronized": ""},
        "a machine that tells nothing is unknown": {},
        "a clock's keeper that is dead keeps nothing": PID,
        "a clock's keeper that lives": PID | {"proc/17/stat": ""},
        "a file cannot hold the state": {"a": ""},
    },
)
def test_a_machine_is_read(tmp_path: Path, files: dict[str, str], snapshot) -> None:
    """It is looked at, and nothing is made."""
    write(tmp_path, files)
    mounts = machine_facts.Mounts(proc=tmp_path / "proc", sys=tmp_path / "sys", run=tmp_path / "run")
    facts = machine_facts.gather_machine(mounts, tmp_path / "a" / "b")
    assert not (tmp_path / "a").is_dir()
    assert facts.state.trouble or facts.state.free_bytes > 0
    here = replace(facts, cpus=0, user_id=0, open_files=0, state=replace(facts.state, free_bytes=0))
    assert stable(json_text(here), tmp_path) == snapshot


def doctor(folder: Path, *arguments: str) -> Result:
    """Look at the machine in a folder; its agent's port is bound and not opened, so nothing that runs here answers."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        given = ["--cgroup-mount", str(folder / "cgroup"), "--proc-mount", str(folder / "proc")]
        given += ["--metrics-port", str(bound.getsockname()[1]), "--state-folder", str(folder / "state"), *arguments]
        return CliRunner().invoke(cli, ["doctor", *given])


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A machine in a folder that lacks nothing that is needed today."""
    write(tmp_path / "proc", PROC)
    write(tmp_path / "cgroup", TREE_V2)
    return tmp_path


def test_warnings_alone_are_exit_status_0(fake: Path) -> None:
    result = doctor(fake)

    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith("ready, ")


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_failure_is_exit_status_1(fake: Path, output: str) -> None:
    (fake / "cgroup" / GROUP / "cpu.max").unlink()
    result = doctor(fake, "--output", output)

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "no cpu.max" in result.output


def test_json_says_the_same_as_the_table(fake: Path) -> None:
    policy = fake / "policy.yaml"
    policy.write_text(yaml.safe_dump(config_map(burst={"clusterStrategy": {"policy": "auto"}})))
    told = json.loads(doctor(fake, "--policy", str(policy), "--output", "json").output)
    lines = doctor(fake, "--policy", str(policy)).output.splitlines()
    rows = [tuple(line.split()[:2]) for line in lines[1 : lines.index("")] if not line.startswith(" ")]

    assert [(one["verdict"], one["check"]) for one in told["checks"]] == rows
    assert {tuple(one) for one in told["checks"]} == {("check", "verdict", "found", "needed", "advice")}
    assert ("warning", "policy.void-here") in rows


def bad_checks(result: Result, folder: Path) -> str:
    """What failed, and what is said of the host's groups; its exit status."""
    told = [msgspec.convert(one, Finding) for one in json.loads(result.stdout)["checks"]]
    of_host = [one for one in told if one.verdict == "failed" or one.check.startswith(("host", "cgroup"))]
    return stable(f"exit status {result.exit_code}\n{checks(of_host, good=True)}", folder)


def test_a_policy_that_is_not_there_is_a_failed_check(fake: Path, snapshot) -> None:
    result = doctor(fake, "--policy", str(fake / "nowhere.yaml"), "--output", "json")
    assert bad_checks(result, fake) == snapshot


def test_of_a_host_without_kubernetes_pods_are_named_and_what_matches_nothing(snapshot) -> None:
    host = HostFacts(file="host.yaml", best_effort=PurePosixPath("batch.slice"), pods=["etl.service (BE)"], remarks=[])
    remark = Remark(what="slice wob.slice", why="no such cgroup now", advice="is the name right?")
    assert checks(host_findings(replace(host, remarks=[remark])), good=True) == snapshot(name="one pod")
    assert checks(host_findings(replace(host, pods=list("abcdefg"))), good=True) == snapshot(name="many pods")


@each_row("given")
def test_a_host_without_kubernetes_is_looked_at(tmp_path: Path, given: tuple[str, str], snapshot) -> None:
    workload, group = given
    file = write(tmp_path, {"host.yaml": f"bestEffort: batch.slice\nworkloads: [{workload}]\n"}) / "host.yaml"
    write(tmp_path / "cgroup", {name.replace(GROUP, group): text for name, text in TREE_V2.items()})
    write(tmp_path / "proc", PROC)
    result = doctor(tmp_path, "--host-workloads", str(file), "--output", "json")
    assert bad_checks(result, tmp_path) == snapshot
    assert ("knob.cpu-quota" in result.stdout) is (group == "batch.slice")


def test_two_layouts_at_once_are_refused(tmp_path) -> None:
    assert doctor(tmp_path, "--kubepods", "kubepods", "--host-workloads", "host.yaml").exit_code == 2


AGENT = AgentFacts(url="http://127.0.0.1:9464", not_live="", not_ready="", not_fresh="")


@each_row("facts")
def test_an_agent_that_runs_has_to_work(facts: dict[str, str] | None, snapshot) -> None:
    assert checks(agent_findings(None if facts is None else replace(AGENT, **facts)), good=True) == snapshot


def test_a_node_whose_figures_are_frozen_is_not_ready(snapshot) -> None:
    """The silence of an agent that does not run is expected, as before an upgrade."""
    told = [
        f"{name}, {one.severity}, {'runs' if runs else 'away'}: {checks(node_findings('alpha', [one], runs=runs))}"
        for name in ("agent.two", "agent.silent", "agent.missing", "window.partial")
        for runs in (True, False)
        for one in [Explained(name=name, text="its figures are frozen", advice="find out")]
    ]
    assert "\n\n".join(told) == snapshot
