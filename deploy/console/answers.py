"""Builds the pages' data from the history: columns for charts, rows for tables.

Times are UTC epoch milliseconds, units are the suffix of a name, and unknown values are null.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from slacktide.deploy.cli.policy import value_text
from slacktide.deploy.cli.records import dead_letter_row, json_line
from slacktide.deploy.console.arithmetic import explained, standing
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NONE, UNLIMITED, Decision, NodeRow
from slacktide.deploy.console.services import detailed_service, listed_services, service_of
from slacktide.deploy.console.workloads import detailed, job_of, listed, page_of
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.policy import NodeStrategy, Policy
from slacktide.schemas.policy.configmap import CONFIGS, key_of, path_of
from slacktide.schemas.policy.keys import leaves
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.topics import JOB_STATUS, SERVICE_PROFILE
from slacktide.streams.analysis.explain.evidence import place_of
from slacktide.streams.analysis.explain.figures import figures
from slacktide.streams.records import Record

POINTS = 600
"""Points of a chart: about one per pixel."""
SPAN_MS, SPAN_MS_MAX = 15 * 60_000, 8 * 24 * 3_600_000
DEAD_LETTERS_MS = 24 * 3_600_000
_TRACEPARENT_PARTS = 4
DIGITS_MAX = 15
"""More than a time in milliseconds has."""
_POINT_MS_MAX = 60_000
"""The length of a point at the coarsest resolution."""
COMPARED_MAX = 100
"""Limit for nodes compared with the shadow policy."""
STEP = ("answer", "rule", "result", "origin", "bound", "reason")
LAG = ("worker", "topic", "partition", "lag")
CHARTED = (
    "ls_cpu_milli", "be_cpu_milli", "system_cpu_milli", "used_cpu_milli", "used_mem_bytes", "be_mem_bytes",
    "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli", "limit_cpu_milli", "limit_cpu_milli.min",
    "ceiling_cpu_milli", "capacity_cpu_milli", "capacity_mem_bytes", "cpu_some", "mem_some", "io_some",
    "ls_stall_permille", "be_throttled_permille", "gained_cpu_milli", "decided_ms", "cuts", "raises", "bursts",
    "evictions", "guarded",
)  # fmt: skip
ROW = (
    "node", "state", "severity", "why", "age_ms", "capacity_cpu_milli", "used_cpu_milli", "ls_cpu_milli",
    "be_cpu_milli", "sold_cpu_milli", "requested_cpu_milli", "gained_cpu_milli", "ls_stall_permille",
    "limit_cpu_milli", "capacity_mem_bytes", "used_mem_bytes", "sold_mem_bytes", "evictions",
)  # fmt: skip
SUMS = (
    "capacity_cpu_milli", "used_cpu_milli", "ls_cpu_milli", "be_cpu_milli", "sold_cpu_milli", "requested_cpu_milli",
    "gained_cpu_milli", "capacity_mem_bytes", "used_mem_bytes", "sold_mem_bytes",
)  # fmt: skip


class NotKeptError(SlacktideError):
    """The history does not have the requested data."""


class BadQuestionError(SlacktideError):
    """The request lacks a parameter, or is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A page's request."""

    at_ms: int
    """The displayed moment."""
    given: Mapping[str, str]
    records: Sequence[Record] = ()
    """The node's records from ``History.elsewhere``."""


def answer(history: History, path: str, question: Question) -> dict[str, Any]:
    """Handle a request. Raises BadQuestionError if it is invalid, NotKeptError if the history lacks the data."""
    found = _ANSWERS.get(path)
    if found is None:
        raise BadQuestionError(f"unknown query {path}; accepted: {', '.join(_ANSWERS)}")
    return {"at_ms": question.at_ms, **found(history, question)}


def _cluster(history: History, question: Question) -> dict[str, Any]:
    rows = history.cluster_at(question.at_ms)
    known = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in SUMS}
    return {
        "columns": {name: [_limit(getattr(row, name)) for row in rows] for name in ROW},
        "sums": {name: sum(values) if values else None for name, values in known.items()},
        "standing": standing(history, question.at_ms, rows),
        "problems": history.problems_at(question.at_ms, rows),
        "gaps": history.bounds().gaps,
    }


def _limit(value: Any) -> Any:
    """Convert "unlimited" to null, as in records."""
    return None if value == UNLIMITED else value


def _node(history: History, question: Question) -> dict[str, Any]:
    if not question.given.get("node"):
        return {"nodes": history.nodes()}
    name, at_ms = question.given["node"], question.at_ms
    try:
        series = history.node_series(name, at_ms - _span_ms(question), at_ms, POINTS)
    except KeyError as exc:
        raise NotKeptError(f"the history does not contain node {name}") from exc
    row = history.row_at(name, at_ms)
    decision = history.decisions.at(name, history.end_ms(name, at_ms), question.records)
    columns = {
        name: [None if value in {NONE, UNLIMITED} else value for value in column]
        for name in CHARTED
        if (column := series.columns.get(name)) is not None
    }
    return {
        "row": None if row is None else {name: _limit(getattr(row, name)) for name in NodeRow.__slots__},
        "unlimited": row is not None and row.limit_cpu_milli == UNLIMITED,
        "series": {"step_ms": series.step_ms, "t_ms": series.at_ms.tolist(), "by": columns},
        **({"figures": [], "findings": [], "steps": [], "cpus": []} if decision is None else _explained(decision)),
    }


def _span_ms(question: Question) -> int:
    text = question.given.get("span", str(SPAN_MS))
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise BadQuestionError(f"span {text[:DIGITS_MAX]!r} is not a number of milliseconds")
    return min(max(int(text), 1_000), SPAN_MS_MAX)


def _explained(decision: Decision) -> dict[str, Any]:
    """Return what ``slacktide explain node`` shows."""
    explanation = decision.explanation
    traces = {str(place_of(one)): trace_of(one) for one in reversed(decision.records)}
    return {
        "figures": explanation.figures,
        "findings": explanation.findings,
        "cpus": explanation.cpus,
        "kept_ms": explanation.asked_ms,
        "policy_version": explanation.policy_version,
        "steps": [
            {
                "name": one.name,
                "place": (place := str(one.place)),
                "age_ms": one.age_ms,
                "traces": traces.get(place, ""),
            }
            | {name: getattr(one.record, name, None) for name in STEP}
            for one in explanation.steps
        ],
    }


def trace_of(record: Record) -> str:
    """Return the record's trace id; "": none."""
    parent = next((value for name, value in record.headers if name == "traceparent"), b"")
    parts = parent.decode(errors="replace").split("-")
    return parts[1] if len(parts) == _TRACEPARENT_PARTS else ""


def _explain(history: History, question: Question) -> dict[str, Any]:
    given = dict(question.given)
    if "span" in given:
        given["span"] = str(_span_ms(question))
    lines = explained(history, question.at_ms, given, question.records)
    if lines is None:
        raise NotKeptError("the history does not contain the arithmetic of that time")
    return {"lines": lines}


def _pod(history: History, question: Question) -> dict[str, Any]:
    if not (pod := question.given.get("pod", "")):
        return {"pods": history.pods.names(question.at_ms)}
    return page_of(history, pod, question.at_ms, question.records)


def _records(history: History, question: Question) -> dict[str, Any]:
    at_ms, of, node = question.at_ms, question.given.get("of", ""), question.given.get("node", "")
    decision = history.decisions.at(node, history.end_ms(node, at_ms), question.records) if of and node else None
    near = question.records if decision is None else [*decision.records, *question.records]
    trace = [
        {
            "place": str(place_of(one)),
            "at_ms": one.timestamp_ms,
            "trace": trace_of(one),
            "line": json_line(one).decode(),
        }
        for one in history.traces.records(of, node, at_ms, near)
    ]
    letters = [
        {"at_ms": one.timestamp_ms, "place": str(place_of(one))}
        | dict(zip(("from", "key", "reader", "reason"), dead_letter_row(one)[2:], strict=True))
        for one in history.dead_letters(at_ms - DEAD_LETTERS_MS, at_ms)
    ]
    lag = [{name: getattr(one, name) for name in LAG} for one in history.lag_at(at_ms)]
    return {"trace": trace, "topics": history.topics_at(at_ms), "lag": lag, "letters": letters}


def _policy(history: History, question: Question) -> dict[str, Any]:
    found, refused = history.policy_at(question.at_ms)
    if found is None:
        return {"version": ""}
    names = history.nodes()
    compared = (one for name in names if (one := _against_shadow(history, question.at_ms, name)) is not None)
    return {
        "version": found.body.version,
        "place": str(found.place),
        "published_ms": found.body.published_ms,
        "refused": refused,
        "groups": policy_groups(found.body),
        "shadow": list(islice(compared, COMPARED_MAX)),
        "nodes_count": len(names),
    }


def _against_shadow(history: History, at_ms: int, node: str) -> dict[str, Any] | None:
    """Return batch resources under the policy and the shadow policy; None: there is no shadow."""
    if history.decisions.offered_at(node, at_ms + _POINT_MS_MAX, shadow=True) is None:
        return None
    end_ms = history.end_ms(node, at_ms)
    shadow = history.decisions.offered_at(node, end_ms, shadow=True)
    if shadow is None or (live := history.decisions.offered_at(node, end_ms)) is None:
        return None
    both = (("live", live), ("shadow", shadow))
    offered = {which: {one.of: one.published for one in figures(of)} for which, of in both}
    return {"node": node, "version": shadow.policy_version, **offered}


def _jobs(history: History, question: Question) -> dict[str, Any]:
    name, at_ms = question.given.get("job", ""), question.at_ms
    if not name:
        return listed(history, at_ms, question.given.get("filter", ""))
    job = job_of(history, name, at_ms)
    if job is None:
        raise NotKeptError(f"no status of Job {name} at that time has been read from {JOB_STATUS.name}")
    return detailed(job)


def _services(history: History, question: Question) -> dict[str, Any]:
    name, at_ms = question.given.get("service", ""), question.at_ms
    if not name:
        return listed_services(history, at_ms, question.given.get("filter", ""))
    service = service_of(history, name, at_ms)
    if service is None:
        raise NotKeptError(f"no profile of service {name} at that time has been read from {SERVICE_PROFILE.name}")
    return detailed_service(service)


_ANSWERS: Mapping[str, Callable[[History, Question], dict[str, Any]]] = {
    "cluster": _cluster,
    "node": _node,
    "pod": _pod,
    "records": _records,
    "policy": _policy,
    "jobs": _jobs,
    "services": _services,
    "explain": _explain,
}

QUESTIONS = frozenset(_ANSWERS)


def policy_groups(policy: Policy) -> list[dict[str, Any]]:
    """Return each strategy for the cluster, then per node selector: the first match applies to a node."""
    groups = []
    for name in (config.strategy for config in CONFIGS):
        chosen = {field.partition(".")[2] for field in policy.said if field.startswith(f"{name}.")}
        values = dict(leaves(getattr(policy, name)))
        groups.append(_group(name, "", "", {field: (value, field in chosen) for field, value in values.items()}))
        own: list[NodeStrategy[Any]] = getattr(policy, f"node_{name}", [])
        for one in own:
            values = dict(leaves(one.strategy))
            fields = {field: (values.get(field), True) for field in one.said}
            groups.append(_group(name, one.name, selector_text(one.selector), fields))
    return groups


def _group(strategy: str, name: str, nodes: str, values: Mapping[str, tuple[Any, bool]]) -> dict[str, Any]:
    fields = [
        {"field": path_of(strategy, field), "value": value_text(value), "set": is_set}
        for field, (value, is_set) in values.items()
    ]
    return {"config": key_of(strategy), "name": name, "nodes": nodes, "fields": fields}


def selector_text(selector: Selector) -> str:
    """Format a selector in the syntax of ``kubectl -l``."""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for one in selector.match_expressions:
        words = {"In": "in", "NotIn": "notin", "Exists": "", "DoesNotExist": "!"}[one.operator]
        parts.append(f"{one.key} {words} ({', '.join(one.values)})" if one.values else f"{words}{one.key}")
    return ",".join(parts) or "all"
