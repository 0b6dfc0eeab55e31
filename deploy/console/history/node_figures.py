"""Computes a node's row of figures for each second, and selects the records that explain them.

Pure. Records are added in the order of their timestamps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from msgspec.structs import replace

from slacktide.deploy.console.history.points import COUNTS, FINE, Block, empty
from slacktide.deploy.console.history.view import NONE, STATES, UNLIMITED, State
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, NodeInventory
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import COMMAND, METRIC, OUTCOME, SAMPLE
from slacktide.streams.analysis.explain.evidence import BRIEF, Logged, Severity, place_of
from slacktide.streams.analysis.explain.figures import figures as figures_of
from slacktide.streams.analysis.explain.node import Lasting, node_findings
from slacktide.streams.analysis.explain.node_log import NodeLog, uncovered_ms
from slacktide.streams.analysis.savings.node import Admissions, admitted, best_effort_use, total
from slacktide.streams.decisions.suppress.cpu_pressure import step
from slacktide.streams.decisions.suppress.cpu_suppress import allowed_milli, measured, quota_rate
from slacktide.streams.records import Record

LATELY_MS = 5_000
"""An agent reports an outcome for each sample."""
GONE_MS = 600_000
"""A node without inventory and figures is dropped this long after its last sample."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
ORIGINS: tuple[Literal["", "stream", "guard"], ...] = ("", "stream", "guard")
_STATES: Mapping[str, State] = {
    "window.absent": "silent", "window.stale": "silent", "agent.silent": "silent", "window.frozen": "frozen",
    "node.suspended": "suspended", "guard.in-charge": "guard", "batch.exhausted": "exhausted",
}  # fmt: skip
"""The states by their facts, the worst first."""
_PRESSURES = "cpu_some", "mem_some", "mem_full", "io_some", "io_full"
_EXPLAINING = (SAMPLE.name, METRIC.name, COMMAND.name, OUTCOME.name)
_CARRIED = "facts", "pods"
"""The parts of a keyframe. After a change, a sample has the changed part."""


@dataclass(slots=True)
class NodeFigures:
    """The state of one node."""

    name: str
    block: Block = field(default_factory=lambda: empty(1))
    """Points of the current minute."""
    kept: list[Record] = field(default_factory=list)
    """Records of the current minute, in the order of keeping."""
    sample: Logged[NodeSample] | None = None
    keyframe: Logged[NodeSample] | None = None
    """The latest facts and pods. A sample after a change has only the changed part."""
    carriers: dict[str, Record] = field(default_factory=dict)
    """The records with the facts and with the pods."""
    whole_ms: int = 0
    """The append time of the newest complete keyframe."""
    inventory: Logged[NodeInventory] | None = None
    metric: Logged[NodeMetric] | None = None
    allocatable: Logged[NodeAllocatable] | None = None
    score: Logged[NodeScore] | None = None
    unanswered: Logged[NodeSample] | None = None
    """The oldest sample since the last command."""
    command: Logged[NodeCommand] | None = None
    setting: Logged[NodeCommand] | None = None
    """The last command with a setting."""
    done: list[Logged[NodeOutcome]] = field(default_factory=list)
    """The outcomes of that command."""
    refused: Logged[NodeCommand] | None = None
    """The last answer to a sample without a valid proof."""
    outcome: Logged[NodeOutcome] | None = None
    """The last outcome about the limit, without refusals."""
    covered_ms: int = 0
    emptied: str = ""
    """The term that reduces batch CPU to 0."""
    latest: dict[str, Record] = field(default_factory=dict)
    _use: dict[str, int | None] = field(default_factory=dict)
    """The figures of the last sample of this second, by column."""
    _counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    _decided_ms: int | None = None
    _admissions: Admissions = field(default_factory=Admissions)
    _lasting: Lasting = field(default_factory=Lasting)
    _stands: tuple[Severity, str, State] | None = None
    """The severity, its reason and the state, when these were last looked at."""
    _ceiling: tuple[Policy | None, NodeFacts | None, int] = (None, None, NONE)
    _kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The time and offset of the last kept record, by topic."""
    _standing: dict[str, object] = field(default_factory=dict)
    """The kind of the last record, by topic. A change of kind is kept sooner."""

    @property
    def facts(self) -> NodeFacts | None:
        """Return the facts of the inventory, else of the newest keyframe."""
        if self.inventory is not None:
            return self.inventory.body.facts
        return None if self.keyframe is None else self.keyframe.body.facts

    def take_sample(self, record: Record, body: NodeSample) -> None:
        """Add a sample."""
        self.sample = Logged(body=body, place=place_of(record))
        self.unanswered = self.unanswered or self.sample
        carried = [what for what in _CARRIED if getattr(body, what) is not None]
        if len(carried) == len(_CARRIED):
            self.keyframe = self.sample
        elif carried and self.keyframe is not None:
            own = {name: getattr(body, name) for what in carried for name in (what, f"{what}_revision")}
            self.keyframe = Logged(body=replace(self.keyframe.body, **own), place=place_of(record))
        self.carriers |= dict.fromkeys(carried, record)
        self._admissions.see(body)
        self._counts["bursts"] += len(body.burst)
        self._use = self._used(body)

    def _used(self, body: NodeSample) -> dict[str, int | None]:
        """Sum over pods with known use. Before the first interval no use is known."""
        batch = [pod for pod in body.pod_use if pod.best_effort_group]
        use: dict[str, int | None] = {
            "used_cpu_milli": body.use.cpu_milli,
            "used_mem_bytes": body.use.mem_bytes,
            "be_mem_bytes": sum(pod.mem_bytes or 0 for pod in batch),
            "limit_cpu_milli": limit_milli(body.limits, self.facts),
        }
        for name in _PRESSURES:
            share = getattr(body.use.pressure, f"{name}_pct")
            use[name] = None if share is None else round(100 * share)
        if body.use.cpu_milli is not None:
            ls = sum(pod.cpu_milli or 0 for pod in body.pod_use if not pod.best_effort_group)
            be = sum(pod.cpu_milli or 0 for pod in batch)
            system = max(0, body.use.cpu_milli - ls - be)
            use |= {"ls_cpu_milli": ls, "be_cpu_milli": be, "system_cpu_milli": system}
        if periods := sum(pod.periods or 0 for pod in batch):
            use["be_throttled_permille"] = sum(pod.throttled_periods or 0 for pod in batch) * 1_000 // periods
        if body.ls_pressure is not None and body.ls_pressure.looks:
            terms = [step(body.ls_pressure.gate, look).terms for look in body.ls_pressure.looks]
            use["ls_stall_permille"] = int(max(one["stall_permille"] for one in terms))
        admission = self._admissions.of(body)
        if admission is not None:
            pods = [pod for _, pod in best_effort_use(body, admission)]
            likely = admitted(pods, admission.room).likely.cpu_milli
            use["gained_cpu_milli"] = total(pod.used for pod in pods).cpu_milli - likely
        return use

    def gone(self, now_ms: int) -> bool:
        """Return whether all records of the node are outdated."""
        latest = (self.inventory, self.metric, self.allocatable)
        return not any(latest) and (self.sample is None or self.sample.age_ms(now_ms) > GONE_MS)

    def take_allocatable(self, allocatable: Logged[NodeAllocatable] | None) -> None:
        """Add an allocatable record; None: a tombstone."""
        self.allocatable = allocatable
        shown = [] if allocatable is None else figures_of(allocatable.body)
        found = next((one for one in shown if one.of == "batch_cpu_milli"), None)
        self.emptied = "" if found is None else found.emptied_by

    def take_command(self, record: Record, body: NodeCommand) -> None:
        """Add a command."""
        self.command, self.unanswered = Logged(body=body, place=place_of(record)), None
        if body.answer == "set":
            self.setting, self.done = self.command, []
        if body.answer == "skipped":
            self._counts["skipped"] += 1
        now = None if self.sample is None else measured(self.sample.body.limits)
        for hold in body.hold:
            wanted = measured(hold.limits)
            if now is not None and wanted is not None:
                change = quota_rate(wanted) - quota_rate(now) if quota_rate(wanted) != quota_rate(now) else 0.0
                change = change or len(wanted.be_cpuset or ()) - len(now.be_cpuset or ())
                self._counts["raises"] += change > 0
                self._counts["cuts"] += change < 0

    def take_outcome(self, record: Record, body: NodeOutcome) -> None:
        """Add an outcome."""
        if self.setting is not None and (body.boot_id, body.seq) == (self.setting.body.boot_id, self.setting.body.seq):
            self.done.append(Logged(body=body, place=place_of(record)))
        if body.about_limit and body.result != "refused":
            self.outcome = Logged(body=body, place=place_of(record))
            self._decided_ms = body.age_ms
            self._counts["guarded"] += body.origin == "guard"
        elif body.spent is not None and body.result == "applied":
            self._counts["evictions"] += 1

    def look(self, now_ms: int, policy: Logged[Policy] | None, policy_refused: str) -> None:
        """Find out how the node stands: its worst finding is the one of ``slacktide explain node``."""
        found = [
            one
            for one in node_findings(self.log(policy, policy_refused), now_ms, self._lasting)
            if one.severity != "ok"
        ]
        if not found:
            self._stands = "ok", "", "ok"
            return
        names = {one.name for one in found}
        state: State = next((state for fact, state in _STATES.items() if fact in names), "ok")
        self._stands = found[0].severity, BRIEF[found[0].name], state

    @property
    def looked(self) -> bool:
        """Return whether it is known how the node stands."""
        return self._stands is not None

    def row(self, now_ms: int, number_of: Callable[[str], int], policy: Policy | None) -> list[int]:
        """Return the figures at the end of a second, in the order of ``points.FINE``; clears those of one second."""
        severity, why, state = self._stands or ("ok", "", "ok")
        outcome = self.outcome if self.outcome is not None and self.outcome.age_ms(now_ms) <= LATELY_MS else None
        sample, facts = self.sample, self.facts
        figures: dict[str, int | None] = {
            **self._use,
            **self._counts,
            "present": 1,
            "state": STATES.index(state),
            "severity": SEVERITIES.index(severity),
            "age_ms": None if self.metric is None else uncovered_ms(self.metric, self.covered_ms, now_ms),
            "decided_ms": self._decided_ms,
            "ceiling_cpu_milli": self._ceiling_milli(policy),
            "why": number_of(why),
            "policy": number_of("" if sample is None else sample.body.policy_version),
            "boot": number_of("" if sample is None else sample.body.boot_id),
            "origin": 0 if outcome is None or outcome.body.origin == "agent" else ORIGINS.index(outcome.body.origin),
        }
        if facts is not None:
            figures |= {"capacity_cpu_milli": facts.capacity.cpu_milli, "capacity_mem_bytes": facts.capacity.mem_bytes}
        if (offered := self.allocatable) is not None:
            figures |= {"sold_cpu_milli": offered.body.batch_cpu_milli, "sold_mem_bytes": offered.body.batch_mem_bytes}
        if self.score is not None:
            asked = self.score.body.batch_asked
            figures |= {"requested_cpu_milli": asked.cpu_milli, "requested_mem_bytes": asked.mem_bytes}
        if sample is not None:
            figures["seq"] = sample.body.seq
        for name in ("sample", "metric", "allocatable", "outcome", "score"):
            if (one := getattr(self, name)) is not None:
                figures[f"{name}_offset"] = one.place.offset
        if COMMAND.name in self.latest:
            figures["command_offset"] = self.latest[COMMAND.name].offset
        self.forget_second()
        return [NONE if (figure := figures.get(name)) is None else figure for name in FINE]

    def forget_second(self) -> None:
        """Clear the figures of one second."""
        self._use, self._decided_ms = {}, None
        self._counts = dict.fromkeys(COUNTS, 0)

    def log(self, policy: Logged[Policy] | None, policy_refused: str) -> NodeLog:
        """Return the node's latest records, as ``slacktide explain node`` reads them."""
        return NodeLog(
            node=self.name, policy=policy, policy_refused=policy_refused, inventory=self.inventory,
            samples=[one for one in (self.keyframe, self.unanswered, self.sample) if one is not None],
            metric=self.metric, allocatable=self.allocatable, score=self.score,
            refused=() if self.refused is None else (self.refused,),
            commands=[one for one in (self.setting, self.command) if one is not None],
            outcomes=[*self.done, *([] if self.outcome is None else [self.outcome])],
            covered={(METRIC.name, self.name): self.covered_ms},
        )  # fmt: skip

    def _ceiling_milli(self, policy: Policy | None) -> int:
        """Return the ceiling, cached by the identity of facts and policy: these are replaced and never changed."""
        facts = self.facts
        if policy is None or facts is None:
            return NONE
        if self._ceiling[0] is not policy or self._ceiling[1] is not facts:
            threshold = resource_threshold_on(policy, facts)
            ceiling = (facts.capacity.cpu_milli or 0) * threshold.cpu_suppress_threshold_pct // 100
            self._ceiling = (
                policy,
                facts,
                ceiling if threshold.enable and threshold.cpu_suppress_signal != "pressure" else NONE,
            )
        return self._ceiling[2]

    def keep(self, record: Record, standing: object, span_ms: int, *, always: bool = False) -> None:
        """Keep a record and those that explain it: the newest sample, command and outcome, for allocatable the window.

        One record per topic is kept in each span. After a change of ``standing``, such as the bound of its arithmetic,
        it is one in a tenth of the span.
        """
        topic, at_ms = record.topic, record.timestamp_ms
        last_ms = self._kept.get(topic, (-span_ms, NONE))[0]
        changed = self._standing.get(topic) != standing
        self._standing[topic] = standing
        soon_ms = span_ms // 10 or 1
        due = at_ms // span_ms != last_ms // span_ms or (changed and at_ms // soon_ms != last_ms // soon_ms)
        if due or always:
            around = [self.latest[one] for one in _EXPLAINING if one in self.latest and one != topic]
            for one in (*around, record):
                if self._kept.get(one.topic, (0, NONE))[1] != one.offset:
                    self._kept[one.topic] = at_ms, one.offset
                    self.kept.append(one)

    def keep_what_holds(self) -> None:
        """Keep the newest record of each topic, and the pods."""
        first = sorted({id(one): one for one in self.carriers.values()}.values(), key=lambda one: one.timestamp_ms)
        rest = [one for one in self.latest.values() if not any(one is carrier for carrier in first)]
        self.kept = [*first, *sorted(rest, key=lambda one: one.timestamp_ms)]
        self._kept |= {one.topic: (one.timestamp_ms, one.offset) for one in self.kept}


def limit_milli(limits: Limits | None, facts: NodeFacts | None) -> int | None:
    """Return a limit by its quota or CPU set, rounded down as in explain."""
    limits = measured(limits)
    if limits is None:
        return None
    allowed = allowed_milli(limits, None if facts is None else facts.capacity.cpu_milli)
    return UNLIMITED if allowed is None else allowed
