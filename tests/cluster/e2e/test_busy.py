"""A service becomes busy on a real node: best-effort pods give way within a moment, and get it back after."""

import errno
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

import pytest

from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from testbed.audit import Audit
from testbed.cluster import batch, images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.real_node import RealNode
from testbed.rungs import NIGHTLY

pytestmark = [pytest.mark.alone, pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

CPUS = os.cpu_count() or 1
BATCH_MILLI = 450 * CPUS
"""What each of two best-effort pods asks for: a node sells no more CPUs than it has."""
ROUNDS, BUSY_S = (5, 20) if NIGHTLY else (3, 5)
HZ, WORK_US = 100, 6_000
"""What the service needs while it is busy: 0.6 CPUs, more than it asked for."""
NEEDED_CPUS = 0.9 * HZ * WORK_US / 1_000_000
"""What it has at least where nothing takes it away."""
CLEARLY = 2.0
"""How many times longer the service's p99 is beside an ordinary pod than under control, at least."""
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
UNTIL_TOLD_S = 600
PHASES = {
    "alone": "alone",
    "ordinary": "beside an ordinary pod",
    "unlimited": "beside best-effort ones",
    "controlled": "... under control",
}
"""Ordinary is batch work without Slacktide: it asks for CPU as any pod does, and so weighs as much as a service."""


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
class Cut:
    """A service becomes busy under control, and idle again."""

    held_us: float
    """The limit when the service became busy, and the lowest one while it was."""
    lowest_us: float
    kernel_s: float
    """From then to the first lower limit in the kernel, and to the first act that the log tells of."""
    log_s: float
    back_s: float
    """From the service's end to a limit that is higher by half a step."""
    room_us: float
    """The most that there was until then for best-effort pods: others may have taken what the service left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """By phase what was used in each round, and the service's p50 and p99 in ms, medians over each round's seconds."""

    used: dict[str, list[Busy]]
    p50_ms: dict[str, list[float]]
    p99_ms: dict[str, list[float]]


class Pod:
    """A pod that does its work when told: it waits at a pipe for a name and for how many seconds."""

    def __init__(self, node: RealNode, namespace: str, name: str, work: str) -> None:
        self.node, self.name = node, name
        self._namespace, self._work = namespace, work
        self._told = node.folder / namespace
        self._told.mkdir(exist_ok=True)

    def make(self, spec: Json, **labels: str) -> None:
        """Start it; the spec's one container gets the work."""
        # A child that ends interrupts its listening.
        script = f"""
        mkfifo /told/{self.name}
        while true; do
          read name seconds < /told/{self.name} && echo $name && timeout $seconds {self._work}
        done
        """
        [container] = spec["containers"]
        told = {"command": ["sh", "-c", script], "volumeMounts": [{"name": "told", "mountPath": "/told"}]}
        volumes = [{"name": "told", "hostPath": {"path": str(self._told)}}]
        spec = {**spec, "terminationGracePeriodSeconds": 1, "containers": [{**container, **told}], "volumes": volumes}
        metadata = {"name": self.name, "labels": labels}
        self.node.post(f"/api/v1/namespaces/{self._namespace}/pods", {"metadata": metadata, "spec": spec})
        self.node.wait((self._told / self.name).exists, f"{self.name} waits")

    def usage_s(self) -> float:
        """CPU time so far."""
        return int((self._group("cpuacct") / "cpuacct.usage").read_text()) / 1e9

    def step(self, name: str, seconds: int = UNTIL_TOLD_S) -> None:
        """Have it work from now on."""
        self.node.wait(lambda: self._tell(f"{name} {seconds}\n"), f"{self.name} listens")

    def end(self) -> None:
        """Have it stop working."""
        for pid in map(int, self._processes()):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "burn\n":
                    os.kill(pid, signal.SIGTERM)

    def _processes(self) -> list[str]:
        return [pid for procs in self._group("cpu").rglob("cgroup.procs") for pid in procs.read_text().split()]

    def _group(self, controller: str) -> Path:
        return self.node.group(controller, self.node.get(f"/api/v1/namespaces/{self._namespace}/pods/{self.name}"))

    def _tell(self, text: str) -> bool:
        try:
            told = os.open(self._told / self.name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # nobody reads
                return False
            raise
        with os.fdopen(told, "w") as steps:
            steps.write(text)
        return True

    def seconds(self) -> dict[str, list[dict[str, int]]]:
        """What it said of each second that it was busy, by name; requests that still wait at the end are in none."""
        told: dict[str, list[dict[str, int]]] = defaultdict(list)
        name = ""
        for line in self.node.kubectl("logs", self.name, "-n", self._namespace).splitlines():
            if line.startswith("{"):
                told[name].append(json.loads(line))
            else:
                name = line
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """A latency-sensitive service, and batch work: an ordinary pod, and best-effort ones."""

    service: Pod
    ordinary: Pod
    best_effort: list[Pod]

    def used(self) -> Used:
        """So far."""
        node = self.service.node
        stat = dict(line.split() for line in (node.best_effort("cpu") / "cpu.stat").read_text().splitlines())
        batch_s = sum(each.usage_s() for each in (self.ordinary, *self.best_effort))
        return Used(service_s=self.service.usage_s(), batch_s=batch_s, throttled=int(stat["nr_throttled"]))

    def busy(self, name: str) -> Busy:
        """Have the service busy until it has ended."""
        before = self.used()
        self.service.step(name, BUSY_S)
        time.sleep(BUSY_S)
        now = self.used()
        return Busy(
            service_cpus=(now.service_s - before.service_s) / BUSY_S,
            batch_cpus=(now.batch_s - before.batch_s) / BUSY_S,
            throttled=now.throttled - before.throttled,
        )


@pytest.fixture(scope="module")
def here(slacktide: Installed) -> Iterator[str]:
    namespace = slacktide.node.namespace("busy")
    yield namespace
    slacktide.node.kubectl("delete", "namespace", namespace, "--wait=false")
    batch.set_policy(slacktide.node)


@pytest.fixture(scope="module")
def pods(slacktide: Installed, here: str) -> Pods:
    node = slacktide.node
    batch.set_policy(node, enable=False)
    made = Pods(
        service=Pod(node, here, "service", f"burn serve {HZ} {WORK_US}"),
        ordinary=Pod(node, here, "ordinary", f"burn spin {2 * CPUS}"),
        best_effort=[Pod(node, here, name, f"burn spin {CPUS}") for name in ("one", "two")],
    )
    made.service.make(asking("500m"), **{"koordinator.sh/qosClass": "LS"})
    made.ordinary.make(asking("900m"))
    for each in made.best_effort:
        each.make(batch.pod_spec("", cpu_milli=BATCH_MILLI), **batch.LABELS)
    return made


def asking(cpu: str) -> Json:
    """The spec of a pod as any other's."""
    requests = {"cpu": cpu, "memory": "64Mi"}
    return {"containers": [{"name": "main", "image": images.BURN, "resources": {"requests": requests}}]}


@pytest.fixture(scope="module")
def measured(pods: Pods, figures: list[str]) -> Measured:
    """The phases in turn, round by round, so that whatever else the machine does meets all of them."""
    used: dict[str, list[Busy]] = defaultdict(list)
    for number in range(ROUNDS):
        for name, busy in one_round(pods, number):
            used[name].append(busy)
    seconds = pods.service.seconds()

    def medians(name: str, which: str) -> list[float]:
        return [median(each[which] / 1000 for each in seconds[f"{name}-{number}"]) for number in range(ROUNDS)]

    found = Measured(
        used=used,
        p50_ms={name: medians(name, "p50_us") for name in PHASES},
        p99_ms={name: medians(name, "p99_us") for name in PHASES},
    )
    figures.extend(table(found))
    return found


def one_round(pods: Pods, number: int) -> Iterator[tuple[str, Busy]]:
    """What was used in each phase."""
    node = pods.service.node
    batch.set_policy(node, enable=False)
    node.wait(lambda: node.best_effort_quota_us is None, "no limit holds")
    yield "alone", pods.busy(f"alone-{number}")
    pods.ordinary.step("spin")
    yield "ordinary", pods.busy(f"ordinary-{number}")
    pods.ordinary.end()
    for each in pods.best_effort:
        each.step("spin")
    yield "unlimited", pods.busy(f"unlimited-{number}")
    batch.set_policy(node, cpuSuppressThresholdPercent=THRESHOLD_PCT)
    node.wait(lambda: node.best_effort_quota_us is not None, "a limit holds")
    yield "controlled", pods.busy(f"controlled-{number}")
    for each in pods.best_effort:
        each.end()


@pytest.fixture(scope="module")
def cut(slacktide: Installed, pods: Pods, measured: Measured, figures: list[str]) -> Cut:
    """The limit is watched from the moment that the service becomes busy until it is given back."""
    node = slacktide.node
    audit = Audit(slacktide.kafka.bootstrap, node.name)
    for each in pods.best_effort:
        each.step("spin")
    node.wait(lambda: ROOM_US <= limit_us(node) < inf, "best-effort pods have room", ROOM_S)
    held_us = limit_us(node)
    pods.service.step("cut", BUSY_S)
    began_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
    cut_s, lowest_us = watched(node, held_us, began_s + BUSY_S)
    ended_s = time.monotonic()
    idle_ms = time.time_ns() // 1_000_000 + AVERAGED_MS
    with suppress(TimeoutError):
        node.wait(lambda: limit_us(node) >= lowest_us + BACK_US, "it is given back", BACK_S_MAX)
    back_s = time.monotonic() - ended_s
    rooms = [room_us(each) for each in audit.samples() if each.observed_ms > idle_ms]
    cuts = [each.acted_ms for each in audit.outcomes() if each.observed_ms >= began_ms and lowers(each)]
    found = Cut(
        held_us=held_us,
        lowest_us=lowest_us,
        kernel_s=cut_s - began_s,
        log_s=(min(cuts) - began_ms) / 1000 if cuts else inf,
        back_s=back_s,
        room_us=max(rooms, default=0.0),
    )
    figures.extend(told(found))
    return found


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


def table(found: Measured) -> Iterator[str]:
    """The figures, for whoever reads the run: medians over the rounds, the longest p99 beside."""
    yield f"a service of {HZ} requests a second, {WORK_US / 1000:g} ms of CPU each, on {CPUS} CPUs"
    yield f"medians of {ROUNDS} rounds, {BUSY_S} s each, in turn"
    yield f"{'':<26}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}{'its CPUs':>10}{'batch CPUs':>12}{'throttled':>11}"
    for name, title in PHASES.items():
        p50, p99, used = found.p50_ms[name], found.p99_ms[name], found.used[name]
        cpus = median(each.service_cpus for each in used), median(each.batch_cpus for each in used)
        throttled = sum(each.throttled for each in used)
        times = f"{median(p50):>9.1f}{median(p99):>9.1f}{max(p99):>9.1f}"
        yield f"{title:<26}{times}{cpus[0]:>10.2f}{cpus[1]:>12.2f}{throttled:>11}"


def told(found: Cut) -> Iterator[str]:
    """How it was cut, and given back."""
    yield f"limit {found.held_us / 1000:g} ms of 100, then {found.lowest_us / 1000:g} at the lowest"
    yield f"first lower after {found.kernel_s:.2f} s in the kernel, {found.log_s:.2f} s by the log"
    back = f"after {found.back_s:.1f} s" if found.back_s <= BACK_S_MAX else "not at all: others have the machine"
    yield f"raised again by {BACK_US / 1000:g} ms once the service has ended: {back}"


def test_the_service_answers_far_sooner_than_beside_the_same_work_in_an_ordinary_pod(measured: Measured) -> None:
    ordinary, controlled = (median(measured.p99_ms[name]) for name in ("ordinary", "controlled"))
    assert ordinary >= CLEARLY * controlled


def test_it_has_the_cpu_that_it_needs_or_more_than_beside_the_ordinary_pod(measured: Measured) -> None:
    ordinary, controlled = (
        median(each.service_cpus for each in measured.used[name]) for name in ("ordinary", "controlled")
    )
    assert controlled > min(ordinary, NEEDED_CPUS)


def test_best_effort_pods_want_more_than_they_may_only_under_control(measured: Measured) -> None:
    assert sum(each.throttled for each in measured.used["unlimited"]) == 0
    assert all(each.throttled > 0 for each in measured.used["controlled"])


def test_the_service_comes_first(measured: Measured) -> None:
    """It has what it needs, or, of what the rest of the machine leaves to both, more than best-effort pods."""
    assert all(each.service_cpus > min(each.batch_cpus, NEEDED_CPUS) for each in measured.used["controlled"])


def test_best_effort_pods_are_cut_when_the_service_becomes_busy_and_get_it_back_after(cut: Cut) -> None:
    assert cut.kernel_s <= CUT_S_MAX
    assert cut.log_s <= CUT_S_MAX
    assert cut.lowest_us < cut.held_us
    assert cut.back_s <= BACK_S_MAX or cut.room_us < cut.lowest_us + BACK_US
