"""What a worker has published of each node: its last figures, marked as stale if it is silent, and the nodes covered.

Pods must not be scheduled on a silent node. Batch, mid and free allocatable drop to what running pods have requested
(``published_floor``). The reference removes them if a node's report is older than degradeTimeMinutes, 15 min by
default. That rule also holds here, later: it marks the record as ``degraded`` and changes no figure.

The terms that load-aware scheduling needs of a node, for any pod, are in every report. Reading: koordinator a7a1b76b,
pkg/scheduler/plugins/loadaware/pod_assign_cache.go. There, each scheduler computes them from NodeMetric, a minute old.
"""

from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from slacktide.schemas.allocatable import OFFERED, NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import ENDED_PHASES, NodeFacts, Pod, Resources
from slacktide.schemas.metric import NodeMetric, PodMetric, Use
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, resource_threshold_on
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.score import NOTHING, NodeScore, Statistic, use_of
from slacktide.streams.columns.publish import Figures, Packed
from slacktide.streams.decisions.evict.node_evict import mem_below_line
from slacktide.streams.decisions.known_pods import KnownPods, PodName, known
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod, estimate
from slacktide.streams.decisions.load.load_aware_existing import is_prod
from slacktide.streams.decisions.resources.node_load import degraded
from slacktide.streams.decisions.resources.publishing import published_floor
from slacktide.streams.decisions.suppress.cpu_suppress import allowed_milli
from slacktide.streams.records import FIGURES, Record, text_of

SILENT = "the node is silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """The last figures of a node."""

    metric: NodeMetric
    allocatable: NodeAllocatable
    score: NodeScore
    facts: NodeFacts | None = None
    """None: unknown, and the cluster's strategy holds."""
    names: Sequence[PodName] = ()
    """Of the metric's pods, if they are kept anyway."""


class _Packed(NamedTuple):
    """The same in a third of the memory, because most nodes never fall silent."""

    records: bytes
    """Without the metric's pods, if ``names`` has them."""
    facts: NodeFacts | None
    names: Sequence[PodName] = ()
    uses: Sequence[int] = ()


class _Written(NamedTuple):
    written: Packed
    facts: NodeFacts


_Records = tuple[NodeMetric, NodeAllocatable, NodeScore]
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Records)


class LastFigures:
    """Keeps the last figures of each node of the partitions held."""

    def __init__(self) -> None:
        self._last: dict[int, dict[str, _Packed | _Written]] = {}

    def put(self, partition: int, last: NodeFigures) -> None:
        """Keep figures that are being published."""
        self._last.setdefault(partition, {})[last.metric.node] = _packed(last)

    def put_written(self, partition: int, node: str, figures: Figures, facts: NodeFacts) -> None:
        """Keep encoded figures that are being published."""
        self._last.setdefault(partition, {})[node] = _Written(figures.packed, facts)

    def recall(self, partition: int, last: NodeFigures) -> None:
        """Keep figures that another worker published, unless newer ones are known."""
        self._last.setdefault(partition, {}).setdefault(last.metric.node, _packed(last))

    def drop(self, partition: int, node: str) -> None:
        """Forget a removed node."""
        self._last.get(partition, {}).pop(node, None)

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self._last.pop(partition, None)

    def known(self, nodes: Iterable[str]) -> list[tuple[int, str]]:
        """Return those of the nodes with figures, each with its partition."""
        return [(partition, node) for partition, last in self._last.items() for node in nodes if node in last]

    def stale(self, partition: int, node: str, silent_ms: int, policy: Policy) -> NodeFigures:
        """Return the figures of a silent node."""
        return stale(_unpacked(self._last[partition][node]), silent_ms, policy)


def _packed(last: NodeFigures) -> _Packed:
    metric = last.metric
    if [pod.uid for pod in metric.pods] != [name.uid for name in last.names]:
        return _Packed(_encoder.encode((metric, last.allocatable, last.score)), last.facts)
    uses = array("q", [amount for pod in metric.pods for amount in (pod.use.cpu_milli, pod.use.mem_bytes)])
    bare = msgspec.structs.replace(metric, pods=[])
    return _Packed(_encoder.encode((bare, last.allocatable, last.score)), last.facts, last.names, uses)


def _unpacked(packed: _Packed | _Written) -> NodeFigures:
    if isinstance(packed, _Written):
        of = packed.written.figures()
        return NodeFigures(
            metric=decode(of.metric, NodeMetric),
            allocatable=decode(of.allocatable, NodeAllocatable),
            score=decode(of.score, NodeScore),
            facts=packed.facts,
        )
    metric, allocatable, score = _decoder.decode(packed.records)
    if packed.names:
        uses = zip(packed.uses[::2], packed.uses[1::2], strict=True)
        pods = [
            PodMetric(**name._asdict(), use=Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes))
            for name, (cpu_milli, mem_bytes) in zip(packed.names, uses, strict=False)
        ]
        metric = msgspec.structs.replace(metric, pods=pods)
    return NodeFigures(metric=metric, allocatable=allocatable, score=score, facts=packed.facts, names=packed.names)


def recalled(records: Iterable[Record], nodes: Iterable[str]) -> list[NodeFigures]:
    """Return the last published figures of nodes; omit nodes that were removed or lack one of the three records."""
    newest = {(record.topic, text_of(record.key)): record.value for record in records if record.key is not None}
    found: list[NodeFigures] = []
    for node in nodes:
        metric, allocatable, score = (newest.get((topic, node)) for topic in FIGURES)
        with suppress(BadMessageError):  # one was removed, or is of another writer
            found.append(
                NodeFigures(
                    metric=decode(metric, NodeMetric),
                    allocatable=decode(allocatable, NodeAllocatable),
                    score=decode(score, NodeScore),
                )
            )
    return found


def stale(last: NodeFigures, silent_ms: int, policy: Policy) -> NodeFigures:
    """Mark figures as stale, also stale ones; ``silent_ms`` is above 0. The policy's degrade time sets ``degraded``."""
    return replace(
        last,
        metric=msgspec.structs.replace(last.metric, stale_ms=silent_ms),
        allocatable=_allocatable(last, silent_ms, policy),
        score=msgspec.structs.replace(
            last.score, batch_left=NOTHING, mid_left=NOTHING, free_left=NOTHING, stale_ms=silent_ms
        ),
    )


def _allocatable(last: NodeFigures, silent_ms: int, policy: Policy) -> NodeAllocatable:
    batch, mid, free = last.score.batch_asked, last.score.mid_asked, last.score.free_asked
    # A pod with the requests of all of them.
    pod = Pod(
        uid="",
        namespace="",
        name="",
        requests=Resources(
            batch_cpu_milli=batch.cpu_milli,
            batch_mem_bytes=batch.mem_bytes,
            mid_cpu_milli=mid.cpu_milli,
            mid_mem_bytes=mid.mem_bytes,
            free_cpu_milli=free.cpu_milli,
            free_mem_bytes=free.mem_bytes,
        ),
    )
    floored = published_floor(dict.fromkeys(OFFERED), [pod], None if last.facts is None else last.facts.capacity)
    terms = {because.of: because.terms for because in floored.because}
    colocation = policy.colocation if last.facts is None else colocation_on(policy, last.facts)
    too_old = degraded(now_s=silent_ms // 1_000, updated_s=0, degrade_time_min=colocation.degrade_time_min)
    return msgspec.structs.replace(
        last.allocatable,
        **floored.figures,
        degraded=too_old is not None,
        reason=SILENT,
        cpu_terms=terms["batch_cpu_milli"],
        mem_terms=terms["batch_mem_bytes"],
        mid_cpu_terms=terms["mid_cpu_milli"],
        mid_mem_terms=terms["mid_mem_bytes"],
        free_cpu_terms=terms["free_cpu_milli"] if last.allocatable.free_cpu_terms or free.cpu_milli else {},
        free_mem_terms=terms["free_mem_bytes"] if last.allocatable.free_mem_terms or free.mem_bytes else {},
        floored=[because.of for because in floored.because if because.bound == "floored"],
        stale_ms=silent_ms,
    )


COVERED_MS = 4_000
"""Allows for one lost sample. Readers freeze a node that is not covered after 15 s more."""


class Covering:
    """Tracks which nodes a worker's heartbeats cover. Time is the worker's ticks, pauses included.

    A node is covered if this worker has published it since the takeover, and its figures are valid. Either a sample
    arrived within seconds, or the worker has marked the node stale.
    """

    def __init__(self) -> None:
        self.at_ms = 0
        self._sampled_ms: dict[int, dict[str, int]] = {}
        """By partition: published nodes, and when the last sample of each arrived."""

    def tick(self, passed_ms: int) -> None:
        """Advance the time."""
        self.at_ms += passed_ms

    def published(self, partition: int, node: str) -> None:
        """Note that the node's figures are being published."""
        self._sampled_ms.setdefault(partition, {})[node] = self.at_ms

    def sampled(self, nodes: Iterable[tuple[int, str]]) -> None:
        """Note samples of nodes, by partition and name, with which the published figures are still valid."""
        at_ms, of, nothing = self.at_ms, self._sampled_ms.get, dict[str, int]()
        for partition, node in nodes:
            published = of(partition, nothing)
            if node in published:
                published[node] = at_ms

    def drop(self, partition: int, node: str) -> None:
        """Remove a node that was removed, or whose figures could not be published."""
        self._sampled_ms.get(partition, {}).pop(node, None)

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self._sampled_ms.pop(partition, None)

    def covered(self, partition: int, stale: Container[str]) -> list[str]:
        """Return the covered nodes of a partition, sorted; ``stale`` nodes were published as stale."""
        since_ms = self.at_ms - COVERED_MS
        nodes = self._sampled_ms.get(partition, {})
        return sorted(node for node, sampled_ms in nodes.items() if sampled_ms > since_ms or node in stale)


CPU_SUPPRESSED = "cpu_suppressed"
MEM_OVER_LINE = "mem_over_line"
EVICTING = "evicting"


def node_score(
    metric: NodeMetric,
    allocatable: NodeAllocatable,
    sample: NodeSample,
    facts: NodeFacts,
    pods: Sequence[Pod],
    policy: Policy,
    *,
    own_facts: NodeFacts | None = None,
) -> NodeScore:
    """Compute a node's load, in millicores and bytes; terminated pods do not count.

    ``sample``: the newest, with the limits in force. Suppression and eviction use ``own_facts``, the sample's; None:
    ``facts``.
    """
    listed = known(pods)
    expected_more, prod_expected_more = _expected_more(metric, listed, facts, policy)
    there = listed.there
    prod_uses = [one.use for one in metric.pods if one.priority_class == "koord-prod" and one.uid in there]
    return NodeScore(
        node=metric.node,
        boot_id=metric.boot_id,
        seq=metric.seq,
        observed_ms=metric.observed_ms,
        policy_version=metric.policy_version,
        facts_revision=metric.facts_revision,
        pods_revision=metric.pods_revision,
        allocatable=Use(cpu_milli=facts.allocatable.cpu_milli or 0, mem_bytes=facts.allocatable.mem_bytes or 0),
        use=metric.node_use,
        system_use=metric.system_use,
        prod_use=Use(
            cpu_milli=sum([use.cpu_milli for use in prod_uses]), mem_bytes=sum([use.mem_bytes for use in prod_uses])
        ),
        expected_more=expected_more,
        prod_expected_more=prod_expected_more,
        statistics=[
            Statistic(
                window_ms=one.window_ms,
                covered_ms=one.covered_ms,
                cpu_milli=one.node_cpu_milli,
                mem_bytes=one.node_mem_bytes,
            )
            for one in metric.aggregates
        ],
        batch_asked=listed.batch_asked,
        batch_left=_left(allocatable.batch_cpu_milli, allocatable.batch_mem_bytes, listed.batch_asked),
        mid_asked=listed.mid_asked,
        mid_left=_left(allocatable.mid_cpu_milli, allocatable.mid_mem_bytes, listed.mid_asked),
        free_asked=listed.free_asked,
        free_left=_left(allocatable.free_cpu_milli, allocatable.free_mem_bytes, listed.free_asked),
        pressure=list(_pressure(sample, own_facts or facts, policy, listed.batch_asked.cpu_milli)),
        inventory_revision=allocatable.inventory_revision,
    )


def _left(milli: int | None, mem_bytes: int | None, asked: Use) -> Use:
    """Return what is published minus what is requested; 0 where nothing is published."""
    return use_of(max(0, (milli or 0) - asked.cpu_milli), max(0, (mem_bytes or 0) - asked.mem_bytes))


def _expected_more(metric: NodeMetric, pods: KnownPods, facts: NodeFacts, policy: Policy) -> tuple[Use, Use]:
    """Return the expected use of pods without an average, of all pods and of production pods."""
    unmeasured = pods.there - {one.uid for one in metric.pods}
    if not unmeasured:  # usual
        return NOTHING, NOTHING
    new = [LoadAwarePod(pod=pod) for pod in pods if pod.uid in unmeasured and pod.phase not in ENDED_PHASES]
    args = LoadAwareArgs(free_class_enable=colocation_on(policy, facts).free_class_enable)
    return _estimated(new, args), _estimated([one for one in new if is_prod(one)], args)


def _estimated(new: Sequence[LoadAwarePod], args: LoadAwareArgs) -> Use:
    amounts = [estimate(one, args).amounts for one in new]
    return Use(cpu_milli=sum(one.cpu_milli for one in amounts), mem_bytes=sum(one.mem_bytes for one in amounts))


def _pressure(sample: NodeSample, facts: NodeFacts, policy: Policy, batch_asked_milli: int) -> Iterator[str]:
    allowed = None if sample.limits is None else allowed_milli(sample.limits, facts.capacity.cpu_milli)
    if allowed is not None and allowed < batch_asked_milli:
        yield CPU_SUPPRESSED
    threshold = resource_threshold_on(policy, facts)
    if threshold.enable and not mem_below_line(sample, facts, threshold):
        yield MEM_OVER_LINE
    if sample.evict.dying:
        yield EVICTING
