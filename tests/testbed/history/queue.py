"""What the queue's topics show afterwards: was anything admitted twice, or on quota that was not there?"""

from collections.abc import Iterator

from slacktide.schemas.codec import decode
from slacktide.schemas.queue import QueueDecision, QueueOutcome, QueueState
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, QuotaUsage, potential_available
from slacktide.streams.queue.cluster import Specs
from slacktide.streams.queue.ledger import Fence
from slacktide.streams.records import Record

FREES = {"stopped", "finished", "conflict", "refused"}


def complaints(topics: dict[str, list[Record]], decisions: list[QueueDecision]) -> Iterator[str]:
    """All that the decisions which count do against the law."""
    fence, states = Fence(), dict[str, QueueState]()
    for one in decisions:
        if not fence.passed(one):
            continue
        for state in one.changes:
            before = states.get(state.uid)
            if before is not None and before.booking is not None and state.booking != before.booking:
                yield from _given_back(topics, one, before, state)
            if state.phase == "gone":
                states.pop(state.uid, None)
            else:
                states[state.uid] = state
        yield from _over(topics, one, states)


def _given_back(
    topics: dict[str, list[Record]], one: QueueDecision, before: QueueState, state: QueueState
) -> Iterator[str]:
    """Quota that went needs an outcome which names it, or a workload that is gone or done, by what was read."""
    booking = before.booking
    assert booking is not None, "the caller has looked"
    outcomes = [
        decode(record.value, QueueOutcome)
        for record in topics[QUEUE_OUTCOME.name][: one.read.outcome]
        if record.key == state.uid.encode()
    ]
    named = (booking.epoch, booking.turn)
    answered = any((each.epoch, each.turn) == named and each.result in FREES for each in outcomes)
    records = [each for each in topics[QUEUE_WORKLOAD.name][: one.read.workload] if each.key == state.uid.encode()]
    deleted = any(each.value is None or b'"Finished"' in each.value for each in records)
    if not answered and not deleted:
        yield f"turn {one.epoch}/{one.turn}: {state.uid} gives quota back that nobody answered: {state.phase}"


def _over(topics: dict[str, list[Record]], one: QueueDecision, states: dict[str, QueueState]) -> Iterator[str]:
    """A turn that admits leaves no ClusterQueue it admits to with more used than it then had."""
    new = {
        state.booking.cluster_queue
        for state in states.values()
        if state.booking is not None and (state.booking.epoch, state.booking.turn) == (one.epoch, one.turn)
    }
    if not new:
        return
    specs = Specs()
    specs.take(topics[QUEUE_SPEC.name][: one.read.spec])
    nodes = {queue.node.name: queue.node for queue in specs.built.queues}
    usage = QuotaUsage()
    for state in states.values():
        for each in state.booking.pod_sets if state.booking is not None else ():
            for resource, amount in each.usage.items():
                usage.book(nodes[state.booking.cluster_queue], FlavorResource(each.flavors[resource], resource), amount)
    for name in sorted(new):
        for of, amount in usage.used(nodes[name]).items():
            if usage.available(nodes[name], of) < 0 or amount > potential_available(nodes[name], of):
                yield f"turn {one.epoch}/{one.turn}: {name} uses {amount} of {of}, more than there was"
