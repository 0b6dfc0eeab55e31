"""What was published beside answers and outcomes: figures, marks, dead letters, and numbers that only rise.

Each dead letter comes at least once: who restarts or governs anew may read a bad record again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from slacktide.schemas.allocatable import OFFERED, NodeAllocatable
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import LIVE_PHASES, Pod, Resources
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import ALLOCATABLE, BACKFILL, BY_NAME, CREDIT, DEAD_LETTER, METRIC, POLICY, SAMPLE
from slacktide.streams.samples import SampleReader
from testbed.history.evictions import spending
from testbed.history.records import History, Kept
from testbed.history.verdict import Verdict, verdict
from testbed.sampled import decoded


def below_floor(published: NodeAllocatable, pods: Sequence[Pod], capacity: Resources | None = None) -> list[str]:
    """Figures that are lower than the live pods' requests, summed here anew, as far as the node has so much."""
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    asked = {name: sum(getattr(pod.requests, name) or 0 for pod in live) for name in OFFERED}
    if capacity is not None:
        most = {True: capacity.cpu_milli or 0, False: capacity.mem_bytes or 0}
        asked = {name: min(floor, most[name.endswith("milli")]) for name, floor in asked.items()}
    return [f"{name} {getattr(published, name)} < {asked[name]}" for name in OFFERED if _short(published, name, asked)]


def _short(published: NodeAllocatable, name: str, asked: dict[str, int]) -> bool:
    return (getattr(published, name) or 0) < asked[name]


def figures_floored(history: History) -> Verdict:
    """Stale and degraded ones, too."""
    checked, broken = 0, list[str]()
    for entry in history.of(ALLOCATABLE, NodeAllocatable):
        pods = history.pods.get(entry.body.pods_revision)
        checked += pods is not None
        broken += [f"{entry.body.node}/{entry.body.seq}: {why}" for why in below_floor(entry.body, pods or ())]
    return verdict("figures not below requests", checked, broken)


UNDER_WAY_MS = 2_500
"""A mark is judged by the tick before last, and then written."""


def only_silent_are_stale(history: History) -> Verdict:
    """In the time that a mark speaks of, no sample of the node was appended."""
    appended: dict[str, list[int]] = {}
    for entry in history.samples:
        appended.setdefault(entry.body.node, []).append(entry.at_ms)
    for times in appended.values():
        times.sort()
    marks = [entry for entry in history.of(METRIC, NodeMetric) if entry.body.stale_ms]
    broken = []
    for mark in marks:
        times = appended.get(mark.body.node, [])
        since_ms = mark.at_ms - mark.body.stale_ms + UNDER_WAY_MS
        index = bisect_left(times, since_ms)
        if index < len(times) and times[index] < mark.at_ms - UNDER_WAY_MS:
            broken.append(f"{mark.body.node}: silent {mark.body.stale_ms} ms at {mark.at_ms}, sample at {times[index]}")
    return verdict("only silent nodes stale", len(marks), broken)


Place = tuple[str, int, int]


def place_of(record: Kept | DeadLetter) -> Place:
    return record.topic, record.partition, record.offset


def only_bad_records_buried(history: History) -> Verdict:
    """Of honest nodes' samples: what decodes under its own key is no dead letter."""
    by_place: Mapping[Place, Kept] = {place_of(record): record for record in history.records}
    letters = [entry.body for entry in history.of(DEAD_LETTER, DeadLetter)]
    broken = [
        f"{place_of(letter)} is good, and was refused: {letter.reason}"
        for letter in letters
        if (record := by_place.get(place_of(letter))) is not None and _is_good(record, history)
    ]
    return verdict("only bad records are dead letters", len(letters), broken)


def _is_good(record: Kept, history: History) -> bool:
    try:
        columns = record.topic in {SAMPLE.name, BACKFILL.name}
        kind = NodeSample if columns else BY_NAME[record.topic].message
        body = decoded(record, kind, SampleReader())
    except BadMessageError:
        return False
    node = getattr(body, "node", "")
    return record.key == node.encode() and (not history.nodes or node in history.nodes)


def epochs_monotone(history: History) -> Verdict:
    """In the order of the records, each kind by its own key."""
    leases = [entry.body for entry in history.of(CREDIT, EvictionCredit)]
    series: list[tuple[str, list[tuple[int, ...]], bool]] = [
        ("lease (epoch, number)", [(one.epoch, one.number) for one in leases], True),
        ("policy writer epoch", [(entry.body.writer_epoch,) for entry in history.of(POLICY, Policy)], False),
    ]
    for node, outcomes in spending(history).items():
        spent = [(int(each.boot_id[:12]), each.spent.epoch) for each in outcomes if each.spent is not None]
        series.append((f"{node}: boot and epoch that granted evictions", spent, False))
    by_node: dict[str, list[tuple[int, ...]]] = {}
    for entry in history.samples:
        order = (int(entry.body.boot_id[:12]), entry.body.seq, entry.body.clock_epoch)
        by_node.setdefault(entry.body.node, []).append(order)
    for node, orders in by_node.items():
        series.append((f"{node}: boot", [order[:1] for order in orders], False))
        series.append((f"{node}: boot and clock epoch", [(boot, clock) for boot, _, clock in sorted(orders)], False))
    broken = [f"{what}: {fall}" for what, values, strict in series for fall in falls(values, strict=strict)]
    return verdict("epochs monotone", sum(len(values) for _, values, _ in series), broken)


def falls(values: Iterable[tuple[int, ...]], *, strict: bool) -> list[str]:
    """Where a series goes down, or stands still though it must not."""
    return [f"{one} then {other}" for one, other in pairwise(values) if other < one or (strict and other == one)]
