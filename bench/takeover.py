"""Figures: one of two workers is killed under 1,000 nodes: nothing is lost, the guard covers, windows come back."""

import asyncio
import statistics
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from bench import admin, log, loop
from bench.covered import Covered
from bench.generator import HISTORY_STEP_S
from bench.node import NAME, VirtualNode
from bench.plan import wobble
from bench.process import Slacktide
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, seconds, told
from bench.trend import back_at, missing
from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.figures import percentile
from slacktide.schemas.connection import Cluster
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import COMMAND, METRIC, SAMPLE, Topic
from slacktide.streams.columns.series import slot_ms
from slacktide.streams.kafka import read_topic

T = TypeVar("T", bound=msgspec.Struct)
NODES, BRIEF_NODES = 1_000, 60
HISTORY_S = 600
BEFORE_S, AFTER_S = 12.0, 30.0
CAUGHT_UP_S = 240.0
LAST_ANSWERS_S = 20.0
SESSION_MS = 6_000
"""The workers' default, and the shortest that Apache Kafka takes."""
WINDOWS_S_PER_1000 = 5.0
GAP_MS = 1_500
AFTER_PCTS = {"median": 50, "95% within": 95, "longest": 100}
WORKERS = ("blue", "green")


class Taken(msgspec.Struct, gc=False):
    """Of a sample what tells it from others."""

    node: str
    boot_id: str
    seq: int


class Sampled(Taken, gc=False):
    """Also of what time it tells."""

    observed_ms: int
    interval_ms: int


class Whose(msgspec.Struct, gc=False):
    """Of a sample in columns the head."""

    node: str
    boot_id: str


class InColumns(msgspec.Struct, gc=False):
    """A sample as it is written."""

    of: Whose
    now: list[Any]


class Answer(Taken, gc=False):
    """Of an answer also whose it is."""

    worker: str


class Window(msgspec.Struct, gc=False):
    """How much of a window is covered."""

    window_ms: int
    covered_ms: int


class Figures(Window):
    """Of a NodeMetric until when it is, and what it covers, in all its windows."""

    node: str
    observed_ms: int
    aggregates: list[Window] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the log tells of it; times are the log's."""

    killed_ms: int
    dead: str
    samples: list[Sampled]
    answers: list[tuple[int, Answer]]
    """With when the log got it, and"""
    metrics: list[tuple[int, Figures]]
    """likewise."""
    outcomes: list[NodeOutcome]
    """Of the agent's node, about its limit."""


def measure(rig: Rig) -> list[Row]:
    """Both workers answer; the one that answers the agent's node is killed."""
    nodes = BRIEF_NODES if rig.brief else NODES
    bootstrap = rig.kafka().bootstrap
    admin.set_up(bootstrap, (SAMPLE, COMMAND, METRIC), admin.STAMPED_BY_LOG)
    log.publish_policy(bootstrap, log.USUAL_POLICY)
    rig.say(f"takeover: two workers, {nodes} nodes with {HISTORY_S} s of history, one with an agent")
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_worker(rig, bootstrap, name)) for name in WORKERS}
        fleet = stack.enter_context(loop.fleet(rig, bootstrap, nodes, policy=log.USUAL_POLICY, history_s=HISTORY_S))
        log.wait_caught_up(bootstrap, nodes * HISTORY_S // HISTORY_STEP_S, CAUGHT_UP_S, fleet, *workers.values())
        one = stack.enter_context(VirtualNode(rig, (), crunch=True))
        agent = stack.enter_context(loop.agent(rig, bootstrap, one))
        one.play(wobble(2, BEFORE_S + AFTER_S))
        wait(BEFORE_S, fleet, agent, *workers.values())
        dead = log.commands(bootstrap, NAME)[-1].worker
        rig.say(f"takeover: killing {dead}, who answers the agent's node")
        killed_ms = SystemClock().wall_ms()
        workers[dead].process.kill()
        rest = [worker for name, worker in workers.items() if name != dead]
        wait(AFTER_S, fleet, agent, *rest)
        agent.process.terminate()
        fleet.process.terminate()
        # Give the rest its time: what has no answer then counts as unanswered.
        with suppress(CannotRunError):
            log.wait_for(bootstrap, COMMAND, log.end(bootstrap, SAMPLE), LAST_ANSWERS_S)
        rig.say("takeover: reading the log")
        return rows(_story(bootstrap, killed_ms, dead), nodes)


def rows(story: Story, nodes: int) -> list[Row]:
    """The figures."""
    lost = lost_samples(story.samples)
    unanswered = {_id(one) for one in story.samples} - {_id(one) for _, one in story.answers}
    twice = len(story.answers) - len({_id(one) for _, one in story.answers})
    gaps = gaps_ms(story)
    moved = len(gaps)
    gap = f"median {seconds(statistics.median(gaps) / 1000)}, longest {seconds(max(gaps) / 1000)}" if gaps else "-"
    return [
        judged("worker killed: samples lost, samples without an answer", "0, 0",
               f"{lost} and {len(unanswered)} of {len(story.samples):,}; {twice} answered twice",
               met=not lost and not unanswered, n=len(story.samples), lost=lost, unanswered=len(unanswered)),
        _guard_row(story),
        _windows_row(story, nodes),
        told(f"from the dead worker's last answer to the other's first, {moved} nodes", gap, n=moved, gaps_ms=gaps),
    ]  # fmt: skip


def lost_samples(samples: Iterable[Taken]) -> int:
    """How many lack in the log between a boot's first and last one."""
    seqs: dict[tuple[str, str], list[int]] = {}
    for sample in samples:
        seqs.setdefault((sample.node, sample.boot_id), []).append(sample.seq)
    return sum(missing(each) for each in seqs.values())


def gaps_ms(story: Story) -> list[int]:
    """Of each node that moved: from the dead worker's last answer to the first one of the other, by the log's clock."""
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    for at_ms, answer in story.answers:
        if answer.worker == story.dead:
            last[answer.node] = at_ms
        elif at_ms > story.killed_ms:
            first.setdefault(answer.node, at_ms)
    return [first[node] - at_ms for node, at_ms in last.items() if node in first]


def _guard_row(story: Story) -> Row:
    after = [one for one in story.outcomes if one.observed_ms >= story.killed_ms]
    applied = Counter(one.command_id for one in story.outcomes if one.result == "applied")
    again = sum(count - 1 for count in applied.values())
    guarded = [one for one in after if one.origin == "guard"]
    acted = [one for one in after if one.result in {"applied", "unchanged"}]
    gap_ms = max((one.age_ms for one in acted), default=0)
    return judged(
        "worker killed, a node's gap: sample -> act, the guard's included",
        f"<= {GAP_MS / 1000:g} s, each once",
        f"longest {seconds(gap_ms / 1000)} of {len(acted)} acts, {len(guarded)} by the guard; {again} applied twice",
        met=bool(guarded) and gap_ms <= GAP_MS and not again,
        n=len(acted),
        gap_ms=gap_ms,
        guard=len(guarded),
        twice=again,
    )


def whole_again_ms(story: Story) -> dict[str, int | None]:
    """Of each node that moved: from when on its windows lacked nothing; None: not within the run.

    They cover what the node's samples in the log tell of, to the millisecond, as if nobody had died. What they covered
    before is no measure: it goes up and down by a step, and by what lies between samples.
    """
    moved = {answer.node for at_ms, answer in story.answers if answer.worker == story.dead and at_ms <= story.killed_ms}
    samples: dict[str, list[Sampled]] = {node: [] for node in moved}
    metrics: dict[str, list[tuple[int, Figures]]] = {node: [] for node in moved}
    for sample in story.samples:
        samples.get(sample.node, []).append(sample)
    for at_ms, metric in story.metrics:
        metrics.get(metric.node, []).append((at_ms, metric))
    found = {}
    for node in moved:
        covered = Covered((sample.observed_ms, sample.interval_ms) for sample in samples[node])
        points = [(at_ms, -lacking_ms(metric, covered)) for at_ms, metric in metrics[node]]
        found[node] = back_at(points, 0, story.killed_ms)
    return found


def lacking_ms(metric: Figures, covered: Covered) -> int:
    """How much of what is covered a NodeMetric lacks, in the window that lacks most.

    The policy's window goes on by slots, the others by seconds.
    """
    steps_ms = [slot_ms(metric.window_ms), *(1_000 for _ in metric.aggregates)]
    return max(
        covered.within_ms(metric.observed_ms, window.window_ms, step_ms) - window.covered_ms
        for window, step_ms in zip([metric, *metric.aggregates], steps_ms, strict=True)
    )


def _windows_row(story: Story, nodes: int) -> Row:
    whole = whole_again_ms(story)
    target_s = WINDOWS_S_PER_1000 * max(1.0, nodes / 1000)
    never = [node for node, at_ms in whole.items() if at_ms is None]
    after_s = [(at_ms - story.killed_ms - SESSION_MS) / 1000 for at_ms in whole.values() if at_ms is not None]
    said = ", ".join(f"{name} {seconds(percentile(after_s, pct))}" for name, pct in AFTER_PCTS.items())
    return judged(
        "worker killed: windows whole, after the session timeout",
        f"<= {target_s:g} s",
        f"{said}; not within {AFTER_S:.0f} s: {len(never)} of {len(whole)} nodes",
        met=bool(whole) and not never and max(after_s) <= target_s,
        n=len(whole),
        after_s=after_s,
        never=len(never),
    )


def _worker(rig: Rig, bootstrap: str, name: str) -> Slacktide:
    worker = Slacktide(rig, "stream", "--bootstrap", bootstrap, "--worker-name", name, *loop.ALL_NODES)
    worker.wait_ready()
    return worker


def _story(bootstrap: str, killed_ms: int, dead: str) -> Story:
    return Story(
        killed_ms=killed_ms,
        dead=dead,
        samples=[sampled(sample) for _, sample in _read(bootstrap, SAMPLE, InColumns)],
        answers=_read(bootstrap, COMMAND, Answer),
        metrics=_read(bootstrap, METRIC, Figures),
        outcomes=log.outcomes(bootstrap, NAME),
    )


def sampled(sample: InColumns) -> Sampled:
    """Join what the head and the numbers tell."""
    seq, observed_ms, interval_ms = sample.now[:3]
    return Sampled(sample.of.node, sample.of.boot_id, seq, observed_ms, interval_ms)


def _read(bootstrap: str, topic: Topic, kind: type[T]) -> list[tuple[int, T]]:
    """All of a topic, each record with the log's time; only what is asked of it is kept."""
    decoder = msgspec.json.Decoder(kind)

    async def read() -> list[tuple[int, T]]:
        async with aclosing(read_topic(Cluster(bootstrap), topic.name)) as records:
            return [(record.timestamp_ms, decoder.decode(record.value)) async for record in records if record.value]

    return asyncio.run(read())


def _id(one: Taken) -> tuple[str, str, int]:
    return one.node, one.boot_id, one.seq
