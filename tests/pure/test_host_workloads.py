"""What an operator may say of a plain host, and what is refused with the field's path."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
import yaml

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.host_workloads import HostWorkloads, Workload, parse, pod_of
from slacktide.schemas.inventory import Resources
from slacktide.schemas.qos import is_best_effort

WRITTEN = """
bestEffort: batch.slice
workloads:
- {slice: web.slice, qosClass: LS, priority: 9500, requests: {cpu: "2", memory: 4Gi}}
- {slice: system.slice/postgresql.service, qosClass: LSR, limits: {cpu: 500m}}
- {slice: batch.slice/etl.service, qosClass: BE, priority: 5500}
- {containerLabel: com.example.tier=web, qosClass: LS}
"""


def read(text: str) -> HostWorkloads:
    return parse(yaml.safe_load(text), "host.yaml")


def test_what_is_written_is_understood() -> None:
    found = read(WRITTEN)

    assert found.best_effort == PurePosixPath("batch.slice")
    assert found.docker_socket == "/var/run/docker.sock"
    assert found.workloads == (
        Workload(
            group=PurePosixPath("web.slice"),
            qos="LS",
            priority=9500,
            requests=Resources(cpu_milli=2000, mem_bytes=4 * 1024**3),
        ),
        Workload(group=PurePosixPath("system.slice/postgresql.service"), qos="LSR", limits=Resources(cpu_milli=500)),
        Workload(group=PurePosixPath("batch.slice/etl.service"), qos="BE", priority=5500),
        Workload(label="com.example.tier=web", qos="LS"),
    )
    assert read("bestEffort: /batch/\n") == HostWorkloads(best_effort=PurePosixPath("batch"))


@pytest.mark.parametrize(
    ("label", "labels", "fits"),
    [
        ("tier=web", {"tier": "web", "more": "x"}, True),
        ("tier=web", {"tier": "webs"}, False),
        ("tier=web", {}, False),
        ("tier", {"tier": "anything"}, True),
        ("tier=", {"tier": ""}, True),
        ("tier=", {"tier": "web"}, False),
        ("query=a=b", {"query": "a=b"}, True),
        ("", {"": ""}, False),
    ],
)
def test_a_label_is_meant_with_its_value_or_with_any(label, labels, fits) -> None:
    assert Workload(label=label, qos="LS").fits(labels) is fits


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "host.yaml: content: []: accepted: a map"),
        ("workloads: []", "bestEffort: None: accepted: a group"),
        ("bestEffort: ../system.slice", "bestEffort: ../system.slice: accepted: a group"),
        ("bestEffort: /", "bestEffort: /: accepted: a group"),
        ("bestEffort: b\nworkload: []", "workload: []: accepted: no such field; there are bestEffort, workloads"),
        ("bestEffort: b\ndockerSocket: docker.sock", "dockerSocket: docker.sock: accepted: an absolute path"),
        ("bestEffort: b\nworkloads: {}", "workloads: {}: accepted: a list"),
        ("bestEffort: b\nworkloads: [web]", "workloads[0]: web: accepted: a map"),
        ("bestEffort: b\nworkloads: [{slice: a, qosClass: gold}]", "workloads[0].qosClass: gold: accepted: LSE or"),
        ("bestEffort: b\nworkloads: [{slice: a}]", "workloads[0].qosClass: None"),
        ("bestEffort: b\nworkloads: [{qosClass: LS}]", "workloads[0]: qosClass: accepted: either slice or"),
        ("bestEffort: b\nworkloads: [{slice: a, containerLabel: b, qosClass: LS}]", "either slice or containerLabel"),
        ("bestEffort: b\nworkloads: [{containerLabel: =web, qosClass: LS}]", "containerLabel: =web: accepted: KEY"),
        ("bestEffort: b\nworkloads: [{containerLabel: 7, qosClass: LS}]", "workloads[0].containerLabel: 7"),
        ("bestEffort: b\nworkloads: [{slice: a, qosClass: LS, class: x}]", "workloads[0].class: x: accepted: no such"),
        ("bestEffort: b\nworkloads: [{slice: a, qosClass: LS, priority: high}]", "workloads[0].priority: high"),
        ("bestEffort: b\nworkloads: [{slice: a, qosClass: LS, requests: {cpu: -1}}]", "workloads[0].requests.cpu: -1"),
        (
            "bestEffort: a/b\nworkloads: [{slice: a, qosClass: LS}]",
            "workloads[0].slice: a: accepted: a group that does",
        ),
        ("bestEffort: a\nworkloads: [{slice: a, qosClass: BE}]", "workloads[0].slice: a: accepted: a group that does"),
        ("bestEffort: b\nworkloads: [{slice: b/a, qosClass: LS}]", "workloads[0].slice: b/a: accepted: in bestEffort"),
        ("bestEffort: b\nworkloads: [{slice: b/a/c, qosClass: BE}]", "b/a/c: accepted: in bestEffort: class BE, right"),
        (
            "bestEffort: b\nworkloads: [{slice: s, qosClass: LS}, {slice: s/db, qosClass: LSR}]",
            "workloads[1].slice: s/db: accepted: each group once, and none that lies in another (s holds it)",
        ),
        (
            "bestEffort: b\nworkloads: [{slice: s, qosClass: LS}, {slice: s, qosClass: LS}]",
            "workloads[0].slice: s: accepted: each group once",
        ),
    ],
)
def test_what_is_not_as_it_should_be_is_refused_by_its_path(text, says) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("qos", "held", "counts_as", "best_effort"),
    [
        ("LS", False, "LS", False),
        ("LSR", False, "LSR", False),
        ("SYSTEM", False, "SYSTEM", False),
        ("BE", True, "BE", True),
        ("LS", True, "BE", True),
        ("BE", False, "LS", False),
    ],
)
def test_where_a_group_lies_makes_it_best_effort_and_not_what_is_written(qos, held, counts_as, best_effort) -> None:
    """What is not held back may not count as if it were: its use would be given away twice."""
    pod = pod_of(Workload(qos=qos, priority=5500), uid="u", name="web.slice", held=held)

    assert pod.priority == (5500 if qos == counts_as else None), "it would count for the class of its number"
    assert (pod.qos_label, is_best_effort(pod)) == (counts_as, best_effort)
    assert (pod.namespace, pod.phase) == ("host", "Running")


def test_what_only_lies_in_the_best_effort_group_is_best_effort_and_asks_for_nothing() -> None:
    pod = pod_of(None, uid="batch.slice/x.service", name="x.service", held=True)

    assert (pod.qos_label, pod.kube_qos, pod.priority, pod.requests) == ("BE", "BestEffort", None, Resources())
