"""A service becomes busy on a real node: best-effort pods give way within a moment, and get it back after."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from statistics import median

import pytest

from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from testbed.audit import Audit
from testbed.cluster import batch, images
from testbed.cluster.installed import FULL, Installed
from testbed.cluster.real_node import RealNode

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

CPUS = os.cpu_count() or 1
BUSY_S = 20 if FULL else 8
HZ, WORK_US = 100, 8_000
"""What the service needs while it is busy: 0.8 CPUs."""
ROOM_US = 10_000
"""A limit from which it can take something, whatever else runs on the machine."""
ROOM_S = 180.0
"""Until there is: others have the machine, too."""
CUT_S_MAX, BACK_S_MAX = 5.0, 60.0
BACK_US = CPUS * 5_000
"""Half a step, which is a tenth of the node."""
AVERAGED_MS = 2_000
"""A sample tells of the time since the one before it."""
THRESHOLD_PCT = 95
"""Under a lower one whatever else runs on the machine would have held best-effort pods back already."""
SERVICE = f"""
mkfifo /told/steps
while true; do
  read name seconds < /told/steps && echo $name && timeout $seconds burn serve {HZ} {WORK_US}
done
"""
"""Idle until it is told under which name to be busy, and for how long; a child that ends interrupts its listening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """CPU time so far, in seconds, and in how many periods best-effort pods wanted more than their limit."""

    service_s: float
    batch_s: float
    throttled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What was used while the service was busy."""

    service_cpus: float
    batch_cpus: float
    throttled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The service alone, beside best-effort pods without a limit, and beside them under control."""

    alone: Busy
    uncontrolled: Busy
    controlled: Busy
    held_us: float
    """The limit when the service became busy under control, and the lowest one while it was."""
    lowest_us: float
    kernel_s: float
    """From then to the first lower limit in the kernel, and to the first act that the log tells of."""
    log_s: float
    back_s: float
    """From the service's end to a limit that is higher by half a step."""
    room_us: float
    """The most that there was until then for best-effort pods: others may have taken what the service left."""


class Service:
    """A latency-sensitive pod that is busy when told."""

    def __init__(self, node: RealNode, namespace: str) -> None:
        self._node, self._namespace = node, namespace
        self._told = node.folder / namespace
        self._told.mkdir()
        container = {
            "name": "main",
            "image": images.BURN,
            "command": ["sh", "-c", SERVICE],
            "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}},
            "volumeMounts": [{"name": "told", "mountPath": "/told"}],
        }
        volumes = [{"name": "told", "hostPath": {"path": str(self._told)}}]
        spec = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
        metadata = {"name": "service", "labels": {"koordinator.sh/qosClass": "LS"}}
        node.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
        node.wait((self._told / "steps").exists, "the service waits")
        pod = node.get(f"/api/v1/namespaces/{namespace}/pods/service")
        self._group = node.group("cpuacct", pod)

    def step(self, name: str) -> None:
        """Have it busy from now on."""
        self._node.wait(lambda: self._tell(f"{name} {BUSY_S}\n"), "the service listens")

    def _tell(self, text: str) -> bool:
        try:
            told = os.open(self._told / "steps", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # nobody reads
                return False
            raise
        with os.fdopen(told, "w") as steps:
            steps.write(text)
        return True

    def used(self) -> Used:
        """So far."""
        groups = self._group, self._node.best_effort("cpuacct")
        service_s, batch_s = (int((group / "cpuacct.usage").read_text()) / 1e9 for group in groups)
        stat = dict(line.split() for line in (self._node.best_effort("cpu") / "cpu.stat").read_text().splitlines())
        return Used(service_s=service_s, batch_s=batch_s, throttled=int(stat["nr_throttled"]))

    def since(self, before: Used) -> Busy:
        """What it and best-effort pods used while it was busy."""
        now = self.used()
        return Busy(
            service_cpus=(now.service_s - before.service_s) / BUSY_S,
            batch_cpus=(now.batch_s - before.batch_s) / BUSY_S,
            throttled=now.throttled - before.throttled,
        )

    def busy(self, name: str) -> Busy:
        """Have it busy until it has ended."""
        before = self.used()
        self.step(name)
        time.sleep(BUSY_S)
        return self.since(before)

    def seconds(self) -> dict[str, list[dict[str, int]]]:
        """What it said of each second that it was busy, by name; not of the first, in which it began."""
        told: dict[str, list[dict[str, int]]] = defaultdict(list)
        name = ""
        for line in self._node.kubectl("logs", "service", "-n", self._namespace).splitlines():
            if line.startswith("{"):
                told[name].append(json.loads(line))
            else:
                name = line
        return told


@pytest.fixture(scope="module")
def here(slacktide: Installed) -> Iterator[str]:
    namespace = slacktide.node.namespace("busy")
    yield namespace
    slacktide.node.kubectl("delete", "namespace", namespace, "--wait=false")
    batch.set_policy(slacktide.node)


@pytest.fixture(scope="module")
def measured(slacktide: Installed, here: str, figures: list[str]) -> Measured:
    node = slacktide.node
    batch.set_policy(node, enable=False)
    service = Service(node, here)
    alone = service.busy("alone")
    for name in ("one", "two"):
        batch.pod(node, here, name, "burn", "spin", str(CPUS), cpu_milli=1000 * CPUS)
    running = "status.phase=Running"
    pods = f"/api/v1/namespaces/{here}/pods?fieldSelector={running}"
    node.wait(lambda: len(node.get(pods)["items"]) == 3, "best-effort pods run")
    node.wait(lambda: node.best_effort_quota_us is None, "no limit holds")
    uncontrolled = service.busy("uncontrolled")
    found = controlled(slacktide, service, alone=alone, uncontrolled=uncontrolled)
    figures.extend(table(found, service.seconds()))
    return found


def controlled(slacktide: Installed, service: Service, *, alone: Busy, uncontrolled: Busy) -> Measured:
    """The third phase: the limit is watched from the moment that the service becomes busy until it is given back."""
    node = slacktide.node
    audit = Audit(slacktide.kafka.bootstrap, node.name)
    batch.set_policy(node, cpuSuppressThresholdPercent=THRESHOLD_PCT)
    node.wait(lambda: ROOM_US <= limit_us(node) < inf, "best-effort pods have room", ROOM_S)
    before, held_us = service.used(), limit_us(node)
    service.step("controlled")
    began_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
    cut_s, lowest_us = watched(node, held_us, began_s + BUSY_S)
    busy, ended_s = service.since(before), time.monotonic()
    idle_ms = time.time_ns() // 1_000_000 + AVERAGED_MS
    with suppress(TimeoutError):
        node.wait(lambda: limit_us(node) >= lowest_us + BACK_US, "it is given back", BACK_S_MAX)
    back_s = time.monotonic() - ended_s
    rooms = [room_us(each) for each in audit.samples() if each.observed_ms > idle_ms]
    cuts = [each.acted_ms for each in audit.outcomes() if each.observed_ms >= began_ms and lowers(each)]
    return Measured(
        alone=alone,
        uncontrolled=uncontrolled,
        controlled=busy,
        held_us=held_us,
        lowest_us=lowest_us,
        kernel_s=cut_s - began_s,
        log_s=(min(cuts) - began_ms) / 1000 if cuts else inf,
        back_s=back_s,
        room_us=max(rooms, default=0.0),
    )


def limit_us(node: RealNode) -> float:
    quota_us = node.best_effort_quota_us
    return inf if quota_us is None else quota_us


def watched(node: RealNode, held_us: float, until_s: float) -> tuple[float, float]:
    """When the limit first went down, and the lowest that it came to."""
    cut_s, last_us, lowest_us = inf, held_us, held_us
    while time.monotonic() < until_s:
        now_us = limit_us(node)
        if now_us < last_us:
            cut_s = min(cut_s, time.monotonic())
        last_us, lowest_us = now_us, min(lowest_us, now_us)
        time.sleep(0.01)
    return cut_s, lowest_us


def room_us(sample: NodeSample) -> float:
    """What a sample leaves to best-effort pods of each 100 ms."""
    batch_milli = sum(each.cpu_milli or 0 for each in sample.pod_use if each.best_effort_group)
    return CPUS * THRESHOLD_PCT * 1_000 - ((sample.use.cpu_milli or 0) - batch_milli) * 100


def lowers(outcome: NodeOutcome) -> bool:
    """Whether it tells of a lower limit."""
    if outcome.result != "applied" or not outcome.about_limit or outcome.before is None or outcome.after is None:
        return False
    return (outcome.after.be_cfs_quota_us or inf) < (outcome.before.be_cfs_quota_us or inf)


def table(found: Measured, seconds: dict[str, list[dict[str, int]]]) -> Iterator[str]:
    """The figures, for whoever reads the run; medians over the seconds, the longest p99 beside."""
    yield f"a service of {HZ} requests a second, {WORK_US / 1000:g} ms of work each, for {BUSY_S} s, on {CPUS} CPUs"
    yield f"{'':<14}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}{'its CPUs':>10}{'batch CPUs':>12}{'throttled':>11}"
    for name in ("alone", "uncontrolled", "controlled"):
        used: Busy = getattr(found, name)
        p50, p99 = ([each[which] / 1000 for each in seconds[name]] for which in ("p50_us", "p99_us"))
        times = f"{median(p50):>9.1f}{median(p99):>9.1f}{max(p99):>9.1f}"
        yield f"{name:<14}{times}{used.service_cpus:>10.2f}{used.batch_cpus:>12.2f}{used.throttled:>11}"
    yield f"limit {found.held_us / 1000:g} ms of 100, then {found.lowest_us / 1000:g} at the lowest"
    yield f"first lower after {found.kernel_s:.2f} s in the kernel, {found.log_s:.2f} s by the log"
    back = f"after {found.back_s:.1f} s" if found.back_s <= BACK_S_MAX else "not at all: others have the machine"
    yield f"raised again by {BACK_US / 1000:g} ms once the service has ended: {back}"


def test_best_effort_pods_are_cut_when_the_service_becomes_busy_and_get_it_back_after(measured: Measured) -> None:
    assert measured.kernel_s <= CUT_S_MAX
    assert measured.log_s <= CUT_S_MAX
    assert measured.lowest_us < measured.held_us
    assert measured.back_s <= BACK_S_MAX or measured.room_us < measured.lowest_us + BACK_US


def test_they_want_more_than_they_may_only_under_control(measured: Measured) -> None:
    assert measured.uncontrolled.throttled == 0
    assert measured.controlled.throttled > 0


def test_the_service_comes_first(measured: Measured) -> None:
    """Of what the rest of the machine leaves to both."""
    assert measured.controlled.service_cpus > measured.controlled.batch_cpus
