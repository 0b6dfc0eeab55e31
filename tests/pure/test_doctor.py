"""``slacktide doctor``: what is found, what is said of it, and what is advised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
import yaml
from click.testing import CliRunner, Result

from slacktide.agents.node.ahead.pressure import NO_GROUPS, UNPRIVILEGED
from slacktide.agents.node.pods.host_pods import Remark
from slacktide.deploy.cli.doctor import machine_facts
from slacktide.deploy.cli.doctor.agent_checks import agent_findings, node_findings
from slacktide.deploy.cli.doctor.facts import (
    CONTROLLERS,
    AgentFacts,
    CgroupFacts,
    HostFacts,
    KafkaFacts,
    KnobFacts,
    MachineFacts,
    Newest,
    NoKafka,
    StateFolder,
)
from slacktide.deploy.cli.doctor.finding import Finding, as_json, as_table, failed, good, ready, warned
from slacktide.deploy.cli.doctor.kafka_checks import EMBEDDED, kafka_findings
from slacktide.deploy.cli.doctor.machine_checks import CAPABILITIES, cgroup_findings, host_findings, machine_findings
from slacktide.deploy.cli.doctor.policy_checks import KNOB_OF, knob_of, policy_findings
from slacktide.deploy.cli.main import cli
from slacktide.deploy.cli.topic_plan import Change
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.knob_table import CONTROLS
from slacktide.schemas.policy import parse
from slacktide.schemas.policy.features import FEATURES
from slacktide.streams.explain.evidence import Finding as Explained
from testbed.doctor_facts import V2
from testbed.policies import config_map

GIB = 1024**3
NOW_MS = 1_800_000_000_000
DAC_OVERRIDE = 1 << 1
KILL = 1 << 5
MACHINE = MachineFacts(
    kernel="6.1.0-18-amd64",
    cpus=8,
    user_id=0,
    capabilities=(1 << 41) - 1,
    clock_source="tsc",
    clock_kept_by="systemd-timesyncd",
    clock_synchronised=True,
    open_files=1_048_576,
    state=StateFolder(path="/var/lib/slacktide", trouble="", free_bytes=GIB),
    pressure={"cpu": "", "memory": "", "io": ""},
)
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
    newest=Newest(topic="slacktide.node.sample.v1", timestamp_ms=NOW_MS - 700, by_broker=False),
    now_ms=NOW_MS,
)


STAMPED_BY_BROKER = {
    "message.timestamp.type": "LogAppendTime", "compression.type": "producer", "max.message.bytes": "1048588",
}  # fmt: skip


def test_how_topics_are_compressed_is_shown() -> None:
    settings = {"a": STAMPED_BY_BROKER, "b": STAMPED_BY_BROKER, "c": STAMPED_BY_BROKER | {"compression.type": "zstd"}}
    found = {one.check: one for one in kafka_findings(replace(LOG, settings=settings))}
    assert found["log.compression"].found == "producer on 2 topics, zstd on 1 topic"
    assert found["log.timestamps"].found == "LogAppendTime"
    assert found["log.batch-size"].found == "at most 1048588 bytes"
    assert not [one for one in found.values() if one.verdict != "ok"]


def knob(name: str, **facts: object) -> CgroupFacts:
    """The v2 machine with another state of one knob."""
    return replace(V2, knobs=dict(V2.knobs) | {name: replace(V2.knobs[name], **facts)})


def change(kind: str) -> Change:
    return Change(topic="slacktide.policy.v1", kind=kind, text="", config={})


def only_bad(findings: list[Finding]) -> Finding:
    """The one that is not ok."""
    (bad,) = (one for one in findings if one.verdict != "ok")
    return bad


def machine(facts: MachineFacts, *, quota_writable: bool = True) -> list[Finding]:
    return list(machine_findings(facts, quota_writable=quota_writable))


@pytest.mark.parametrize(
    "findings",
    [
        pytest.param(machine(MACHINE), id="machine"),
        pytest.param(list(cgroup_findings(V2)), id="control groups v2"),
        pytest.param(list(kafka_findings(LOG)), id="log"),
        pytest.param(list(kafka_findings(replace(LOG, newest=None, transactions=False))), id="log without records"),
    ],
)
def test_of_what_is_as_it_should_be_nothing_is_advised(findings: list[Finding]) -> None:
    assert [(one.verdict, one.advice) for one in findings] == [("ok", "")] * len(findings)
    assert all(one.found and one.needed for one in findings)


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "found", "advice"),
    [
        pytest.param({"kernel": "4.18.0-553.el8"}, "machine.kernel", "warning", "4.18.0-553.el8", "it also throttles"),
        pytest.param({"kernel": "4.19.0"}, "machine.kernel", "warning", "4.19.0", "the agent cannot end evicted pods"),
        pytest.param({"kernel": "3.19.8"}, "machine.kernel", "warning", "3.19.8", "newer kernel"),
        pytest.param({"kernel": ""}, "machine.kernel", "warning", "unknown", "--proc-mount"),
        pytest.param({"kernel": "linux"}, "machine.kernel", "warning", "'linux', not a version", "--proc-mount"),
        pytest.param({"clock_source": "hpet"}, "clock.source", "warning", "hpet", "available_clocksource"),
        pytest.param({"clock_source": ""}, "clock.source", "warning", "unknown", "mount /sys"),
        pytest.param(
            {"clock_kept_by": "", "clock_synchronised": False},
            "clock.synchronised",
            "warning",
            "unknown: chronyd, ntpd and timesyncd do not run here",
            "run chronyd or systemd-timesyncd",
        ),
        pytest.param(
            {"pressure": {"cpu": "", "memory": "not supported", "io": "no file"}},
            "pressure.node",
            "warning",
            "memory: not supported; io: no file",
            "psi=1",
        ),
        pytest.param({"open_files": 256}, "process.open-files", "warning", "256", "ulimit -n 1024"),
        pytest.param({"open_files": 127}, "process.open-files", "failed", "127", "LimitNOFILE="),
        pytest.param(
            {"state": StateFolder(path="/x", trouble="/ is not writable by this user", free_bytes=GIB)},
            "state.folder",
            "failed",
            "/ is not writable by this user",
            "--state-folder",
        ),
        pytest.param(
            {"state": StateFolder(path="/x", trouble="", free_bytes=64 * 1024**2 - 1)},
            "state.folder",
            "warning",
            "/x, 63 MiB free",
            "free disk space",
        ),
    ],
)
def test_what_a_machine_lacks_is_said_with_what_to_do(
    facts: dict[str, object], check: str, verdict: str, found: str, advice: str
) -> None:
    bad = only_bad(machine(replace(MACHINE, **facts)))

    assert (bad.check, bad.verdict, bad.found) == (check, verdict, found)
    assert advice in bad.advice


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        pytest.param({"kernel": "5.3.0"}, "5.3.0", id="the oldest kernel that will do"),
        pytest.param({"kernel": "10.2"}, "10.2", id="versions are numbers, not texts"),
        pytest.param({"open_files": 1_024}, "1,024", id="just enough files"),
        pytest.param({"open_files": -1}, "unlimited", id="no limit of files"),
        pytest.param({"clock_kept_by": "chronyd", "clock_synchronised": False}, "chronyd runs", id="a clock's keeper"),
    ],
)
def test_what_just_will_do_is_no_matter(facts: dict[str, object], found: str) -> None:
    findings = machine(replace(MACHINE, **facts))

    assert {one.verdict for one in findings} == {"ok"}
    assert found in {one.found for one in findings}


def test_a_right_is_missed_only_where_something_does_not_work_without_it() -> None:
    """An agent that was given its files needs no more; what is for later is told, and no fault."""
    kills = replace(MACHINE, capabilities=KILL, user_id=1000)
    bad = only_bad(machine(kills, quota_writable=False))

    assert {one.verdict for one in machine(kills)} == {"ok"}
    assert (bad.check, bad.found) == ("capability.CAP_DAC_OVERRIDE", "not held")
    assert bad.advice == "run as root, or grant CAP_DAC_OVERRIDE; this is user 1000"
    both = replace(kills, capabilities=KILL | DAC_OVERRIDE)
    assert {one.verdict for one in machine(both, quota_writable=False)} == {"ok"}
    assert only_bad(machine(replace(kills, capabilities=DAC_OVERRIDE))).check == "capability.CAP_KILL"


def test_rights_that_are_not_told_are_unknown_each() -> None:
    findings = machine(replace(MACHINE, capabilities=None))

    assert [(one.check, one.found) for one in findings if one.verdict == "warning"] == [
        (f"capability.{one.name}", "unknown") for one in CAPABILITIES
    ]


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "found", "advice"),
    [
        pytest.param(
            knob("cpu-quota", state="not writable", trouble="Permission denied"),
            "knob.cpu-quota",
            "failed",
            "cpu.max not writable: Permission denied",
            "run as root; in a container, run privileged or mount /sys/fs/cgroup read-write",
            id="a knob that acts today, not writable",
        ),
        pytest.param(
            knob("cpu-quota", state="absent"),
            "knob.cpu-quota",
            "failed",
            "no cpu.max",
            "CONFIG_CFS_BANDWIDTH",
            id="a knob that acts today, not there",
        ),
        pytest.param(
            knob("cpu-burst", state="absent"),
            "knob.cpu-burst",
            "warning",
            "no cpu.max.burst",
            "use kernel 5.14 or newer",
            id="a knob that a newer kernel has",
        ),
        pytest.param(
            replace(V2, controllers=dict(V2.controllers) | {"cpu": "not handed on"}),
            "controller.cpu",
            "failed",
            "not delegated to the best-effort cgroup",
            "write +cpu to cgroup.subtree_control of each cgroup from /sys/fs/cgroup to kubepods.slice",
            id="v2, a required controller not handed on",
        ),
        pytest.param(
            replace(V2, controllers=dict(V2.controllers) | {"cpuset": "absent"}),
            "controller.cpuset",
            "warning",
            "absent",
            "cgroup_disable= on its command line",
            id="v2, a controller that the kernel has not",
        ),
        pytest.param(
            replace(V2, controllers=dict(V2.controllers) | {"freezer": "absent"}),
            "controller.freezer",
            "warning",
            "absent",
            "use kernel 5.2 or newer",
            id="v2, a kernel that cannot freeze",
        ),
        pytest.param(
            replace(V2, refused_triggers=dict.fromkeys(("cpu", "memory"), "Operation not supported")),
            "pressure.groups",
            "warning",
            "cpu.pressure: Operation not supported; memory.pressure: Operation not supported",
            "psi=1",
            id="v2 without pressure",
        ),
        pytest.param(
            replace(V2, refused_triggers={"memory": UNPRIVILEGED}),
            "pressure.groups",
            "warning",
            f"memory.pressure: {UNPRIVILEGED}",
            "grant CAP_SYS_RESOURCE; until then, only a rise in CPU use triggers an immediate sample",
            id="v2 without the right to short windows",
        ),
    ],
)
def test_what_control_groups_lack_is_said_with_what_to_do(
    facts: CgroupFacts, check: str, verdict: str, found: str, advice: str
) -> None:
    bad = only_bad(list(cgroup_findings(facts)))

    assert (bad.check, bad.verdict, bad.found) == (check, verdict, found)
    assert advice in bad.advice


@pytest.mark.parametrize(("facts", "weight"), [(V1, "cpu.shares"), (V2, "cpu.weight")])
def test_an_idle_tier_is_named_for_the_kubelet_cannot_write_its_weight(facts: CgroupFacts, weight: str) -> None:
    (idle,) = (one for one in cgroup_findings(replace(facts, idle_tier=True)) if one.check == "cgroup.idle-tier")

    assert (idle.verdict, idle.found) == ("warning", "cpu.idle is 1")
    assert f"Linux rejects its write of {weight} (EINVAL)" in idle.advice
    assert "cpuPolicy podIdle" in idle.advice


def test_idle_pods_leave_the_kubelet_its_weights() -> None:
    asked = {"policies": {"cpuPolicy": "podIdle"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}

    assert [one for one in of_policy(qos={"clusterStrategy": asked}) if one[0] == "policy.idle-weight"] == []


def test_of_v1_only_what_it_never_had_is_missed() -> None:
    findings = list(cgroup_findings(replace(V1, hybrid=True, refused_triggers={"cpu": NO_GROUPS})))

    assert findings[0].found == "v1, with v2 mounted beside it (hybrid), at /sys/fs/cgroup"
    assert [(one.check, one.verdict) for one in findings if one.verdict != "ok"] == [
        *((f"knob.memory-{name}", "warning") for name in ("min", "low", "high")),
        ("pressure.groups", "warning"),
    ]


def test_a_v1_controller_that_is_not_mounted_comes_with_the_line_that_mounts_it() -> None:
    findings = cgroup_findings(replace(V1, controllers=dict(V1.controllers) | {"cpuacct": "absent"}))
    (bad,) = (one for one in findings if one.verdict == "failed")

    assert bad.check == "controller.cpuacct"
    assert bad.advice == (
        "mkdir /sys/fs/cgroup/cpuacct && mount -t cgroup -o cpuacct cpuacct /sys/fs/cgroup/cpuacct"
    )  # fmt: skip


def test_what_hangs_on_an_absent_controller_refers_to_it() -> None:
    facts = replace(knob("memory-limit", state="absent"), controllers=dict(V2.controllers) | {"memory": "absent"})
    (bad,) = (one for one in cgroup_findings(facts) if one.check == "knob.memory-limit")

    assert bad.advice == "see controller.memory"


@pytest.mark.parametrize(
    ("facts", "check", "checks"),
    [
        pytest.param({"version": 0, "pods": "", "best_effort": ""}, "cgroup.version", 1, id="no control groups"),
        pytest.param({"pods": "", "best_effort": ""}, "cgroup.pods", 2 + len(CONTROLLERS), id="no group of pods"),
        pytest.param({"best_effort": ""}, "cgroup.best-effort", 3 + len(CONTROLLERS), id="no best-effort group"),
    ],
)
def test_what_stands_on_something_missing_is_not_complained_of_too(
    facts: dict[str, object], check: str, checks: int
) -> None:
    handed_on = dict.fromkeys(V2.controllers, "not handed on")
    found = list(cgroup_findings(replace(V2, knobs={}, trouble="it is away", controllers=handed_on, **facts)))

    assert only_bad(found).check == check
    assert only_bad(found).verdict == "failed"
    assert len(found) == checks


@pytest.mark.parametrize(
    ("facts", "check", "verdict", "found", "advice"),
    [
        pytest.param(
            {"round_trip_ms": 100.5}, "log.round-trip", "warning", "100.5 ms", "--guard-deadline", id="far away"
        ),
        pytest.param(
            {"idempotence_trouble": "no producer id"},
            "log.idempotent-producer",
            "warning",
            "no: no producer id",
            "grant IdempotentWrite",
            id="no idempotent producer",
        ),
        pytest.param(
            {"changes": [change("create"), change("create"), change("set")]},
            "log.topics",
            "failed",
            "2 missing, 1 set otherwise",
            "slacktide topics apply --bootstrap kafka-1:9092",
            id="topics missing",
        ),
        pytest.param(
            {"changes": [change("set")]},
            "log.topics",
            "warning",
            "1 set otherwise",
            "to set them, run slacktide topics apply",
            id="drift",
        ),
        pytest.param(
            {"changes": [change("differs")]},
            "log.topics",
            "warning",
            "1 with differences that topics apply does not change",
            "see the differences: slacktide topics plan --bootstrap kafka-1:9092",
            id="what stays",
        ),
        pytest.param(
            {"newest": Newest(topic="t", timestamp_ms=NOW_MS + 5_001, by_broker=True)},
            "log.clock",
            "warning",
            "the newest record of t is 5.0 s ahead",
            "this clock is behind, or the broker's clock is ahead",
            id="a record from the future",
        ),
        pytest.param(
            {"settings": {"a": STAMPED_BY_BROKER, "b": STAMPED_BY_BROKER | {"message.timestamp.type": "CreateTime"}}},
            "log.timestamps",
            "warning",
            "CreateTime: b",
            "slacktide topics apply --bootstrap kafka-1:9092",
            id="times of clients",
        ),
        pytest.param(
            {"settings": {"a": STAMPED_BY_BROKER | {"max.message.bytes": "20000000"}}},
            "log.batch-size",
            "warning",
            "a 20000000",
            "larger batches become dead letters",
            id="batches that would not be read",
        ),
    ],
)
def test_what_a_log_lacks_is_said_with_what_to_do(
    facts: dict[str, object], check: str, verdict: str, found: str, advice: str
) -> None:
    bad = only_bad(list(kafka_findings(replace(LOG, **facts))))

    assert (bad.check, bad.verdict, bad.found) == (check, verdict, found)
    assert advice in bad.advice


def test_the_embedded_broker_and_its_lacks_are_named() -> None:
    lacking = {"idempotence_trouble": "no producer id", "transactions": False}
    found = {one.check: one for one in kafka_findings(replace(LOG, cluster=EMBEDDED, brokers=1, **lacking))}

    assert found["log.broker"].verdict == "warning"
    assert "for development" in found["log.broker"].advice
    assert "the embedded broker does not support it" in found["log.idempotent-producer"].advice
    assert (found["log.transactions"].verdict, found["log.transactions"].found) == ("ok", "no")


def test_a_log_that_does_not_answer_is_one_failure() -> None:
    (bad,) = kafka_findings(NoKafka(bootstrap=Cluster("kafka-1:9092"), trouble="kafka-1:9092: no answer within 10 s"))

    assert (bad.check, bad.verdict, bad.found) == ("log.broker", "failed", "kafka-1:9092: no answer within 10 s")


def test_records_a_little_ahead_are_in_order() -> None:
    newest = Newest(topic="t", timestamp_ms=NOW_MS + 5_000, by_broker=False)

    assert {one.verdict for one in kafka_findings(replace(LOG, newest=newest))} == {"ok"}


def test_psi_of_groups_is_reported_and_missed_by_no_machine_of_its_own() -> None:
    """Its absence matters where a policy asks for it."""
    found = {
        trouble: [one for one in cgroup_findings(replace(V2, no_stall=trouble)) if one.check == "pressure.stall"]
        for trouble in ("", "cpu.pressure: Operation not supported")
    }

    assert {trouble: [(one.verdict, one.found) for one in ones] for trouble, ones in found.items()} == {
        "": [("ok", "PSI of cgroups is readable")],
        "cpu.pressure: Operation not supported": [("ok", "none: cpu.pressure: Operation not supported")],
    }


@pytest.mark.parametrize("signal", ["pressure", "both"])
@pytest.mark.parametrize(
    ("cgroups", "advice"),
    [
        (replace(V2, no_stall="cpu.pressure: Operation not supported"), "boot with psi=1, on a kernel with CONFIG_PSI"),
        (replace(V1, no_stall=NO_GROUPS), "mount cgroup v2 at /sys/fs/cgroup/unified before pods are started"),
    ],
    ids=["v2 without PSI", "v1 alone"],
)
def test_a_policy_by_pressure_is_void_where_the_kernel_has_none_of_groups(
    signal: str, cgroups: CgroupFacts, advice: str
) -> None:
    threshold = {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressSignal": signal}}
    (void,) = (one for one in of_policy(cgroups, threshold=threshold) if one[0] == "policy.void-here")

    assert void[1].endswith(f"cpuSuppressSignal {signal} (cluster strategy)")
    assert "Best-effort pods are limited by CPU use" in void[2]
    assert advice in void[2]


@pytest.mark.parametrize(
    ("cgroups", "strategy"),
    [
        (V2, {"enable": True, "cpuSuppressSignal": "pressure"}),
        (replace(V2, no_stall="cpu.pressure: Operation not supported"), {"enable": True}),
        (
            replace(V2, no_stall="cpu.pressure: Operation not supported"),
            {"enable": False, "cpuSuppressSignal": "pressure"},
        ),
    ],
    ids=["PSI is there", "by use", "suppress is off"],
)
def test_no_policy_is_void_that_has_its_pressure_or_needs_none(cgroups: CgroupFacts, strategy: dict) -> None:
    threshold = {"clusterStrategy": {"cpuSuppressPolicy": "cfsQuota"} | strategy}

    assert not [one for one in of_policy(cgroups, threshold=threshold) if one[0] == "policy.void-here"]


def of_policy(cgroups: CgroupFacts = V2, cpus: int = 8, **configs: object) -> list[tuple[str, str, str]]:
    """What is said of a policy, but that it is valid."""
    parsed = parse(config_map(**configs), "policy.yaml")
    first, *rest = policy_findings("policy.yaml", parsed, cgroups, cpus)
    assert (first.check, first.verdict) == ("policy.valid", "ok")
    assert {one.verdict for one in rest} <= {"warning"}
    return [(one.check, one.found, one.advice) for one in rest]


def test_a_cpuset_policy_takes_nothing_where_its_floor_is_the_machine() -> None:
    """Best-effort CPU sets never go below 2 CPUs: on a machine of 2 the quota does what the operator wanted."""
    threshold = {
        "clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
        "nodeStrategies": [
            {"name": "small", "nodeSelector": {"matchLabels": {"size": "s"}}, "cpuSuppressPolicy": "cpuset"}
        ],
    }
    floors = [one for one in of_policy(cpus=2, threshold=threshold) if one[0] == "policy.cpuset-floor"]

    assert floors == [
        (
            "policy.cpuset-floor",
            "resource-threshold-config.cpuSuppressPolicy cpuset (node strategy small)",
            (
                "no CPU set is used here, only the CPU quota: a best-effort CPU set has at least 2 CPUs, and "
                "this machine has 2; "
                "to use a CPU set, lower resource-threshold-config.cpusetMinCPUs"
            ),
        )
    ]
    assert "policy.cpuset-floor" not in {check for check, _, _ in of_policy(cpus=3, threshold=threshold)}


def test_a_lower_floor_lets_a_small_machine_have_its_cpu_set() -> None:
    strategy = {"enable": True, "cpuSuppressPolicy": "cpuset", "cpusetMinCPUs": 1}

    assert "policy.cpuset-floor" not in {
        check for check, _, _ in of_policy(cpus=2, threshold={"clusterStrategy": strategy})
    }


@pytest.mark.parametrize(
    ("configs", "knob_name", "found"),
    [
        pytest.param(
            {"threshold": {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}},
            "cpu-quota",
            "resource-threshold-config: BECPUSuppress (cluster strategy)",
            id="suppress by quota",
        ),
        pytest.param(
            {"threshold": {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cpuset"}}},
            "cpu-set",
            "resource-threshold-config.cpuSuppressPolicy cpuset (cluster strategy)",
            id="suppress by CPU set",
        ),
        pytest.param(
            {"burst": {"clusterStrategy": {"policy": "cpuBurstOnly"}}},
            "cpu-burst",
            "cpu-burst-config: CPUBurst (cluster strategy)",
            id="CPU burst",
        ),
        pytest.param(
            {"qos": {"clusterStrategy": {"beClass": {"memoryQOS": {"enable": True}}}}},
            "memory-high",
            "resource-qos-config: MemoryQOS (beClass) (cluster strategy)",
            id="memory by QoS class",
        ),
    ],
)
def test_a_rule_whose_knob_cannot_be_used_is_void_here(configs: dict, knob_name: str, found: str) -> None:
    def void(cgroups: CgroupFacts) -> list[tuple[str, str]]:
        return [(what, why) for check, what, why in of_policy(cgroups, **configs) if check == "policy.void-here"]

    assert void(V2) == []
    instead = "; the CPU quota is used instead" if knob_name == "cpu-set" else ""
    assert void(knob(knob_name, state="not writable")) == [
        (found, f"no effect on this machine: see knob.{knob_name}{instead}")
    ]
    assert void(replace(V2, knobs={})) == []  # that there is no group is said already


def test_over_an_idle_tier_whose_weight_it_cannot_write_a_kubelet_does_not_start() -> None:
    asked = {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}
    said = [one for one in of_policy(qos={"clusterStrategy": asked}) if one[0] == "policy.idle-weight"]

    assert [found for _, found, _ in said] == ["resource-qos-config: beClass.cpuQOS.schedIdle 1 (cluster strategy)"]
    assert "EINVAL" in said[0][2]
    assert "does not start again until" in said[0][2]


def test_what_a_policy_sets_in_vain_or_too_early_is_named() -> None:
    strategy = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuEvictThresholdPercent": 60}
    colocation = {"enable": True, "metricMemoryCollectPolicy": "usageWithPageCache"}
    said = of_policy(colocation=colocation, threshold={"clusterStrategy": strategy})

    assert said == [
        (
            "policy.not-built",
            "1 field",
            'data["colocation-config"].metricMemoryCollectPolicy: checked, not yet in effect',
        ),
        (
            "policy.without-effect",
            "resource-threshold-config.cpuEvictThresholdPercent (cluster strategy)",
            "evictEnabledPriorityThreshold is unset",
        ),
    ]


def test_a_policy_that_is_refused_fails_with_every_finding() -> None:
    with pytest.raises(ConfigError) as refused:
        parse(config_map(burst={"clusterStrategy": {"policy": "some", "cpuBurstPercent": 0}}), "policy.yaml")
    findings = list(policy_findings("policy.yaml", refused.value, V2, 8))

    assert [(one.check, one.verdict) for one in findings] == [("policy.valid", "failed")] * 2
    assert findings[1].found.endswith("cpuBurstPercent: 0")
    assert findings[1].needed == "a whole number from 1 to 10000"


def test_every_feature_with_a_knob_is_one_of_the_policys() -> None:
    held = [feature.name for feature in FEATURES if knob_of(feature)]

    assert [name for name in held if not name.startswith("MemoryQOS (")] == [
        "BECPUSuppress",
        "CPUBurst",
        "CFSQuotaBurst",
        "CPUQOS (beClass)",
        "CPUQOS idle (beClass)",
    ]
    assert [name for name in held if name.startswith("MemoryQOS (")] == [
        f"MemoryQOS ({name})" for name in ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
    ]
    assert set(KNOB_OF.values()) <= {one.name for one in CONTROLS}


FINDINGS = [
    good("a.fine", "as it is", "as it is"),
    warned("b.so-so", "short " * 20, "more", "add some"),
    failed("c.bad", "nothing", "something", "get it"),
]


def test_for_machines_there_is_one_shape() -> None:
    told = json.loads(as_json(FINDINGS))

    assert list(told) == ["ready", "failed", "warnings", "checks"]
    assert (told["ready"], told["failed"], told["warnings"]) == (False, 1, 1)
    assert told["checks"][2] == {
        "check": "c.bad",
        "verdict": "failed",
        "found": "nothing",
        "needed": "something",
        "advice": "get it",
    }


def test_for_people_there_is_an_aligned_table_and_what_to_do_with_failures_first() -> None:
    assert as_table(FINDINGS).splitlines() == [
        "VERDICT  CHECK    FOUND                                            NEEDED",
        "ok       a.fine   as it is                                         as it is",
        "warning  b.so-so  short short short short short short short short  more",
        "                  short short short short short short short short",
        "                  short short short short",
        "failed   c.bad    nothing                                          something",
        "",
        "what to do:",
        "  failed   c.bad: get it",
        "  warning  b.so-so: add some",
        "",
        "not ready: 1 failed, 1 warning",
    ]
    assert as_table(FINDINGS[:1]).splitlines()[-1] == "ready, 0 warnings"


def test_warnings_are_ready_and_failures_are_not() -> None:
    assert ready(FINDINGS[:2])
    assert not ready(FINDINGS)


def write(folder: Path, files: dict[str, str]) -> Path:
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
    for name in (
        "cpu.max",
        "cpu.weight",
        "cpu.idle",
        "memory.max",
        "memory.min",
        "memory.low",
        "memory.high",
        "cgroup.freeze",
    )
}


def test_v2_is_found_with_what_was_handed_on(tmp_path: Path) -> None:
    facts = machine_facts.gather_cgroups(write(tmp_path, TREE_V2), None)

    assert (facts.version, facts.hybrid, facts.pods, facts.driver, facts.trouble) == (
        2,
        False,
        "kubepods",
        "cgroupfs",
        "",
    )
    assert facts.best_effort == str(tmp_path / GROUP)
    assert facts.controllers == {
        "cpu": "usable",
        "cpuacct": "usable",
        "memory": "usable",
        "cpuset": "not handed on",
        "freezer": "usable",
    }
    assert {name: one.state for name, one in facts.knobs.items() if one.state != "writable"} == {
        "cpu-burst": "absent",
        "cpu-set": "absent",
    }
    assert facts.refused_triggers == {"cpu": "not a file of a kernel", "memory": "not a file of a kernel"}
    assert not facts.idle_tier
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


def test_v1_alone_has_no_psi_of_groups(tmp_path: Path) -> None:
    facts = machine_facts.gather_cgroups(write(tmp_path, {f"cpu/{GROUP}/cpu.cfs_quota_us": "-1\n"}), None)

    assert facts.no_stall == NO_GROUPS


def test_v1_controllers_may_share_a_mount_and_lack_the_group(tmp_path: Path) -> None:
    pods = "kubepods.slice/kubepods-besteffort.slice"
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares")
    write(tmp_path, {f"cpu,cpuacct/{pods}/{name}": "-1\n" for name in names} | {"unified/cgroup.controllers": ""})
    (tmp_path / "memory").mkdir()
    facts = machine_facts.gather_cgroups(tmp_path, None)

    assert (facts.version, facts.hybrid, facts.pods, facts.driver) == (1, True, "kubepods.slice", "systemd")
    assert facts.controllers == {
        "cpu": "usable",
        "cpuacct": "usable",
        "memory": "not handed on",
        "cpuset": "absent",
        "freezer": "absent",
    }
    assert {name for name, one in facts.knobs.items() if one.state == "writable"} == {"cpu-quota", "cpu-weight"}
    assert facts.refused_triggers["cpu"] == NO_GROUPS


def test_of_a_knob_with_two_files_the_one_that_is_missing_is_named(tmp_path: Path) -> None:
    facts = machine_facts.gather_cgroups(write(tmp_path, {f"cpu/{GROUP}/cpu.cfs_quota_us": "-1\n"}), None)

    assert facts.knobs["cpu-quota"] == KnobFacts(files=("cpu.cfs_period_us",), state="absent", trouble="")


@pytest.mark.parametrize(
    ("files", "version", "trouble"),
    [
        pytest.param({"x": ""}, 0, "no cgroup hierarchy", id="nothing mounted"),
        pytest.param({"cgroup.controllers": "cpu\n"}, 2, "no cgroup contains pods", id="no kubelet"),
    ],
)
def test_what_is_not_there_is_told_and_not_raised(
    tmp_path: Path, files: dict[str, str], version: int, trouble: str
) -> None:
    facts = machine_facts.gather_cgroups(write(tmp_path, files), None)

    assert (facts.version, facts.pods, facts.knobs) == (version, "", {})
    assert trouble in facts.trouble


def test_a_knob_that_is_looked_at_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, TREE_V2)
    before = {path: (path.read_text(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()}
    machine_facts.gather_cgroups(tmp_path, None)

    assert {p: (p.read_text(), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.is_file()} == before


def gather_machine(folder: Path, state: Path) -> MachineFacts:
    mounts = machine_facts.Mounts(proc=folder / "proc", sys=folder / "sys", run=folder / "run")
    return machine_facts.gather_machine(mounts, state)


def test_a_machine_is_read_from_proc_sys_and_run(tmp_path: Path) -> None:
    write(tmp_path / "proc", PROC)
    write(tmp_path / "sys", {"devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock\n"})
    write(tmp_path / "run", {"systemd/timesync/synchronized": ""})
    facts = gather_machine(tmp_path, tmp_path / "a" / "b")

    assert (facts.kernel, facts.capabilities, facts.clock_source) == ("6.1.0-18-amd64", 2, "kvm-clock")
    assert (facts.clock_kept_by, facts.clock_synchronised) == ("systemd-timesyncd", True)
    assert facts.pressure == {"cpu": "", "memory": "", "io": ""}
    assert facts.state.trouble == ""
    assert facts.state.free_bytes > 0
    assert not (tmp_path / "a").exists()  # looked at, not made


def test_a_machine_that_tells_nothing_is_unknown(tmp_path: Path) -> None:
    facts = gather_machine(tmp_path, tmp_path)

    assert (facts.kernel, facts.capabilities, facts.clock_source, facts.clock_kept_by) == ("", None, "", "")
    assert facts.pressure["cpu"] == "No such file or directory"


def test_a_clocks_keeper_must_live(tmp_path: Path) -> None:
    """What a dead one left behind keeps nothing."""
    write(tmp_path, {"run/chrony/chronyd.pid": "17\n"})
    assert gather_machine(tmp_path, tmp_path).clock_kept_by == ""

    write(tmp_path, {"proc/17/stat": ""})
    facts = gather_machine(tmp_path, tmp_path)
    assert (facts.clock_kept_by, facts.clock_synchronised) == ("chronyd", False)


def test_a_file_cannot_hold_the_state(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert gather_machine(tmp_path, tmp_path / "file" / "state").state.trouble == f"{tmp_path}/file is not a folder"


def doctor(folder: Path, *arguments: str) -> Result:
    given = ["--cgroup-mount", str(folder / "cgroup"), "--proc-mount", str(folder / "proc")]
    given += ["--state-folder", str(folder / "state"), *arguments]
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


def test_a_policy_that_is_not_there_is_a_failed_check(fake: Path) -> None:
    result = doctor(fake, "--policy", str(fake / "nowhere.yaml"), "--output", "json")
    bad = [one for one in json.loads(result.output)["checks"] if one["verdict"] == "failed"]

    assert result.exit_code == 1
    assert [one["check"] for one in bad] == ["policy.valid"]


HOST = HostFacts(file="host.yaml", best_effort=PurePosixPath("batch.slice"), pods=["etl.service (BE)"], remarks=[])


def test_of_a_host_without_kubernetes_pods_are_named_and_what_matches_nothing() -> None:
    remark = Remark(what="slice wob.slice", why="no such cgroup now", advice="is the name right?")
    told = list(host_findings(replace(HOST, remarks=[remark])))

    assert [(one.check, one.verdict, one.found) for one in told] == [
        ("host.valid", "ok", "host.yaml"),
        ("host.pods", "ok", "1 pod: etl.service (BE)"),
        ("host.match", "warning", "slice wob.slice: no such cgroup now"),
    ]
    assert told[2].advice == "is the name right?"
    many = next(one for one in host_findings(replace(HOST, pods=list("abcdefg"))) if one.check == "host.pods")
    assert many.found == "7 pods: a, b, c, d, e, 2 more"


def test_a_host_file_that_does_not_validate_is_told_by_field_and_nothing_is_guessed(tmp_path) -> None:
    file = tmp_path / "host.yaml"
    file.write_text("bestEffort: batch.slice\nworkloads: [{slice: web.slice, qosClass: gold}]\n")
    write(tmp_path / "cgroup", TREE_V2)
    (tmp_path / "proc").mkdir()
    result = doctor(tmp_path, "--host-workloads", str(file), "--output", "json")
    (bad,) = (one for one in json.loads(result.stdout)["checks"] if one["check"].startswith(("host", "cgroup")))

    assert result.exit_code == 1
    assert (bad["check"], bad["verdict"], bad["found"]) == ("host.valid", "failed", "workloads[0].qosClass: gold")
    assert bad["advice"] == f"correct it in {file}"


@pytest.mark.parametrize("there", [True, False])
def test_a_hosts_best_effort_group_is_looked_at_as_a_kubelets_is(tmp_path, there) -> None:
    """While it is not there nothing is held, and nothing is wrong: systemd removes slices that hold nothing."""
    tree = {name.replace(GROUP, "batch.slice" if there else "other.slice"): text for name, text in TREE_V2.items()}
    (tmp_path / "host.yaml").write_text("bestEffort: batch.slice\nworkloads: [{slice: wob.slice, qosClass: LS}]\n")
    write(tmp_path / "cgroup", tree)
    result = doctor(tmp_path, "--host-workloads", str(tmp_path / "host.yaml"), "--output", "json")
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}

    assert "cgroup.pods" not in checks
    assert checks["cgroup.best-effort"]["verdict"] == ("ok" if there else "warning")
    assert checks["host.match"]["found"].endswith("slice: no such cgroup now")
    assert ("knob.cpu-quota" in checks) is there


def test_what_systemd_has_to_hand_on_is_said_in_its_words() -> None:
    facts = replace(V2, driver="none", controllers=dict(V2.controllers) | {"cpu": "not handed on"})
    cpu = next(one for one in cgroup_findings(facts) if one.check == "controller.cpu")

    assert (cpu.verdict, "CPUWeight=" in cpu.advice) == ("failed", True)
    facts = replace(V1, driver="none", controllers=dict(V1.controllers) | {"freezer": "not handed on"})
    freezer = next(one for one in cgroup_findings(facts) if one.check == "controller.freezer")
    assert freezer.advice == "on cgroup v1, systemd creates no cgroups in this hierarchy; use cgroup v2"


def test_two_layouts_at_once_are_refused(tmp_path) -> None:
    assert doctor(tmp_path, "--kubepods", "kubepods", "--host-workloads", "host.yaml").exit_code == 2


AGENT = AgentFacts(url="http://127.0.0.1:9464", not_live="", not_ready="", not_fresh="")


@pytest.mark.parametrize(
    ("facts", "verdicts"),
    [
        (None, {"agent.live": "ok"}),
        (AGENT, {"agent.live": "ok"}),
        (replace(AGENT, not_live="the event loop has been blocked for 12 s"), {"agent.live": "failed"}),
        (replace(AGENT, not_ready="Kafka is unreachable"), {"agent.live": "ok", "agent.ready": "failed"}),
        (replace(AGENT, not_fresh="the guard is in charge"), {"agent.live": "ok", "agent.fresh": "warning"}),
    ],
)
def test_an_agent_that_runs_has_to_work(facts: AgentFacts | None, verdicts: dict[str, str]) -> None:
    assert {one.check: one.verdict for one in agent_findings(facts)} == verdicts


@pytest.mark.parametrize(
    ("name", "severity", "runs", "verdict"),
    [
        ("agent.two", "problem", True, "failed"),
        ("agent.two", "problem", False, "failed"),
        ("agent.silent", "problem", True, "failed"),
        ("agent.silent", "problem", False, "warning"),
        ("window.partial", "warning", True, "warning"),
        ("window.partial", "note", True, "ok"),
    ],
)
def test_a_node_whose_figures_are_frozen_is_not_ready(name: str, severity: str, *, runs: bool, verdict: str) -> None:
    """The silence of an agent that does not run is expected, as before an upgrade."""
    explained = Explained(name=name, severity=severity, text="its figures are frozen", advice="find the second agent")
    (found,) = node_findings("alpha", [explained], runs=runs)

    assert found.verdict == verdict
    assert verdict == "ok" or found.advice == "find the second agent; `slacktide explain node alpha` shows more"
