"""Small worlds of queues by their seed, as objects of Kueue, and what Slacktide's simulation makes of each step.

What Kueue made of them lies in `tests/replay/kueue.jsonl.gz`: a change of `world` asks for another recording.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from slacktide.schemas.queue_objects import KINDS, QueueObject
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.decisions.queue.scheduling import Scheduling, Settings
from slacktide.streams.decisions.queue.simulation import Happened, Simulation
from testbed.dice import Dice

Json = dict[str, Any]
VERSION = "kueue.x-k8s.io/v1beta2"
PRIORITIES = {"low": 0, "mid": 100, "high": 200}
BEGUN_S, STEP_S = 1_767_225_600, 100
"""Each step has its time; between two of them the queue comes to rest."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a queue made of one step."""

    running: dict[str, dict[str, str]]
    """Flavor by resource, by name of a Job that holds quota when all is at rest."""
    evicted: list[tuple[str, str, str]] = []
    """Victim, preemptor and reason, in order; those of one preemption by name."""
    finished: str = ""
    """The Job that had finished."""


class Answers(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Kueue made of a world."""

    seed: int
    uids: dict[str, str]
    """Of the Workload of each Job: ties go by it."""
    steps: list[Answer]
    fair: bool = False


class World(NamedTuple):
    """A world's objects, and what happens in it: a Job that arrives, or the share by which one is chosen to finish."""

    name: str
    objects: list[Json]
    steps: list[Json | float]


def world(seed: int) -> World:
    """One of up to four ClusterQueues and ten Jobs."""
    dice, name = Dice(seed), f"w{seed}"
    count, memory = dice.whole(2, 4), dice.below(0.3)
    flavors = [f"{name}-f{at}" for at in range(dice.of(1, 1, 2))]
    nested = dice.below(0.25) and count >= 3
    objects = [_object("ResourceFlavor", one, {"nodeLabels": {"f": one}}) for one in flavors]
    if nested:
        objects.append(_object("Cohort", f"{name}-sub", {"parentName": name}))
        quotas = [{"name": "cpu", "nominalQuota": str(dice.whole(0, 3))}]
        quotas += [{"name": "memory", "nominalQuota": "4Gi"}] if memory else []
        objects.append(_object("Cohort", name, {"resourceGroups": [_group([(flavors[0], quotas)])]}))
    total = 0
    for at in range(count):
        cohort = f"{name}-sub" if nested and at < 2 else name
        spec, nominal = _cluster_queue(dice, flavors, memory=memory)
        total += nominal
        objects.append(_object("ClusterQueue", f"{name}-q{at}", {"cohortName": cohort, **spec}))
        objects.append(_object("LocalQueue", f"q{at}", {"clusterQueue": f"{name}-q{at}"}, name))
    steps: list[Json | float] = []
    for number in range(dice.whole(5, 10)):
        steps.append(_job(dice, name, number, count, total, memory=memory))
        if number >= 3 and dice.below(0.25):
            steps.append(dice.share())
    return World(name, objects, steps)


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, **where}, "spec": spec}


def _group(flavors: list[tuple[str, list[Json]]]) -> Json:
    covered = [one["name"] for one in flavors[0][1]]
    return {
        "coveredResources": covered,
        "flavors": [{"name": name, "resources": quotas} for name, quotas in flavors],
    }


def _cluster_queue(dice: Dice, flavors: list[str], *, memory: bool) -> tuple[Json, int]:
    """Its spec, and its nominal CPU."""
    groups, total = [], 0
    for flavor in flavors if dice.below(0.7) else flavors[::-1]:
        nominal = dice.whole(0, 5 if len(flavors) == 1 else 3)
        total += nominal
        cpu = {"name": "cpu", "nominalQuota": str(nominal)}
        cpu |= {"borrowingLimit": str(dice.whole(0, 4))} if dice.below(0.4) else {}
        cpu |= {"lendingLimit": str(dice.whole(0, nominal))} if dice.below(0.25) else {}
        mem = {"name": "memory", "nominalQuota": f"{dice.whole(1, 6)}Gi"}
        groups.append((flavor, [cpu, mem] if memory else [cpu]))
    spec: Json = {
        "namespaceSelector": {},
        "queueingStrategy": dice.of("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"),
        "preemption": _preemption(dice),
        "resourceGroups": [_group(groups)],
    }
    if len(flavors) > 1 and dice.below(0.7):
        spec["flavorFungibility"] = _fungibility(dice)
    if dice.below(0.3):
        spec["fairSharing"] = {"weight": dice.of("500m", "2", "3")}
    return spec, total


def _preemption(dice: Dice) -> Json:
    reclaim = dice.of("Never", "LowerPriority", "Any", "Any")
    within = dice.of("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
    found: Json = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
    if reclaim != "Never" and dice.below(0.35):
        most = {"maxPriorityThreshold": dice.of(0, 100)} if dice.below(0.5) else {}
        found["borrowWithinCohort"] = {"policy": "LowerPriority", **most}
    return found


def _fungibility(dice: Dice) -> Json:
    both = ("MayStopSearch", "TryNextFlavor")
    found = {"whenCanBorrow": dice.of(*both), "whenCanPreempt": dice.of(*both)}
    if dice.below(0.4):
        preference = dice.of("BorrowingOverPreemption", "PreemptionOverBorrowing")
        found = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": preference}
    return found


def _job(dice: Dice, namespace: str, number: int, queues: int, total: int, *, memory: bool) -> Json:
    cpu, pods = dice.of(1, 1, 1, 2, 2, 3), dice.whole(1, 3)
    if dice.below(0.35):
        cpu, pods = max(1, total // dice.whole(2, 4)), 1
    requests = {"cpu": str(cpu)} | ({"memory": f"{dice.whole(1, 2)}Gi"} if memory else {})
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    labels = {
        "kueue.x-k8s.io/queue-name": f"q{dice.whole(0, queues - 1)}",
        "kueue.x-k8s.io/priority-class": dice.of("low", "low", "mid", "high"),
    }
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    metadata = {"namespace": namespace, "name": f"j{number}", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def simulated(given: Answers) -> list[Answer]:
    """What Slacktide makes of the world, if those Jobs finish that finished on Kueue."""
    of = world(given.seed)
    jobs = [
        {**each, "metadata": each["metadata"] | {"uid": given.uids[each["metadata"]["name"]], **_created(at)}}
        for at, each in enumerate(of.steps)
        if isinstance(each, dict)
    ]
    classes = [{"kind": "WorkloadPriorityClass", "metadata": {"name": n}, "value": v} for n, v in PRIORITIES.items()]
    objects = [_decoded(one) for one in (*of.objects, *jobs, *classes)]
    cluster = queue_cluster(objects)
    done = Simulation(Scheduling(cluster.queues, settings=Settings(cluster.flavors, given.fair)), {}, BEGUN_S)
    happened, arriving = [], cluster.arriving
    for at, step in enumerate(given.steps):
        at_s = BEGUN_S + at * STEP_S
        if step.finished and (run := done._runs.get(uid := given.uids[step.finished])) is not None:
            done._later(at_s, uid, run.number, None)
        happened += done.run(arriving, at_s + STEP_S - 1)
        arriving = []
    return _by_step(happened, {uid: name for name, uid in given.uids.items()}, given.steps)


def _created(at: int) -> Json:
    when = datetime.fromtimestamp(BEGUN_S + at * STEP_S, UTC)
    return {"creationTimestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _decoded(one: Json) -> QueueObject:
    return msgspec.convert({key: value for key, value in one.items() if key != "kind"}, KINDS[one["kind"]])


def _by_step(happened: Sequence[Happened], names: dict[str, str], steps: Sequence[Answer]) -> list[Answer]:
    found, running = [], dict[str, dict[str, str]]()
    for at, step in enumerate(steps):
        evicted = []
        for one in happened:
            if (one.at_s - BEGUN_S) // STEP_S != at:
                continue
            if one.kind == "admitted":
                running[names[one.uid]] = {of.resource: of.flavor for of in sorted(one.usage)}
            elif one.kind in {"evicted", "finished"}:
                running.pop(names[one.uid], None)
            if one.eviction is not None:
                evicted.append((names[one.uid], names[one.eviction.preemptor.uid], one.eviction.reason))
        found.append(Answer({name: running[name] for name in sorted(running)}, in_order(evicted), step.finished))
    return found


def in_order(evicted: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Evictions, those of one preemption by name: Kueue issues them at once."""
    found: list[list[tuple[str, str, str]]] = []
    for one in evicted:
        if not found or found[-1][0][1] != one[1]:
            found.append([])
        found[-1].append(one)
    return [one for each in found for one in sorted(each)]


def difference(given: Answers) -> str:
    """The first step of which Slacktide makes something else; "": there is none."""
    for at, (ours, theirs) in enumerate(zip(simulated(given), given.steps, strict=True)):
        if ours != theirs:
            return f"step {at}: {ours}, and on Kueue {theirs}"
    return ""
