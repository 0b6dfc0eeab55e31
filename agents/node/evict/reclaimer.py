"""Reclaims memory of best-effort pods before any is evicted, by ``streams.decisions.evict.mem_reclaim``.

A write to ``memory.reclaim`` blocks, so each step runs on a thread of its own: samples, limits and evictions do not
wait for it. There is one step at a time. Nothing remains to be undone, so no intent is stored before it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import msgspec

from slacktide.agents.node.interfaces import Reclaim
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import pod_group
from slacktide.schemas.outcome import NodeOutcome, PodName, Reclaimed, Result
from slacktide.schemas.policy import ResourceThreshold
from slacktide.schemas.policy.features import early_reclaim
from slacktide.schemas.qos import is_best_effort
from slacktide.streams.decisions.evict.mem_reclaim import (
    RULE,
    Ask,
    Freed,
    MemoryLines,
    ReclaimState,
    ReclaimStep,
    learned,
    next_step,
    wants,
)

STEP_NS = 300_000_000
"""No part of a step begins later than this after its first one."""
APART_NS = 900_000_000
"""Time between two steps: about a second, whatever samples are taken early."""
REPORT_NS = 5_000_000_000
"""One outcome per pod and so much time, with what was reclaimed since the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Try:
    """One ask, and what came of it."""

    ask: Ask
    got: Reclaim
    took_us: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What one step did."""

    step: ReclaimStep
    stalls_permille: Mapping[str, int]
    tries: Sequence[_Try]
    dry_run: bool


_NOTHING = Reclaim(freed_bytes=0, swapped_bytes=0, writes=0, tried_bytes=0)


class Reclaimer:
    """The one place that reclaims memory. ``start`` runs a step; tests run it at once."""

    def __init__(
        self, doors: Doors, *, dry_run: bool, start: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self._doors, self._dry_run, self._start = doors, dry_run, start or _on_a_thread
        self._state = ReclaimState()
        self._running: Future[_Done] | None = None
        self._begun_ns = -APART_NS
        self._pods: Mapping[str, Pod] = {}
        self._tallies: dict[str, NodeOutcome] = {}
        """By uid: what is not reported yet."""
        self._reported_ns: dict[str, int] = {}
        self._taken: Taken | None = None
        self._reported_trouble = False

    @property
    def paused(self) -> bool:
        """Whether pressure holds it back now."""
        return self._doors.mono_ns() // 1_000_000 < self._state.paused_until_ms

    def carry_out(self, taken: Taken, threshold: ResourceThreshold, *, evicting: bool) -> None:
        """Report what the last step did, and begin the next one if memory is short. ``evicting``: pods are selected."""
        self._taken = taken
        self._settle()
        memory = self._doors.best_effort.memory if threshold.enable and not early_reclaim(threshold) else None
        lines = _lines(taken, threshold)
        short = memory is not None and not evicting and wants(lines) == "reclaims"
        self._report(everything=not short and self._running is None)
        now_ns = self._doors.mono_ns()
        if memory is None or not short or self._running is not None or now_ns - self._begun_ns < APART_NS:
            return
        held = taken.sample.evict
        inside = {use.uid for use in taken.sample.pod_use if use.best_effort_group} - {*held.dying, *held.stuck}
        pods = self._pods = {pod.uid: pod for pod in taken.pods if pod.uid in inside and is_best_effort(pod)}
        if not pods:
            return
        if trouble := memory.trouble:
            self._cannot(trouble)
            return
        dry_run, state, running = self._dry_run or threshold.mem_evict_dry_run, self._state, Future[_Done]()
        self._running, self._begun_ns = running, now_ns

        def work() -> None:
            try:
                running.set_result(self._step(sorted(pods), lines, state, dry_run=dry_run))
            except BaseException as exc:  # noqa: BLE001 - raised where the result is read
                running.set_exception(exc)

        self._start(work)

    def close(self) -> None:
        """Report what is not reported yet."""
        self._settle()
        self._report(everything=True)

    def _step(self, uids: Sequence[str], lines: MemoryLines, state: ReclaimState, *, dry_run: bool) -> _Done:
        """Look, decide and write. Runs on its own thread, and touches nothing of the agent's."""
        memory, mono_ns = self._doors.best_effort.memory, self._doors.mono_ns
        look = memory.look(uids, mono_ns())
        step = next_step(look, lines, state)
        began_ns, tries = mono_ns(), list[_Try]()
        for ask in step.asks:
            if dry_run:
                tries.append(_Try(ask=ask, got=_NOTHING, took_us=0))
                continue
            asked_ns = mono_ns()
            if tries and asked_ns - began_ns >= STEP_NS:
                break
            got, trouble = _NOTHING, ""
            try:
                got = memory.reclaim(ask.uid, ask.ask_bytes, in_time=lambda: mono_ns() - began_ns < STEP_NS)
            except CgroupError as exc:
                trouble = str(exc)
            tries.append(_Try(ask=ask, got=got, took_us=(mono_ns() - asked_ns) // 1_000, trouble=trouble))
        return _Done(step=step, stalls_permille=look.stalls_permille, tries=tries, dry_run=dry_run)

    def _settle(self) -> None:
        """Read what the last step did, if it has ended."""
        if self._running is None or not self._running.done():
            return
        done, self._running = self._running.result(), None
        pauses = done.step.state.paused_until_ms > self._state.paused_until_ms
        self._state = done.step.state
        if not done.dry_run:
            tried = [replace(one.ask, ask_bytes=one.got.tried_bytes or one.ask.ask_bytes) for one in done.tries]
            freed = [
                Freed(uid=one.ask.uid, freed_bytes=one.got.freed_bytes, swapped_bytes=one.got.swapped_bytes)
                for one in done.tries
            ]
            self._state = learned(self._state, tried, freed, self._doors.mono_ns() // 1_000_000)
        for one in done.tries:
            self._add(one, done)
        if pauses:
            self._report(everything=True)

    def _add(self, one: _Try, done: _Done) -> None:
        uid = one.ask.uid
        pod, taken = self._pods.get(uid), self._taken
        if pod is None or taken is None:
            return
        asked = one.ask.ask_bytes if done.dry_run else one.got.tried_bytes
        ls_mem, io_full = (done.stalls_permille.get(name, 0) for name in ("ls_mem", "io_full"))
        now = Reclaimed(
            pod=PodName(namespace=pod.namespace, name=pod.name),
            asked_bytes=asked,
            freed_bytes=one.got.freed_bytes,
            swapped_bytes=one.got.swapped_bytes,
            writes=one.got.writes,
            took_us=one.took_us,
            ls_mem_before_permille=ls_mem,
            ls_mem_after_permille=ls_mem,
            io_full_before_permille=io_full,
            io_full_after_permille=io_full,
        )
        if (before := self._tallies.get(uid)) is not None and before.reclaimed is not None:
            now = _together(before.reclaimed, now)
        result: Result = "applied" if now.freed_bytes else "failed" if one.trouble else "unchanged"
        begun = self._doors.reporter.begun(
            taken, RULE, pod_group(uid), "agent", reason=one.trouble, bound=done.step.bound, terms=done.step.terms
        )
        result = "dry-run" if done.dry_run else result
        self._tallies[uid] = msgspec.structs.replace(begun, result=result, reclaimed=now)

    def _report(self, *, everything: bool) -> None:
        now_ns, taken = self._doors.mono_ns(), self._taken
        self._reported_ns = {uid: at for uid, at in self._reported_ns.items() if now_ns - at < REPORT_NS}
        for uid in [uid for uid in self._tallies if everything or uid not in self._reported_ns]:
            self._reported_ns[uid] = now_ns
            outcome = self._tallies.pop(uid)
            notes = [outcome.reason, f"paused: {self._state.paused_by}" if self.paused else ""]
            if (rest := self._state.rests.get(uid)) is not None and now_ns // 1_000_000 < rest.until_ms:
                notes.append(f"it freed little, and rests for {rest.rest_ms // 1_000} s")
            self._doors.report(msgspec.structs.replace(outcome, reason="; ".join(filter(None, notes))), taken)

    def _cannot(self, trouble: str) -> None:
        """Report once that nothing can be reclaimed here."""
        if self._reported_trouble or self._taken is None:
            return
        self._reported_trouble = True
        uid, pod = min(self._pods.items())
        begun = self._doors.reporter.begun(self._taken, RULE, pod_group(uid), "agent", reason=trouble, bound="lacks")
        none = Reclaimed(pod=PodName(namespace=pod.namespace, name=pod.name), asked_bytes=0, freed_bytes=0)
        self._doors.report(msgspec.structs.replace(begun, result="failed", reclaimed=none), self._taken)


def _together(before: Reclaimed, now: Reclaimed) -> Reclaimed:
    sums = ("asked_bytes", "freed_bytes", "swapped_bytes", "writes", "took_us")
    return msgspec.structs.replace(
        now,
        ls_mem_before_permille=before.ls_mem_before_permille,
        io_full_before_permille=before.io_full_before_permille,
        **{name: getattr(before, name) + getattr(now, name) for name in sums},
    )


def _lines(taken: Taken, threshold: ResourceThreshold) -> MemoryLines:
    return MemoryLines(
        capacity_bytes=taken.facts.capacity.mem_bytes,
        used_bytes=taken.sample.use.mem_bytes,
        threshold_pct=threshold.mem_early_reclaim_threshold_pct or 0,
        evict_pct=threshold.mem_evict_threshold_pct or 0,
    )


def _on_a_thread(work: Callable[[], None]) -> None:
    # A daemon: a write that blocks does not hold up the agent's end.
    threading.Thread(target=work, name="memory-reclaim", daemon=True).start()
