"""What an operator may say of a plain host, and what is refused with the field's path."""

from pathlib import PurePosixPath

import pytest
import yaml

from slacktide.schemas.errors import ConfigError
from slacktide.schemas.host_workloads import HostWorkloads, Workload, parse, pod_of
from slacktide.schemas.inventory import Resources
from slacktide.schemas.qos import is_best_effort
from testbed.stories import each_story, story
from testbed.vectors import each_row

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

    asks = Resources(cpu_milli=2000, mem_bytes=4 * 1024**3)
    assert found.best_effort == PurePosixPath("batch.slice")
    assert found.docker_socket == "/var/run/docker.sock"
    assert found.workloads == (
        Workload(group=PurePosixPath("web.slice"), qos="LS", priority=9500, requests=asks),
        Workload(group=PurePosixPath("system.slice/postgresql.service"), qos="LSR", limits=Resources(cpu_milli=500)),
        Workload(group=PurePosixPath("batch.slice/etl.service"), qos="BE", priority=5500),
        Workload(label="com.example.tier=web", qos="LS"),
    )
    assert read("bestEffort: /batch/\n") == HostWorkloads(best_effort=PurePosixPath("batch"))


@each_row("label", "labels", "fits")
def test_a_label_is_meant_with_its_value_or_with_any(label, labels, fits) -> None:
    assert Workload(label=label, qos="LS").fits(labels) is fits


class Host:
    """A description of a host, and why it is refused."""

    def __init__(self, text: str) -> None:
        self.text, self.refused = text, ""

    def read(self) -> None:
        with pytest.raises(ConfigError) as refused:
            read(self.text)
        self.refused = str(refused.value)

    def state(self) -> dict[str, object]:
        return {"refused": self.refused}


@each_story("host_workloads")
def test_what_is_not_as_it_should_be_is_refused_by_its_path(given: dict, steps: str, snapshot) -> None:
    assert story(Host(**given), steps) == snapshot


@each_row("qos", "held", "counts_as", "best_effort")
def test_where_a_group_lies_makes_it_best_effort_and_not_what_is_written(qos, held, counts_as, best_effort) -> None:
    """What is not held back may not count as if it were: its use would be given away twice."""
    pod = pod_of(Workload(qos=qos, priority=5500), uid="u", name="web.slice", held=held)

    assert pod.priority == (5500 if qos == counts_as else None), "it would count for the class of its number"
    assert (pod.qos_label, is_best_effort(pod)) == (counts_as, best_effort)
    assert (pod.namespace, pod.phase) == ("host", "Running")


def test_what_only_lies_in_the_best_effort_group_is_best_effort_and_asks_for_nothing() -> None:
    pod = pod_of(None, uid="batch.slice/x.service", name="x.service", held=True)

    assert (pod.qos_label, pod.kube_qos, pod.priority, pod.requests) == ("BE", "BestEffort", None, Resources())
