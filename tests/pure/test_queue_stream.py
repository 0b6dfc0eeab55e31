"""The queue's decider over a log: killed at each write, doubled, answered late, and decided again."""

import asyncio
import contextlib
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.deploy.cli.queue.topics import standing as status_of
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import LogError
from slacktide.schemas.queue import QueueDecision, QueueWorkload, spec_key
from slacktide.schemas.queue_objects import (
    AdmissionCheckRule,
    AdmissionChecksStrategy,
    ClusterQueueObject,
    CohortObject,
    CohortSpec,
    Expression,
    FlavorFungibility,
    LabelSelector,
    LocalQueueObject,
    Metadata,
    ResourceFlavorObject,
    WorkloadObject,
)
from slacktide.schemas.topics import DEAD_LETTER, QUEUE_DECISION, QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.engine.queueing import Term
from slacktide.streams.queue.decider import Decider
from slacktide.streams.queue.ledger import Ledger, inputs_of, ledger_of
from slacktide.streams.queue.projection import objects_of
from testbed.messages import any_message
from testbed.queue_log import (
    BEGUN_MS,
    FLAVOR,
    STEP_MS,
    Cluster,
    KilledError,
    Log,
    lawful,
    local,
    queue,
    standing,
    term,
    turns,
    workload,
)

COUNT = 25


async def decided(log: Log, name: str = "first", done: int | None = None) -> Term:
    """A decider that has begun and decided once."""
    one = term(log, name)
    await one.begin(done)
    await one.act()
    return one


def begun(cpu: str = "4") -> Log:
    log = Log()
    queues = {"a": cpu, "b": cpu, "c": "0"}
    log.put(FLAVOR, *(queue(name, quota) for name, quota in queues.items()), *map(local, queues))
    return log


STORY = (
    lambda log, _: log.put(*(workload(number, "a") for number in range(6))),
    lambda log, _: log.put(workload(10, "b", "2"), workload(11, "b"), workload(12, "b", priority=5)),
    lambda _, cluster: cluster.finish(min(cluster.running)),
    lambda log, _: log.say(QUEUE_WORKLOAD.name, "uid-00003", None),
    lambda log, _: log.put(queue("a", "2")),
    lambda log, _: log.put(workload(13, "b", active=False), workload(14, "a", "1", priority=1)),
)
"""What comes from outside, in order."""


async def told(kill_at: int | None) -> tuple[Log, int]:
    """The story, with a decider that is killed once it has written so many records, and then another one."""
    log = begun()
    cluster = Cluster(log)
    writers, done = [term(log, "first", records_left=kill_at)], None
    chapters = list(STORY)
    steps = 0
    while chapters or steps < 10:
        steps = steps + 1 if not chapters else 0
        one = writers[-1]
        try:
            if one.done == 0 and not hasattr(one, "_decider"):
                await one.begin(done)
            await turns(one, cluster, 3)
            if chapters:
                chapters.pop(0)(log, cluster)
        except KilledError:
            done = one.done
            log.now_ms += STEP_MS
            writers.append(term(log, "next"))
            cluster.step()
    return log, writers[0]._writing.written  # type: ignore[attr-defined]


UNDISTURBED, WRITES = asyncio.run(told(None))


def test_the_story_has_all_that_can_happen() -> None:
    lawful(UNDISTURBED)
    phases = {change.phase for one in UNDISTURBED.decisions() for change in one.changes}
    assert phases == {"pending", "reserved", "evicting", "finished", "gone"}
    assert WRITES > 30


@pytest.mark.parametrize("kill_at", range(WRITES))
def test_killed_after_any_write_it_ends_as_if_it_had_not_been(kill_at: int) -> None:
    log, _ = asyncio.run(told(kill_at))

    lawful(log)
    assert standing(log) == standing(UNDISTURBED)


@given(seed=st.integers(0, 2**32), faults=st.sampled_from([0.0, 0.2, 0.5]))
def test_with_kills_doubles_and_lost_answers_nothing_is_admitted_twice_or_lost(seed: int, faults: float) -> None:
    log = asyncio.run(_troubled(random.Random(seed), faults))

    lawful(log)
    for uid, (phase, _, _) in standing(log).items():
        assert phase == "finished", uid


async def _troubled(chance: random.Random, faults: float) -> Log:
    """Workloads of any kind, deciders that come, are killed or do not know that their term is over."""
    log = begun()
    cluster = Cluster(log, chance, faults)
    deciders: list[Term] = []
    for number in range(COUNT):
        log.now_ms += STEP_MS
        log.put(workload(number, chance.choice("abc"), chance.choice("1234"), priority=chance.randrange(3)))
        if not deciders or chance.random() < 0.15:
            left = chance.randrange(25) if chance.random() < 0.7 else None
            deciders.append(term(log, f"decider-{number}", records_left=left))
            await _alive(deciders, deciders[-1].begin(deciders[-2].done if len(deciders) > 1 else None))
        for one in [*deciders]:
            await _alive(deciders, one.listen(), one)
            await _alive(deciders, one.act(), one)
        cluster.step()
        if chance.random() < faults:
            cluster.repeat()
        if cluster.running and chance.random() < 0.5:
            cluster.finish(chance.choice(sorted(cluster.running)))
    await _ends(log, cluster)
    return log


async def _ends(log: Log, cluster: Cluster) -> None:
    """One more decider, and a cluster without faults, until all is done."""
    last = term(log, "last")
    await last.begin(None)
    for _ in range(4 * COUNT):
        cluster.settle()
        await turns(last, cluster, 1)
        if cluster.running:
            cluster.finish(min(cluster.running))
        if len(standing(log)) == COUNT and {one[0] for one in standing(log).values()} == {"finished"}:
            break


async def _alive(deciders: list[Term], work, one: Term | None = None) -> None:
    """Run it as long as its process lives; one that learns that its term is over ends."""
    one = one or deciders[-1]
    if one not in deciders:
        work.close()
        return
    with contextlib.suppress(KilledError, LogError):
        await work
        return
    deciders.remove(one)


async def test_nothing_is_admitted_on_what_a_victim_still_holds() -> None:
    """Of 10 CPUs a victim holds 8 until it has stopped: of two workloads that ask for 2 one has to wait."""
    log = Log()
    log.put(FLAVOR, queue("a", "10"), queue("d", "0"), queue("e", "0"), *map(local, "ade"))
    log.put(workload(0, "a", "8"))
    one = await decided(log)
    log.put(workload(1, "a", "3", priority=1), workload(2, "d", "2"), workload(3, "e", "2"))
    await one.listen()
    await one.act()
    assert standing(log)["uid-00000"][0] == "evicting"
    assert sorted(standing(log)[uid][0] for uid in ("uid-00002", "uid-00003")) == ["pending", "reserved"]
    lawful(log)


@pytest.mark.parametrize("of", [queue("a", "4"), local("a")], ids=["ClusterQueue", "LocalQueue"])
@pytest.mark.parametrize(("policy", "phase"), [("Hold", "reserved"), ("HoldAndDrain", "pending")])
async def test_a_stopped_queue_admits_nothing_and_stops_what_runs_only_if_it_drains(of, policy, phase) -> None:
    log = begun()
    one, cluster = term(log, "first"), Cluster(log)
    log.put(workload(1, "a"), workload(2, "b"))
    await one.begin(None)
    await turns(one, cluster, 2)
    log.put(msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, stop_policy=policy)), workload(3, "a"))
    await turns(one, cluster, 3)
    assert [each[0] for _, each in sorted(standing(log).items())] == [phase, "reserved", "pending"]
    assert one._decider.ledger.states["uid-00003"].reason == f"{spec_key(of).split('/')[0]}Stopped"
    log.put(of)
    await turns(one, cluster, 2)
    assert {each[0] for each in standing(log).values()} == {"reserved"}
    lawful(log)


async def test_an_admission_check_holds_what_waits_by_its_name_until_the_queue_no_longer_needs_it() -> None:
    log, of = begun(), queue("a", "4")
    checks = AdmissionChecksStrategy(admission_checks=[AdmissionCheckRule(name="provision")])
    log.put(msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, admission_checks_strategy=checks)))
    one, cluster = term(log, "first"), Cluster(log)
    log.put(workload(1, "a"), workload(2, "b"))
    await one.begin(None)
    await turns(one, cluster, 2)
    assert [each[0] for _, each in sorted(standing(log).items())] == ["pending", "reserved"]
    assert one._decider.ledger.states["uid-00001"].reason == "AdmissionCheck:provision"
    assert not one.goes_on
    log.put(of)
    await turns(one, cluster, 2)
    assert {each[0] for each in standing(log).values()} == {"reserved"}
    lawful(log)


async def test_a_preemption_on_the_first_of_two_flavors_is_decided_once() -> None:
    log, other = Log(), ResourceFlavorObject(metadata=Metadata(name="other"))
    made = queue("a", "4")
    [group] = made.spec.resource_groups
    flavors = [*group.flavors, msgspec.structs.replace(group.flavors[0], name="other")]
    spec = msgspec.structs.replace(
        made.spec,
        resource_groups=[msgspec.structs.replace(group, flavors=flavors)],
        flavor_fungibility=FlavorFungibility(when_can_preempt="MayStopSearch"),
    )
    log.put(FLAVOR, other, msgspec.structs.replace(made, spec=spec), local("a"), workload(1, "a", "4"))
    one = await decided(log)
    log.put(workload(2, "a", "4", priority=1))
    await one.listen()
    await one.act()
    assert standing(log)["uid-00001"][0] == "evicting"
    assert not one.goes_on, "nothing is due until the victim has stopped"
    assert log.decisions()[-1].tried <= 3
    lawful(log)


async def test_of_workloads_that_preempt_each_other_one_waits_and_the_log_names_both(caplog) -> None:
    log, jobs = Log(), [("x", "3", 0), ("y", "1", 10), ("x", "1", 0), ("y", "4", 0)]
    log.put(FLAVOR, queue("x", "1"), queue("y", "4"), local("x"), local("y"))
    one, cluster = term(log, "first", fair_sharing=True), Cluster(log)
    await one.begin(None)
    for number, (of, cpu, priority) in enumerate(jobs):
        log.put(workload(number, of, cpu, priority=priority))
        await turns(one, cluster, 1)
    for name in "abcd":  # each event tries all workloads anew
        log.put(local(name))
        await turns(one, cluster, 4)
    preemptors = [each.preemptor.uid for turn in log.decisions() for each in turn.evictions]
    assert preemptors == ["uid-00003", "uid-00003", "uid-00002"]
    assert one._decider.ledger.states["uid-00003"].reason == "PreemptionRepeats"
    assert {(each.preemptor, each.victim) for each in caplog.records if hasattr(each, "victim")} == {
        ("uid-00003", "uid-00000"), ("uid-00003", "uid-00002")
    }  # fmt: skip
    lawful(log)


async def test_of_two_deciders_only_the_later_one_counts() -> None:
    log = begun()
    log.put(workload(1, "a"))
    first, second = term(log, "first"), term(log, "second")
    await first.begin(None)
    await second.begin(None)
    with pytest.raises(LogError, match="another process decides: second"):
        await first.act()
    assert not standing(log), "what the first decided is in the log, and counts for nobody"
    await second.act()
    assert standing(log)["uid-00001"][0] == "reserved"
    lawful(log)


async def test_a_late_writer_of_states_is_put_right() -> None:
    """It had the right to write, and was away between its decision and its states."""
    log = begun()
    log.put(workload(1, "a"))
    first = await decided(log)
    [late] = log.topics[QUEUE_STATE.name]
    second, cluster = term(log, "second"), Cluster(log)
    await second.begin(first.done)
    cluster.step()
    await turns(second, cluster, 2)
    log.append(late.topic, "uid-00001", late.value)
    assert not standing(log)["uid-00001"][2]
    await turns(second, cluster, 1)
    assert standing(log)["uid-00001"][2], "it has started"


async def test_bad_records_are_laid_aside_and_stop_nothing() -> None:
    log = begun()
    log.append(QUEUE_SPEC.name, "ClusterQueue/c", b'{"cluster_queue": 3}')
    log.put(queue("d", "many"))
    log.append(QUEUE_WORKLOAD.name, "uid-1", b"[")
    log.say(QUEUE_WORKLOAD.name, "other", QueueWorkload(uid="uid-00002", workload=workload(2, "a")))
    log.append(QUEUE_OUTCOME.name, "uid-1", b"{}")
    log.append(QUEUE_DECISION.name, "x", b"{}")
    log.put(workload(1, "a"))
    await decided(log)
    assert standing(log)["uid-00001"][0] == "reserved"
    dead_letters = [msgspec.json.decode(each.value or b"") for each in log.topics[DEAD_LETTER.name]]
    assert [each["topic"].split(".")[2] for each in dead_letters] == ["spec", "spec", "workload", "workload", "outcome"]
    assert all(each["reason"] for each in dead_letters)


def choosy(name: str, *expressions: Expression) -> ClusterQueueObject:
    made = queue(name, "2")
    selector = LabelSelector(match_expressions=list(expressions))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, namespace_selector=selector))


@pytest.mark.parametrize("expression", [Expression(key="a", operator="Like"), Expression(key="a", operator="In")])
@pytest.mark.parametrize("at_once", [False, True], ids=["while it decides", "before it begins"])
async def test_a_queue_with_an_invalid_selector_stops_no_other(expression: Expression, *, at_once: bool) -> None:
    log, invalid = begun(), choosy("c", expression)
    if at_once:
        log.put(invalid)
    one = await decided(log)
    log.put(invalid, workload(1, "c"), workload(2, "a"))
    await one.listen()
    await one.act()
    assert standing(log)["uid-00002"][0] == "reserved"
    assert [msgspec.json.decode(each.value or b"")["key"] for each in log.topics[DEAD_LETTER.name]] == [
        "ClusterQueue/c"
    ] * (1 + at_once)
    lawful(log)


def test_what_a_user_writes_into_a_workload_hides_no_queue() -> None:
    log = begun()
    strange = workload(1, "a")
    metadata = msgspec.structs.replace(
        strange.metadata, annotations={"slacktide.io/run-seconds": "soon"}, labels={"koordinator.sh/priority": "high"}
    )
    log.put(msgspec.structs.replace(strange, metadata=metadata), workload(2, "b"))
    found = status_of(objects_of(log.records))
    assert {one.cluster_queue: one.pending_count for one in found.queues} == {"a": 1, "b": 1, "c": 0}
    assert [note.partition(";")[0] for note in found.notes] == [
        "Workload jobs/w1: metadata.labels[koordinator.sh/priority]: 'high': ignored",
        "Workload jobs/w1: metadata.annotations[slacktide.io/run-seconds]: 'soon': ignored",
    ]


def test_objects_that_the_decider_refuses_are_in_no_view() -> None:
    log = begun()
    parents = {"x": "y", "y": "x"}
    cohorts = [
        CohortObject(metadata=Metadata(name=name), spec=CohortSpec(parent_name=of)) for name, of in parents.items()
    ]
    log.put(*cohorts, choosy("d", Expression(key="a", operator="In")))
    found = objects_of(log.records)
    assert [one.metadata.name for one in found if isinstance(one, CohortObject)] == ["x"]
    assert [one.cluster_queue for one in status_of(found).queues] == ["a", "b", "c"]


OBJECTS = st.one_of(
    *(any_message(kind) for kind in (ClusterQueueObject, CohortObject, LocalQueueObject, ResourceFlavorObject))
)


@given(st.lists(OBJECTS, max_size=4), st.lists(any_message(WorkloadObject), max_size=4))
def test_whatever_objects_hold_each_turn_comes_to_a_decision_that_can_be_read(objects, workloads) -> None:
    log = begun()
    log.put(workload(1, "a"), *objects)
    for number, one in enumerate(workloads):
        metadata = msgspec.structs.replace(one.metadata, uid=one.metadata.uid or f"{number}", namespace="jobs")
        spec = msgspec.structs.replace(one.spec, queue_name="a")
        log.put(msgspec.structs.replace(one, metadata=metadata, spec=spec))
    inputs, ledger = inputs_of(log.records), Ledger()
    for epoch in (1, 2):
        decider = Decider("first", ledger.copy())
        decisions = [decider.begin(epoch, BEGUN_MS), decider.turn(inputs, BEGUN_MS).decision]
        assert [decode(encode(one), QueueDecision) for one in decisions] == decisions
        ledger = decider.ledger


async def test_a_holder_whose_record_went_bad_keeps_its_quota_at_the_next_start() -> None:
    log = begun("1")
    log.put(workload(1, "a"))
    first = await decided(log)
    log.topics[QUEUE_WORKLOAD.name] = []
    log.append(QUEUE_WORKLOAD.name, "uid-00001", b"{}")
    log.put(workload(2, "a", "2"))
    await decided(log, "second", first.done)
    assert standing(log)["uid-00001"][0] == "reserved"
    assert standing(log)["uid-00002"][0] == "pending"


async def test_what_another_queue_admitted_counts_from_the_beginning() -> None:
    log = begun("1")
    status = {
        "admission": {
            "clusterQueue": "a",
            "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "default"},
                                   "resourceUsage": {"cpu": "2"}}],
        },
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
    }  # fmt: skip
    plain = msgspec.to_builtins(workload(1, "a", "2"))
    log.put(msgspec.convert(plain | {"status": status}, type(workload(1, "a"))), workload(2, "b"))
    await decided(log)
    assert standing(log)["uid-00001"][:2] != ("pending", None)
    assert standing(log)["uid-00002"][0] == "pending", "nothing is left for it but by preemption"


async def test_a_workload_that_was_not_started_is_tried_again_after_a_while() -> None:
    log = begun()
    cluster = Cluster(log)
    log.put(workload(1, "a"))
    one = await decided(log)
    [admitted] = log.decisions()[-1].changes
    cluster._answer("uid-00001", admitted.booking, "refused")
    await turns(one, cluster, 2)
    assert standing(log)["uid-00001"][0] == "pending"
    await turns(one, cluster, 5)
    assert standing(log)["uid-00001"][0] == "reserved"
    lawful(log)


def test_topics_give_the_same_ledger_whether_states_or_all_decisions_are_read() -> None:
    states, decisions = UNDISTURBED.topics[QUEUE_STATE.name], UNDISTURBED.topics[QUEUE_DECISION.name]

    whole, short = ledger_of([], decisions), ledger_of(states, decisions[-1:])
    assert whole.states == short.states
    assert [encode(one) for one in whole.states.values()] != []
