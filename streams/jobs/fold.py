"""Folds the events of one Job. Pure.

The bridge publishes the events of a Job in order. ``JobStatus.folded_to`` records the offset of the last folded event.
Events up to it do not change counts when they are read again. They only restore the facts of live pods.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.job_pod import ControllerStatus, JobCondition, JobEvent, JobPodFacts, JobSpec
from slacktide.schemas.job_status import (
    EVICTIONS_MAX,
    PROGRESS_MAX,
    RECENT_MAX,
    EvictedPod,
    FailureCount,
    JobStatus,
    PodEnd,
    Progress,
)
from slacktide.streams.decisions.job_end import (
    FAILURE,
    SUCCESS,
    Counts,
    Matched,
    RuleProgress,
    has_failed,
    index_text,
    indexes_of,
    job_end,
    match,
)

GAP_MS = 1_000
"""Minimum interval between progress points, while there are few."""


@dataclass(slots=True)
class Tally:
    """Adds up; keeps the newest entries of each list."""

    failures: dict[str, int] = field(default_factory=dict)
    evictions: int = 0
    lost_core_ms: int = 0
    recent: list[PodEnd] = field(default_factory=list)
    evicted: list[EvictedPod] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    @classmethod
    def of(cls, status: JobStatus) -> Tally:
        """Restore the tally of a published status."""
        return cls(
            failures={one.why: one.pods for one in status.failures},
            evictions=status.evictions,
            lost_core_ms=status.lost_core_ms,
            recent=list(status.recent),
            evicted=list(status.evicted),
            progress=list(status.progress),
        )

    def failed(self, pod: JobPodFacts, seen_ms: int, why: str, *, counted: bool) -> None:
        """Count a failed pod. ``why`` is the matched rule, or how the pod ended."""
        lost = 0
        if pod.started_ms:
            lost = min(INT64_MAX, pod.cpu_milli * max(0, (pod.ended_ms or seen_ms) - pod.started_ms) // 1_000)
        self.failures[why] = self.failures.get(why, 0) + 1
        self.lost_core_ms = min(INT64_MAX, self.lost_core_ms + lost)
        end = PodEnd(
            pod=pod.name,
            node=pod.node,
            index=pod.index,
            result="failed" if counted else "ignored",
            why=why,
            exits=[one for one in pod.exits if one.exit_code],
            seen_ms=seen_ms,
            lost_core_ms=lost,
        )
        self.recent.append(end)
        del self.recent[:-RECENT_MAX]

    def evict(self, pod: JobPodFacts) -> None:
        """Count an eviction by Slacktide."""
        assert pod.eviction is not None, "of an evicted pod"
        self.evictions += 1
        self.evicted.append(EvictedPod(pod=pod.name, index=pod.index, eviction=pod.eviction))
        del self.evicted[:-EVICTIONS_MAX]

    def by_rule(self) -> list[FailureCount]:
        """Return the failures, the most frequent first."""
        ordered = sorted(self.failures.items(), key=lambda one: (-one[1], one[0]))
        return [FailureCount(why=why, pods=pods) for why, pods in ordered]

    def point(self, seen_ms: int, succeeded: int, failed: int) -> None:
        """Record progress. If there are too many points, drop every second one and double the interval."""
        points = self.progress
        if points and (points[-1].succeeded, points[-1].failed) == (succeeded, failed):
            return
        gap_ms = max(GAP_MS, (points[-1].seen_ms - points[0].seen_ms) // PROGRESS_MAX) if points else 0
        one = Progress(seen_ms=seen_ms, succeeded=succeeded, failed=failed)
        if len(points) > 1 and seen_ms - points[-2].seen_ms < gap_ms:
            points[-1] = one
            return
        points.append(one)
        if len(points) > PROGRESS_MAX:
            del points[1:-1:2]


FINISHED = {FAILURE: "Failed", SUCCESS: "Complete"}
UNKNOWN = JobStatus(uid="", namespace="", name="", folded_to=-1, observed_ms=0)


@dataclass(slots=True)
class _Pod:
    facts: JobPodFacts
    offset: int
    epoch: int
    counted: bool = False
    """As succeeded, failed or ignored by a rule."""
    evicted: bool = False


class JobFold:
    """Folds the events of one Job, from its last published status; None: unknown."""

    def __init__(self, status: JobStatus | None = None) -> None:
        last = status or UNKNOWN
        self.gone = False
        self.folded_to = last.folded_to
        self._last = last
        self._epoch = 0
        """The highest epoch of all events read, including repeated ones."""
        self._spec = last.spec
        self._controller = last.counted or ControllerStatus()
        self._decided = last.decided
        self._suspended = last.was_suspended
        completions = None if last.spec is None else last.spec.completions
        self._completed = indexes_of(last.completed_indexes, completions) - indexes_of(last.unseen_indexes, completions)
        self._failed_indexes = indexes_of(last.failed_indexes or "", completions) - indexes_of(
            last.unseen_failed_indexes, completions
        )
        self._succeeded = last.succeeded - last.unseen_succeeded
        self._failed = last.failed - last.unseen_failed
        self._fail_job = ""
        self._tally = Tally.of(last)
        self._wanted: list[set[int] | None] = []
        self._met: list[int] = []
        self._live: dict[str, _Pod] = {}
        self._active = self._ready = self._terminating = self._restarts = 0
        self._read_success_rules()

    @property
    def oldest(self) -> int | None:
        """Return the offset of the first event needed to restore its live pods; None if there are none."""
        return min((pod.offset for pod in self._live.values()), default=None)

    def take(self, event: JobEvent, offset: int) -> bool:
        """Take one event at its offset; return whether the published status already includes it."""
        # A topic that was created again has smaller offsets for later events.
        again = offset <= self.folded_to and event.observed_ms <= self._last.observed_ms
        self._epoch = self._epoch if again else max(self._epoch, self._last.writer_epoch)
        if event.writer_epoch < self._epoch:
            return again  # from a former bridge: a late event, older than those already read
        self._epoch = event.writer_epoch
        if not again:
            self.folded_to = offset
            self._last = msgspec.structs.replace(
                self._last,
                uid=event.uid,
                namespace=event.namespace,
                name=event.name,
                writer_epoch=event.writer_epoch,
                observed_ms=max(event.observed_ms, self._last.observed_ms),
            )
            self.gone = event.gone
            if event.spec is not None:
                self._respec(event.spec, event.counted or ControllerStatus(), event.observed_ms)
        if event.pod is not None and self._spec is not None:
            self._take_pod(event.pod, offset, event.observed_ms, again=again)
        if event.listed:  # drop the pods that a new bridge's list does not name
            for uid in [uid for uid, pod in self._live.items() if pod.epoch < event.writer_epoch]:
                self._add(self._live.pop(uid).facts, -1)
        if not again:
            self._decide(event.observed_ms)
            self._tally.point(event.observed_ms, self._own_succeeded, self._failed)
        return again

    def status(self) -> JobStatus:
        """Return the current status."""
        spec, controller = self._spec or JobSpec(), self._controller
        completed, unseen = self._with_unseen(self._completed, controller.completed_indexes, controller.succeeded)
        own = self._own_succeeded
        succeeded = len(completed) if spec.indexed else max(own, controller.succeeded)
        failed_indexes, unseen_failed = self._with_unseen(self._failed_indexes, controller.failed_indexes, None)
        return msgspec.structs.replace(
            self._last,
            folded_to=self.folded_to,
            spec=self._spec,
            # Long, and needed only for unseen pods.
            counted=controller if unseen else msgspec.structs.replace(controller, completed_indexes=""),
            active=self._active,
            ready=self._ready,
            terminating=self._terminating,
            succeeded=succeeded,
            failed=max(self._failed, controller.failed),
            completed_indexes=index_text(completed) if spec.indexed else "",
            failed_indexes=index_text(failed_indexes) if _per_index(spec) else None,
            conditions=self._conditions(),
            decided=self._decided,
            was_suspended=self._suspended,
            unseen_succeeded=succeeded - own,
            unseen_failed=max(0, controller.failed - self._failed),
            unseen_indexes=index_text(unseen),
            unseen_failed_indexes=index_text(unseen_failed),
            failures=self._tally.by_rule(),
            evictions=self._tally.evictions,
            lost_core_ms=self._tally.lost_core_ms,
            recent=list(self._tally.recent),
            evicted=list(self._tally.evicted),
            progress=list(self._tally.progress),
        )

    @property
    def _own_succeeded(self) -> int:
        return len(self._completed) if self._spec is not None and self._spec.indexed else self._succeeded

    def _respec(self, spec: JobSpec, controller: ControllerStatus, seen_ms: int) -> None:
        """Apply the spec. An elastic Job that shrank loses indexes, as in its controller."""
        before, self._spec, self._controller = self._spec, spec, controller
        self._suspended = self._suspended or spec.suspend
        if before == spec:
            return
        if spec.completions is not None:
            self._completed = {index for index in self._completed if index < spec.completions}
            self._failed_indexes = {index for index in self._failed_indexes if index < spec.completions}
        self._read_success_rules()
        for pod in list(self._live.values()):
            self._judge(pod, seen_ms, again=False)

    def _read_success_rules(self) -> None:
        spec = self._spec or JobSpec()
        rules = spec.success_rules or ()
        self._wanted = [indexes_of(rule.indexes, spec.completions) if rule.indexes else None for rule in rules]
        self._met = [len(self._completed if one is None else self._completed & one) for one in self._wanted]

    def _take_pod(self, facts: JobPodFacts, offset: int, seen_ms: int, *, again: bool) -> None:
        pod = self._live.get(facts.uid)
        if pod is None:
            pod = self._live[facts.uid] = _Pod(facts, offset, self._epoch)
        else:
            self._add(pod.facts, -1)
            pod.facts, pod.offset, pod.epoch = facts, offset, self._epoch
        self._add(facts, 1)
        self._judge(pod, seen_ms, again=again)
        if facts.eviction is not None and not pod.evicted:
            pod.evicted = True
            if not again:
                self._tally.evict(facts)
        if facts.last:
            del self._live[facts.uid]

    def _add(self, facts: JobPodFacts, sign: int) -> None:
        if facts.last or facts.phase in {"Succeeded", "Failed"}:
            return
        if facts.deleting:
            self._terminating += sign
        else:
            self._active += sign
            self._ready += sign * facts.ready
        if facts.phase in {"Pending", "Running"}:
            self._restarts += sign * facts.restarts

    def _judge(self, pod: _Pod, seen_ms: int, *, again: bool) -> None:
        """Count a pod that has ended, once. A pod without its finalizer was counted before or is ignored."""
        facts, spec = pod.facts, self._spec
        if pod.counted or not facts.tracked or spec is None:
            return
        if spec.indexed and (facts.index is None or facts.index >= (spec.completions or 0)):
            return
        if facts.phase == "Succeeded":
            pod.counted = True
            if not again:
                self._count_success(facts)
        elif has_failed(facts, spec, job_fails=self._ends_by(FAILURE)) and not self._ends_by(SUCCESS):
            pod.counted = True
            matched = match(spec.failure_rules, facts, self._last.namespace, per_index=_per_index(spec))
            if not again:
                self._count_failure(facts, spec, matched, seen_ms)

    def _count_success(self, facts: JobPodFacts) -> None:
        self._succeeded += 1
        if facts.index is None or facts.index in self._completed:
            return
        self._completed.add(facts.index)
        for number, wanted in enumerate(self._wanted):
            self._met[number] += wanted is None or facts.index in wanted

    def _count_failure(self, facts: JobPodFacts, spec: JobSpec, matched: Matched, seen_ms: int) -> None:
        self._tally.failed(facts, seen_ms, _why(facts, matched), counted=matched.counted)
        self._failed += matched.counted
        self._fail_job = self._fail_job or matched.message
        limit = spec.backoff_limit_per_index
        if not spec.indexed or limit is None or facts.index is None or self._ends_by(FAILURE):
            return
        if matched.action == "FailIndex" or (matched.counted and facts.index_failures >= limit):
            self._failed_indexes.add(facts.index)

    def _decide(self, seen_ms: int) -> None:
        if self._decided is not None or self._spec is None or self.gone:
            return
        sizes = (None if one is None else len(one) for one in self._wanted)
        counts = Counts(
            active=self._active,
            succeeded=self._own_succeeded,
            failed=self._failed,
            restarts=self._restarts,
            failed_indexes=len(self._failed_indexes),
            success_rules=[RuleProgress(size, met) for size, met in zip(sizes, self._met, strict=True)],
            fail_job=self._fail_job,
        )
        self._decided = job_end(self._spec, counts)
        if self._ends_by(FAILURE):
            for pod in list(self._live.values()):  # pods that are being deleted count as failed from now on
                self._judge(pod, seen_ms, again=False)

    def _ends_by(self, type_: str) -> bool:
        return self._decided is not None and self._decided.type == type_

    def _conditions(self) -> list[JobCondition]:
        """Compute conditions from pods; the controller's condition wins if it ended the Job differently."""
        true = [one for one in self._controller.conditions if one.status == "True"]
        ended = next((one for one in true if one.type in FINISHED), None)
        done = any(one.type in FINISHED.values() for one in true)
        if (done or (ended is not None and self._decided is None)) and not _alike(ended, self._decided):
            return list(self._controller.conditions)
        found = []
        if self._suspended and self._spec is not None:
            on = self._spec.suspend
            reason, message = ("JobSuspended", "Job suspended") if on else ("JobResumed", "Job resumed")
            found.append(
                JobCondition(type="Suspended", status="True" if on else "False", reason=reason, message=message)
            )
        if self._decided is not None:
            found.append(self._decided)
            if not self._active and not self._terminating:
                found.append(msgspec.structs.replace(self._decided, type=FINISHED[self._decided.type]))
        return found

    def _with_unseen(self, own: set[int], controllers: str, count: int | None) -> tuple[set[int], set[int]]:
        """Return all indexes, and those of which only the controller saw the end."""
        if not controllers or self._spec is None or (count is not None and count <= len(own)):
            return own, set()
        unseen = indexes_of(controllers, self._spec.completions) - own
        return own | unseen, unseen


def _per_index(spec: JobSpec) -> bool:
    return spec.indexed and spec.backoff_limit_per_index is not None


def _alike(one: JobCondition | None, other: JobCondition | None) -> bool:
    return one is not None and other is not None and (one.type, one.reason) == (other.type, other.reason)


def _why(facts: JobPodFacts, matched: Matched) -> str:
    if matched.rule is not None:
        return f"rule {matched.rule}: {matched.action}"
    code = next((one.exit_code for one in facts.exits if one.exit_code), None)
    if code is not None:
        return f"exit code {code}"
    return facts.reason or ("deleted" if facts.phase != "Failed" else "no exit code")
