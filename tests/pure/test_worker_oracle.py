"""What is published, when, and what it says, against a plain reference: whatever becomes of nodes, clocks and pods."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.inventory import Pod, revision_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse
from slacktide.schemas.topics import COMMAND, DEAD_LETTER, METRIC
from slacktide.streams.columns.series import slot_ms
from slacktide.streams.worker import Worker
from testbed.samples import START_MS, keyframe, policy_record, record_of

POLICIES = [
    policy_of(Colocation(enable=True, metric_aggregate_duration_s=window_s), ResourceThreshold())
    for window_s in (10, 300, 3_600, 86_400)
]
BAND_MILLI = 40
"""A hundredth of the node."""
UNSURE_MILLI = 1
"""So near to the band either is right."""
FIGURE = st.none() | st.integers(0, 4_000)
STEP = st.tuples(
    st.sampled_from(["node-1", "node-2"]),
    st.sampled_from([100, 1_000, 1_000, 1_000, 1_007, 9_900, 90_000]),  # interval
    st.sampled_from([0, 0, 0, 0, 250, 70_400]),  # not covered before it
    st.sampled_from(["", "", "", "", "", "restart", "clock on", "clock back", "again", "other policy"]),
    FIGURE,
    st.dictionaries(st.sampled_from("abc"), FIGURE),
    st.sampled_from(["ab", "ab", "abd", ""]),
)


@dataclass
class Span:
    """What one sample said of the time that it covers."""

    begin_ms: int
    end_ms: int
    measured: bool
    figures: dict[str, int | None]


@dataclass
class Reference:
    """One node. Figures go by pod, or "node" and "system"."""

    newest: tuple[str, int] = ("", -1)
    epoch: int = 0
    spans: list[Span] = field(default_factory=list)
    begun: int = 0
    """The first span of the averages."""
    since: dict[str, int] = field(default_factory=dict)
    """The first span of each pod that is kept."""
    changes: int = 0
    """Of these."""
    window_ms: int = 0
    late: int = 0
    before: dict[str, int | None] = field(default_factory=dict)
    told: tuple[int, Any, dict[str, float | None]] | None = None

    def receive(self, said: NodeSample, listed: str, window_ms: int) -> bool:
        """Whether it is in the window."""
        newest, boot_id = (said.boot_id, said.seq), self.newest[0]
        if newest > self.newest:
            self.late = self.late if said.boot_id == boot_id else 0
            again = (said.boot_id, said.clock_epoch) != (boot_id, self.epoch)
            self.newest, self.epoch = newest, said.clock_epoch
            if again and said.observed_ms <= self.now_ms:
                self.spans, self.begun, self.since = [], 0, dict.fromkeys(self.since, 0)
            if window_ms != self.window_ms:
                self.window_ms, self.begun = window_ms, len(self.spans)
            if said.observed_ms > self.now_ms:
                self._take(said, listed)
                return True
        self.late += said.boot_id == self.newest[0]
        return False

    def _take(self, said: NodeSample, listed: str) -> None:
        uses = {use.uid: use.cpu_milli for use in said.pod_use}
        begin_ms, now_ms = said.observed_ms - said.interval_ms, self.now_ms
        system = None if said.use.cpu_milli is None else max(0, said.use.cpu_milli - sum(v or 0 for v in uses.values()))
        system_before = self.before.get("system")
        if now_ms and begin_ms <= now_ms and None not in (system, system_before):
            left = sum(v or 0 for uid, v in self.before.items() if uid in "abc" and uid not in uses)
            unknown = any(v is None and uid not in self.before for uid, v in uses.items())
            system = min(system, max(system_before, 0 if unknown else system - left))
        figures = uses | {"node": said.use.cpu_milli, "system": system}
        self.before = figures
        self.changes += self.since.keys() != {*uses, *listed}
        self.since = {uid: self.since.get(uid, len(self.spans)) for uid in {*uses, *listed}}
        self.spans.append(Span(max(begin_ms, now_ms), said.observed_ms, said.interval_ms > 0, figures))

    @property
    def now_ms(self) -> int:
        return self.spans[-1].end_ms if self.spans else 0

    def weights(self) -> list[tuple[int, Span, int]]:
        """Each span's number, and for how long it is in the window, which ends with the slot that it ends in."""
        slot = slot_ms(self.window_ms)
        begin_ms = ((self.now_ms - 1) // slot + 1) * slot - -(-self.window_ms // slot) * slot
        weights = [span.end_ms - max(span.begin_ms, begin_ms, span.end_ms - self.window_ms) for span in self.spans]
        each = list(zip(range(len(weights)), self.spans, weights, strict=True))
        return [(number, span, weight) for number, span, weight in each[self.begun :] if weight > 0]

    def averages(self) -> dict[str, float | None]:
        def average(of: str) -> float | None:
            parts = [
                (value, weight)
                for number, span, weight in self.weights()
                if (value := span.figures.get(of)) is not None and number >= self.since.get(of, 0)
            ]
            return _average(parts) if parts else None

        return {of: average(of) for of in ("node", "system", *self.since)}

    def spread(self, of: str, length_s: int) -> tuple[int, list[float]]:
        """How much is covered, and percentiles of the seconds that are known."""
        first = (self.now_ms - 1) // 1_000 - length_s + 1
        parts: dict[int, list[tuple[int | None, int]]] = {}
        for span in self.spans:
            for second in range(max(first, span.begin_ms // 1_000), (span.end_ms - 1) // 1_000 + 1):
                weight = min(span.end_ms, (second + 1) * 1_000) - max(span.begin_ms, second * 1_000)
                if weight > 0:
                    parts.setdefault(second, []).append((span.figures[of], weight))
        known = [[(value, weight) for value, weight in some if value is not None] for some in parts.values()]
        seconds = sorted(_average(some) for some in known if some)
        ranks = [seconds[max(0, ceil(percent * len(seconds) / 100) - 1)] for percent in (50, 90, 95, 99) if seconds]
        return sum(weight for some in parts.values() for _, weight in some), ranks

    def expected(self, said: NodeSample, version: str) -> bool | None:
        """Whether figures are published with this sample; None: it is too close to tell."""
        now, since_ms = self.averages(), said.observed_ms - (self.told[0] if self.told else 0)
        if (self.told and 0 <= since_ms < 900) or now["node"] is None or now["system"] is None:
            return False
        if not self.told or not 0 <= since_ms < 4_900:
            return True
        _, revisions, before = self.told
        if revisions != (said.pods_revision, version, self.changes):
            return True
        moves = [abs((now[of] or 0) - (before[of] or 0)) for of in now]
        moved = max(moves[0], sum(moves[1:]))
        return None if abs(moved - BAND_MILLI) < UNSURE_MILLI else moved > BAND_MILLI


def _average(parts: list[tuple[int, int]]) -> float:
    return sum(value * weight for value, weight in parts) / sum(weight for _, weight in parts)


@dataclass
class Agent:
    """What a node says next."""

    node: str
    at_ms: int = START_MS
    boot: int = 1
    seq: int = 0
    epoch: int = 0
    last: tuple[NodeSample, str] | None = None

    def says(self, interval_ms: int, gap_ms: int, event: str, cpu: int | None, uses: dict, listed: str) -> NodeSample:
        self.at_ms += gap_ms + interval_ms
        self.seq += 1
        if event == "restart":
            self.boot, self.seq, interval_ms, cpu = self.boot + 1, 1, 0, None
        if event.startswith("clock"):
            self.epoch, self.at_ms = self.epoch + 1, self.at_ms + (200_000 if event == "clock on" else -200_000)
        pods = [Pod(uid=uid, namespace="n", name=uid) for uid in listed]
        return keyframe(
            self.seq,
            self.node,
            boot_id=f"{self.boot:012d}-0000000a",
            clock_epoch=self.epoch,
            observed_ms=self.at_ms,
            interval_ms=interval_ms,
            use=NodeUse(cpu_milli=cpu, mem_bytes=1_000),
            pod_use=[PodUse(uid=uid, cpu_milli=milli, mem_bytes=1) for uid, milli in uses.items()],
            pods=pods,
            pods_revision=revision_of(pods),
        )


@given(steps=st.lists(STEP, min_size=5, max_size=60))
def test_figures_are_those_of_a_plain_reference(steps: list[Any]) -> None:
    worker, policy = Worker("w"), POLICIES[0]
    worker.policy(policy_record(policy))
    agents = {node: Agent(node) for node in ("node-1", "node-2")}
    nodes = {node: Reference() for node in agents}
    for node, *step, listed in steps:
        agent, reference = agents[node], nodes[node]
        if step[2] == "other policy":
            policy = POLICIES[(POLICIES.index(policy) + 1) % len(POLICIES)]
            worker.policy(policy_record(policy))
        if step[2] != "again" or agent.last is None:
            agent.last = agent.says(*step, listed), listed
        said, named = agent.last
        outs = worker.samples([record_of(said)], START_MS)
        merged = reference.receive(said, named, policy.colocation.metric_aggregate_duration_s * 1_000)
        published = [decode(out.value, NodeMetric) for out in outs if out.topic == METRIC.name]

        assert [out.topic for out in outs if out.topic in {COMMAND.name, DEAD_LETTER.name}] == [COMMAND.name]
        assert merged or not published
        if merged and (wanted := reference.expected(said, policy.version)) is not None:
            assert bool(published) == wanted
        for metric in published:
            _same(metric, reference)
            revisions = said.pods_revision, policy.version, reference.changes
            reference.told = said.observed_ms, revisions, reference.averages()


def _same(metric: NodeMetric, reference: Reference) -> None:
    near: Callable[[float | None], Any] = lambda value: pytest.approx(value, rel=1e-4, abs=1)  # noqa: E731
    weights, averages = reference.weights(), reference.averages()
    covered_ms = min(reference.window_ms, sum(weight for *_, weight in weights))
    assert (metric.window_ms, metric.covered_ms, metric.late) == (reference.window_ms, covered_ms, reference.late)
    assert metric.samples == sum(span.measured for _, span, _ in weights)
    assert metric.node_use.cpu_milli == near(averages.pop("node"))
    assert metric.system_use.cpu_milli == near(averages.pop("system"))
    assert {pod.uid: pod.use.cpu_milli for pod in metric.pods} == {
        uid: near(milli) for uid, milli in averages.items() if milli is not None
    }
    for one in metric.aggregates:
        for of, found in (("node", one.node_cpu_milli), ("system", one.system_cpu_milli)):
            covered_ms, ranks = reference.spread(of, one.window_ms // 1_000)
            assert one.covered_ms == covered_ms
            assert [found.p50, found.p90, found.p95, found.p99] == [near(rank) for rank in ranks]
