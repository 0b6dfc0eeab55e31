"""A node of the fleet: it takes samples as an agent does, and holds what the answers ask for. No kernel, no clock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from bench.utilization.load import Task
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Pod, Resources, revision_of
from slacktide.schemas.knob import pod_group, uid_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Drift, Limits, NodeSample, NodeUse, PodUse
from slacktide.schemas.service import ServiceMinute
from slacktide.schemas.topics import NODE_PARTITIONS
from slacktide.streams.decisions.knobs import wanted
from slacktide.streams.decisions.suppress.cpu_suppress import looser, quota_rate
from slacktide.streams.kafka import partition_of

CPU_MILLI, MEM_BYTES = 32_000, 128 << 30
SERVICES, SERVICES_MILLI, SERVICES_MEM_PART = 8, 20_000, 0.40
"""Pods of services, what they request and what memory they hold together."""
SMALL_SERVICES = 32
"""Pods where stalls are measured: PSI shows no more than that a pod always waits, which large pods soon do."""
SYSTEM_MILLI, SYSTEM_BYTES = 400, 2 << 30
BOOT = "000000000001-0000000f"
SERVICE_LABEL = "example.com/service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What the pods of a node used, as parts of its CPU."""

    service: float
    batch: float
    wanted: float
    """What the batch pods would have used without a limit and with CPU for all."""
    idle: bool
    """Whether all batch pods have ``cpu.idle``."""


@dataclass(slots=True)
class SimNode:
    """One of them."""

    number: int
    policy: Policy
    service: str
    """What its services are, as the Node's label ``SERVICE_LABEL``."""
    services: int = SERVICES
    """How many pods it has of them."""
    name: str = field(init=False)
    partition: int = field(init=False)
    facts: NodeFacts = field(init=False)
    _facts_revision: str = field(init=False)
    _services: list[Pod] = field(init=False)
    limits: Limits = field(default_factory=lambda: Limits(be_cfs_quota_us=None))
    sold_milli: int = 0
    """Batch CPU that the stream publishes, and"""
    sold_bytes: int = 0
    tasks: dict[str, tuple[Task, float]] = field(default_factory=dict)
    """By uid: a task, and the hour in which it ends."""
    _idle: set[str] = field(default_factory=set)
    _want_idle: set[str] = field(default_factory=set)
    """Pods that the policy wants to be idle: an agent finds them so, and reports those that are not."""
    _pods: list[Pod] = field(default_factory=list)
    _revision: str = ""
    _listed: tuple[str, str] = "", ""
    _seq: int = 0
    _since_raise_ms: int | None = None

    def __post_init__(self) -> None:
        self.name = f"fleet-{self.number:04d}"
        self.partition = partition_of(self.name, NODE_PARTITIONS)
        capacity = Resources(cpu_milli=CPU_MILLI, mem_bytes=MEM_BYTES)
        labels = {SERVICE_LABEL: self.service}
        self.facts = NodeFacts(name=self.name, capacity=capacity, allocatable=capacity, labels=labels)
        self._facts_revision = revision_of(self.facts)
        self._services = [_service(self.name, place, self.services) for place in range(self.services)]
        self._relist()

    def inventory(self, now_ms: int) -> NodeInventory:
        """As the bridge publishes it."""
        return NodeInventory(node=self.name, revision=self._facts_revision, facts=self.facts, published_ms=now_ms)

    def free(self) -> tuple[int, int]:
        """What is sold and not requested: milli and bytes."""
        asked = [task for task, _ in self.tasks.values()]
        return (
            self.sold_milli - sum(task.request_milli for task in asked),
            self.sold_bytes - sum(task.mem_bytes for task in asked),
        )

    def place(self, tasks: Iterable[Task], hour: float) -> None:
        """A scheduler binds them here."""
        self.tasks |= {f"task-{task.number}": (task, hour + task.hours) for task in tasks}
        self._relist()

    def end_by(self, hour: float) -> None:
        """Tasks whose time is over have ended."""
        self.tasks = {uid: one for uid, one in self.tasks.items() if one[1] > hour}
        self._idle &= self.tasks.keys()
        self._relist()

    def second(self, service_part: float) -> Second:
        """What is used with the limit that is in force."""
        asked = sum(task.use_milli for task, _ in self.tasks.values()) / CPU_MILLI
        allowed = min(quota_rate(self.limits) * 1_000 / CPU_MILLI, 1 - service_part - SYSTEM_MILLI / CPU_MILLI)
        idle = bool(self.tasks) and self.tasks.keys() <= self._idle
        return Second(service=service_part, batch=max(0.0, min(asked, allowed)), wanted=asked, idle=idle)

    def sample(self, used: Second, now_ms: int, interval_ms: int) -> tuple[NodeSample, Sequence[Pod]]:
        """The next sample, and the pods that it names."""
        self._seq += 1
        if self._since_raise_ms is not None:
            self._since_raise_ms += interval_ms
        wanted_milli = max(1.0, used.wanted * CPU_MILLI)
        each = round(used.service * CPU_MILLI / self.services)
        uses = [
            PodUse(uid=pod.uid, cpu_milli=each, mem_bytes=int(MEM_BYTES * SERVICES_MEM_PART / self.services))
            for pod in self._services
        ]
        uses += [
            PodUse(
                uid=uid, cpu_milli=round(task.use_milli * used.batch * CPU_MILLI / wanted_milli),
                mem_bytes=task.mem_bytes * 3 // 4, best_effort_group=True,
            )
            for uid, (task, _) in self.tasks.items()
        ]  # fmt: skip
        names = self._facts_revision, self._revision
        carried = {"facts": self.facts, "pods": self._pods} if names != self._listed else {}
        self._listed = names
        sample = NodeSample(
            node=self.name, boot_id=BOOT, seq=self._seq, observed_ms=now_ms, interval_ms=interval_ms,
            policy_version=self.policy.version, facts_revision=self._facts_revision, pods_revision=self._revision,
            use=NodeUse(
                cpu_milli=sum(one.cpu_milli or 0 for one in uses) + SYSTEM_MILLI,
                mem_bytes=sum(one.mem_bytes or 0 for one in uses) + SYSTEM_BYTES,
            ),
            pod_use=uses, limits=self.limits, since_raise_ms=self._since_raise_ms,
            drift=[
                Drift(group=pod_group(uid), knob="cpu_idle", held=0) for uid in sorted(self._want_idle - self._idle)
            ],
            **carried,
        )  # fmt: skip
        return sample, self._pods

    def minute(self, used: Second, slowdown: float, now_ms: int, span_ms: int) -> ServiceMinute:
        """What its agent publishes of the service; ``slowdown``: CPU time and waiting, by CPU time."""
        run_us = round(used.service * CPU_MILLI * span_ms)
        return ServiceMinute(
            service=f"shop/{self.service}", node=self.name, observed_ms=now_ms, span_ms=span_ms,
            pods=self.services, template="first", run_us=run_us,
            wait_us=min(self.services * span_ms * 1_000, max(0, round(run_us * (slowdown - 1)))),
            be_cpu_us=round(used.batch * CPU_MILLI * span_ms), ls_cpu_us=run_us, cpus=CPU_MILLI // 1_000,
        )  # fmt: skip

    def learn(self, slope_permille: int) -> None:
        """The agent has read another slope of its service; 0: none is known."""
        name = f"shop/{self.service}" if slope_permille else ""
        self.facts = msgspec.structs.replace(self.facts, slope_permille=slope_permille, slope_of=name)
        self._facts_revision = revision_of(self.facts)

    def obey(self, command: NodeCommand) -> None:
        """Do what it asks for at once."""
        for hold in command.hold:
            if looser(hold.limits, self.limits):
                self._since_raise_ms = 0
            self.limits = hold.limits
        self._idle |= {uid_of(one.group) for one in command.settings if one.knob == "cpu_idle" and one.value}

    def _relist(self) -> None:
        self._pods = [*self._services, *(_batch(uid, task) for uid, (task, _) in self.tasks.items())]
        self._revision = revision_of(self._pods)
        settings = wanted(self.facts, self._pods, self.policy)
        self._want_idle = {uid_of(key.group) for key, one in settings.items() if key.knob == "cpu_idle" and one.value}


def _service(node: str, place: int, services: int) -> Pod:
    requests = Resources(cpu_milli=SERVICES_MILLI // services, mem_bytes=(64 << 30) // services)
    name = f"{node}-service-{place}"
    return Pod(
        uid=name, namespace="shop", name=name, qos_label="LS", priority=9_500, kube_qos="Burstable", requests=requests
    )


def _batch(uid: str, task: Task) -> Pod:
    amounts = Resources(batch_cpu_milli=task.request_milli, batch_mem_bytes=task.mem_bytes)
    return Pod(uid=uid, namespace="batch", name=uid, qos_label="BE", priority=5_500, requests=amounts, limits=amounts)
