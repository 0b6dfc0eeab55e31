"""How severe each fact is, for every view: ``nodes``, ``explain``, the console and the alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Severity = Literal["ok", "note", "warning", "problem"]
"""``problem``: Slacktide does not do its work there, or a pod cannot run. ``warning``: it works, but not as it should.
``note``: less than one could expect, by the policy or the load. ``ok``: information."""

_OF_NODES: Final[Mapping[Severity, Mapping[str, str]]] = {
    "problem": {
        "agent.silent": "silent: no sample arrives",
        "agent.two": "frozen: two agents send samples of it",
        "agent.unproven": "its samples are rejected: their signature is not valid",
        "batch.absent": "no batch resources are published",
        "batch.none": "no batch resources are published",
        "batch.stale": "its batch resources are reduced to what running pods requested",
        "batch.unreadable": "no batch resources are offered: an annotation cannot be read",
        "limit.failed": "the limit of best-effort pods could not be set",
        "node.unknown": "it has no inventory record",
        "pods.unheld": "pods that claim to be best-effort are not limited",
        "policy.absent": "there is no policy",
        "policy.other": "its agent uses another policy",
        "policy.refused": "the newest policy was rejected",
        "window.absent": "no figures are published",
        "window.frozen": "frozen: no worker has published its figures for 15 s",
        "window.stale": "silent: workers have marked it stale",
        "worker.silent": "no worker answers its samples",
    },
    "warning": {
        "agent.forged": "another writer uses its name",
        "agent.missing": "its agent cannot read a source",
        "batch.degraded": "no recent measurement for longer than the policy allows",
        "command.not-carried-out": "a command was not carried out",
        "command.skipped": "workers cannot decide for it",
        "command.unheard": "a command has no outcome",
        "figures.stand": "silent, but not marked stale yet",
        "guard.in-charge": "its guard decides",
        "node.ignored": "a label or an annotation of it cannot be read",
        "node.no-pressure": "it has no pressure figures",
        "node.suspended": "suspended",
        "policy.older-figures": "its figures were computed by an older policy",
    },
    "note": {
        "batch.capped": "batch resources are limited by their cap",
        "batch.disabled": "batch resources are disabled by the policy",
        "batch.dry-run": "dry run: batch resources are not written to the Node",
        "batch.exhausted": "no batch resources are left",
        "batch.floored": "batch resources are what running pods requested",
        "batch.held": "best-effort pods may use less CPU than they requested",
        "batch.third-party": "other schedulers hold batch resources",
        "command.dry-run": "dry run: a command was not carried out",
        "free.exhausted": "no free resources are left",
        "limit.dry-run": "dry run: limits are not applied",
        "tier.critical": "critical pods without requests are not limited",
        "window.partial": "its window is not full yet",
    },
    "ok": {
        "cpus.exclusive": "pods have exclusive CPUs",
        "mid.predicted": "mid resources are predicted",
        "node.pressure": "pressure is measured",
        "tier.mid": "mid pods have their own limit",
    },
}
"""Facts about nodes, with a short text that does not change from second to second."""
_OF_OTHERS: Final[Mapping[Severity, str]] = {
    "problem": "evicted.often figures.above-capacity figures.frozen job.failed lint.class lint.native lint.overruled "
    "lint.unheld memory.short pending.all-passed-over pending.cordoned pending.no-nodes pending.refused "
    "pending.scheduler pending.selector pending.short pending.too-high pending.unserved pod.missed pod.quota",
    "warning": "descheduling.chosen descheduling.silent descheduling.stopped evicted eviction.notice evictions "
    "evictions.waiting governor.absent history.missing job.backoff-near job.evicted job.failed-indexes job.ignored "
    "letters.new "
    "lint.band lint.bare lint.equal lint.limits lint.over lint.requests lint.service lint.stateful log.short "
    "pending.passed-over pod.held pod.ignored worker.lags",
    "note": "descheduling.dry-run descheduling.over eviction.no-credit job.failures job.unseen lint.idle "
    "lint.no-priority pending.condition pending.fits-requests pending.not-judged pod.unlisted pod.unmeasured",
    "ok": "descheduling.stays evicted.never pending.fits pod.forecast pod.limit",
}
"""Facts about pods, Jobs, workers, the policy and the console."""
BRIEF: Final[Mapping[str, str]] = {name: text for some in _OF_NODES.values() for name, text in some.items()}
_SEVERITY: Final[Mapping[str, Severity]] = {
    **{name: severity for severity, some in _OF_NODES.items() for name in some},
    **{name: severity for severity, names in _OF_OTHERS.items() for name in names.split()},
}
FACTS: Final = frozenset(_SEVERITY)
WORST_FIRST: Final[tuple[Severity, ...]] = ("problem", "warning", "note", "ok")
_ALERTS: Final[Mapping[Severity, tuple[str, str]]] = {
    "problem": ("critical", "warning"),
    "warning": ("warning", "info"),
    "note": ("info", "info"),
}


def severity_of(fact: str) -> Severity:
    """Return how severe a fact is; a fact that the table lacks is a defect."""
    return _SEVERITY[fact]


def alert_severity(fact: str, *, some_nodes: bool) -> str:
    """Return the severity of an alert on a fact: one level less if it is about some nodes, and the others work."""
    return _ALERTS[severity_of(fact)][some_nodes]
