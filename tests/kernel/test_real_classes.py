"""What the files of pods of each class hold on a real kernel, as agent and worker set them, and where the pods run."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel.groups import CONTAINER, V1, V2_WHOLE, Groups, on
from kernel.test_real_cores import BEST_EFFORT, BURSTABLE, GUARANTEED, TWO_CPUS, Node, cpus_of
from kernel.test_real_knobs import SteppedClock
from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.group_knobs import weight_of
from slacktide.agents.node.spool import MemorySpool
from slacktide.agents.node.tuner import LACKING
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.resource_qos import CpuQos, MemoryQos, QosClass, QosPolicies, ResourceQos
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import ANNOTATION_SYSTEM_QOS
from slacktide.streams.worker import Worker
from testbed.rungs import NIGHTLY
from testbed.samples import policy_record, raw_record

MIB, ROOT = 1 << 20, Path("/sys/fs/cgroup")
WATCHED_S = 60 if NIGHTLY else 2
PROTECTED = QosClass(mem=MemoryQos(enable=True, min_limit_pct=50, low_limit_pct=100))
POLICY = Policy(
    version="classes",
    colocation=Colocation(enable=True),
    resource_qos=ResourceQos(
        policies=QosPolicies(cpu="podIdle"), be=QosClass(cpu=CpuQos(enable=True, sched_idle=1)),
        lsr=PROTECTED, ls=PROTECTED, system=PROTECTED,
    ),
)  # fmt: skip
ONE, HALF, FIFTH = (Resources(cpu_milli=milli, mem_bytes=64 * MIB) for milli in (1_000, 500, 200))
BATCH = Resources(batch_cpu_milli=1_000, batch_mem_bytes=64 * MIB)
TIER = {"LSE": GUARANTEED, "LSR": GUARANTEED, "LS": BURSTABLE, "SYSTEM": BURSTABLE, "BE": BEST_EFFORT}
REQUESTS = {"LSE": ONE, "LSR": ONE, "LS": HALF, "SYSTEM": FIFTH, "BE": BATCH}
LIMITS = {"LSE": ONE, "LSR": ONE, "LS": ONE, "SYSTEM": Resources(), "BE": BATCH}
FILES = {
    1: (
        "cpuset:cpuset.effective_cpus", "cpu:cpu.cfs_quota_us", "cpu:cpu.shares", "cpu:cpu.idle",
        "memory:memory.limit_in_bytes",
    ),
    2: (
        ":cpuset.cpus.effective", ":cpu.max", ":cpu.weight", ":cpu.idle", ":memory.min", ":memory.low", ":memory.max",
    ),
}  # fmt: skip
"""By version; the first word is the hierarchy."""
Row = tuple[str, ...]


class Colocated(Node):
    """A pod of each class on a node; the stream worker decides for the agent."""

    def __init__(self, groups: Groups, kernel: CgroupKernel, own: Mapping[str, int], system: str = "") -> None:
        groups.bind(BURSTABLE, BEST_EFFORT)
        groups.weigh("2" if groups.version == 1 else "1")  # agent and worker run beside busy pods on every CPU
        super().__init__(groups, kernel)
        if system:
            self.facts.annotations[ANNOTATION_SYSTEM_QOS] = f'{{"cpuset": "{system}"}}'
        for qos in (*own, "LS", "SYSTEM", "BE"):
            cpuset = str(own[qos]) if qos in own else ""
            self.add(qos, qos, TIER[qos], cpuset, requests=REQUESTS[qos], limits=LIMITS[qos])
            self._made(qos, max(2, (REQUESTS[qos].cpu_milli or 0) * 1_024 // 1_000), LIMITS[qos].mem_bytes)

    def _made(self, qos: str, shares: int, limit_bytes: int | None) -> None:
        """As by a kubelet: weight and memory limit."""
        old, group = self.groups.version == 1, Path(self.groups.kubepods, TIER[qos], f"pod{qos}")
        file, text = ("cpu/{}/cpu.shares", shares) if old else ("{}/cpu.weight", weight_of(shares))
        (ROOT / file.format(group)).write_text(str(text))
        if limit_bytes:
            file = "memory/{}/memory.limit_in_bytes" if old else "{}/memory.max"
            (ROOT / file.format(group)).write_text(str(limit_bytes))

    def decide(self, samples: int) -> None:
        """Let the agent's samples go through a worker, and its commands through the agent."""
        worker, clock, spool = Worker("w"), SteppedClock(), MemorySpool()
        worker.policy(policy_record(POLICY))
        agent = self.agent(clock, spool, POLICY)
        for _ in range(samples):
            clock.now_ns += 1_000_000_000
            sample = agent.take()
            record = raw_record(encoded(sample, self.pods), key=b"n", offset=sample.seq)
            for out in worker.samples([record], clock.wall_ms()):
                if out.topic == COMMAND.name:
                    agent.answered(decode(out.value, NodeCommand))
        acts = [(one.origin, one.result) for _, one in spool.pending(999) if one.knob and one.bound != LACKING]
        assert set(acts) == {("stream", "applied")}

    def row(self, qos: str) -> Row:
        """What the kernel says of its pod."""
        files = (file.partition(":")[::2] for file in FILES[self.groups.version])
        paths = (ROOT / place / self.groups.kubepods / TIER[qos] / f"pod{qos}" / name for place, name in files)
        return tuple(path.read_text().strip() for path in paths)

    def watch(self) -> dict[str, set[int]]:
        """By class the CPUs on which its process was seen for a while: the field ``processor`` of its ``stat``."""
        files = {qos: Path(f"/proc/{process.pid}/stat") for qos, process in self.busy.items()}
        seen: dict[str, set[int]] = {qos: set() for qos in files}
        end = time.monotonic() + WATCHED_S
        while time.monotonic() < end:
            for qos, file in files.items():
                seen[qos].add(int(file.read_text().rpartition(")")[2].split()[36]))
            time.sleep(0.005)
        return seen


def table(version: int, rows: Mapping[str, Row]) -> str:
    """As it stands on the page."""
    names = [f"`{file.partition(':')[2]}`" for file in FILES[version]]
    lines = [["class", *names], ["---"] * (1 + len(names)), *([qos, *row] for qos, row in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@on(V2_WHOLE)
@pytest.mark.story
def test_a_pod_of_each_class_has_what_the_manual_says_and_runs_nowhere_else(
    groups: Groups, kernel: CgroupKernel
) -> None:
    node = Colocated(groups, kernel, {"LSE": 0, "LSR": 1}, system="3")
    assert [one.numa_node for one in node.facts.processors] == [0, 0, 1, 1]
    node.decide(6)
    rows = {qos: node.row(qos) for qos in node.busy}
    allowed = node.may_run()
    assert allowed == {"LSE": {0}, "LSR": {1}, "LS": {2}, "SYSTEM": {3}, "BE": {1, 2}}
    assert {qos: cpu_ranges(cpus) for qos, cpus in allowed.items()} == {qos: row[0] for qos, row in rows.items()}
    assert table(2, rows) in Path("docs/cores.md").read_text()
    seen = node.watch()
    assert all(seen[qos] and seen[qos] <= allowed[qos] for qos in seen), seen


@on(pytest.param(*V1.values, id=V1.id, marks=[*V1.marks, TWO_CPUS]))
@pytest.mark.parametrize(("owner", "beside"), [("LSE", False), ("LSR", True)])
@pytest.mark.story
def test_two_cpus_hold_all_classes_but_one(groups: Groups, kernel: CgroupKernel, owner: str, *, beside: bool) -> None:
    """An LSE or an LSR pod: both together would leave no CPU for the others, which no scheduler does."""
    first, *others = map(str, sorted(os.sched_getaffinity(0)))
    rest = cpu_ranges(map(int, others))
    node = Colocated(groups, kernel, {owner: int(first)})
    node.decide(6)
    unlimited, limit = "-1", str(64 * MIB)
    none = (ROOT / "memory/memory.limit_in_bytes").read_text().strip()
    rows = {qos: node.row(qos) for qos in node.busy}
    assert rows == {
        owner: (first, unlimited, "1024", "0", limit),
        "LS": (rest, "100000", "512", "0", limit),
        "SYSTEM": (rest, unlimited, "204", "0", none),
        "BE": (cpu_ranges(cpus_of(node)) if beside else rest, "100000", "3", "1", limit),
    }
    allowed = node.may_run()
    seen = node.watch()
    assert all(seen[qos] and seen[qos] <= allowed[qos] for qos in seen), seen
    assert node.groups.quota(f"{GUARANTEED}/pod{owner}/{CONTAINER}") == unlimited
