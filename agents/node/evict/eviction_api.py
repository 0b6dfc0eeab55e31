"""Requests, responses and Events of the Eviction API. Pure.

Reading: kubernetes v1.34, pkg/registry/core/pod/storage/eviction.go; staging apiserver, endpoints/filters
(maxinflight, priority-and-fairness) and admission/plugin/webhook/errors.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import msgspec

from slacktide.agents.event import NOTE_MAX, event_body
from slacktide.agents.http import Answer
from slacktide.agents.node.reporter import reason_of
from slacktide.schemas.errors import TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import uid_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.text import answer_of
from slacktide.streams.decisions.evict.node_evict import NOTICE

CONTROLLER = "slacktide.io/agent"
NOTICED = "EvictionNotice"
"""Reason of an Event that announces an eviction. Other Events have the rule as reason."""
Verdict = Literal["evicted", "gone", "kept", "forbidden", "fenced", "overloaded", "away"]
"""Result of an eviction request.

evicted: the pod is terminating. gone: no such pod exists. kept: this pod must stay for now, for example because of a
PodDisruptionBudget. forbidden: this agent may not evict. fenced: the eviction webhook does not answer. overloaded: the
API server is busy. away: the API server cannot be reached, and may or may not have received the request.
"""
WORDS: dict[Verdict, str] = {
    "gone": "the pod no longer exists",
    "kept": "the API server rejects the eviction",
    "forbidden": "the API server does not allow this agent to evict pods",
    "fenced": "the webhook that checks evictions does not answer",
    "overloaded": "the API server is overloaded",
    "away": "the API server cannot be reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """A request to evict a pod."""

    uid: str
    namespace: str
    name: str
    grace_s: int | None
    """Shorter than the pod's own grace period; None: the pod's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of a request."""

    uid: str
    verdict: Verdict
    message: str
    retry_after_s: int | None = None
    reached: bool = True
    """False: the server certainly did not receive the request."""


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    details: _Details | None = None


def path_of(request: EvictionRequest) -> str:
    """Return the path of the eviction subresource."""
    namespace, name = (quote(one, safe="") for one in (request.namespace, request.name))  # a list may contain anything
    return f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"


def body_of(request: EvictionRequest) -> dict[str, object]:
    """Return an Eviction with the uid as precondition, so that a new pod of the same name is safe."""
    options: dict[str, object] = {"preconditions": {"uid": request.uid}}
    if request.grace_s is not None:
        # 0 would delete the pod object before its processes end.
        options["gracePeriodSeconds"] = max(1, request.grace_s)
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": request.name, "namespace": request.namespace},
        "deleteOptions": options,
    }


def reply_of(request: EvictionRequest, answer: Answer) -> Reply:
    """Return what an answer means."""
    status = _Status()
    with suppress(TextError):
        status = answer_of(answer.body, _Status, where="the answer")
    causes = [] if status.details is None else status.details.causes or []
    messages = [status.message, *(cause.message for cause in causes if cause.message not in status.message)]
    message = " ".join(filter(None, messages)) or answer.words
    return Reply(
        uid=request.uid,
        verdict=_verdict(answer.status, status.message, [cause.reason for cause in causes]),
        message=f"{answer.status} {message}",
        retry_after_s=answer.retry_after_s,
    )


def _verdict(status: int, message: str, causes: list[str]) -> Verdict:
    if 200 <= status < 300:
        return "evicted"
    denied = message.startswith("admission webhook") and "denied the request" in message
    if status == 404 or (status == 409 and (denied or "precondition" in message)):
        return "gone"
    if status == 429:
        # Only this cause means that a PodDisruptionBudget protects the pod; otherwise the server is busy.
        return "kept" if "DisruptionBudget" in causes else "overloaded"
    if status < 500:
        # The webhook or several budgets refuse the pod, or RBAC refuses the agent.
        own = denied or "isruption" in message or status not in {401, 403, 422}
        return "kept" if own else "forbidden"
    if "more than one PodDisruptionBudget" in message:
        return "kept"
    return "fenced" if denied or "failed calling webhook" in message else "away"


def event_of(outcome: NodeOutcome) -> dict[str, object]:
    """An Event on the pod: rule, threshold, observed value, command. Its name has the act's id: retries are safe."""
    pod = outcome.pod
    assert pod is not None
    return _event(
        Pod(uid=uid_of(outcome.target), namespace=pod.namespace, name=pod.name),
        node=outcome.node,
        id_=outcome.command_id,
        reason=NOTICED if outcome.bound == NOTICE else outcome.rule,
        action="Evict",
        note=reason_of(outcome),
        by=f"; decided by the {outcome.origin}, command {outcome.command_id}",
        at_ms=outcome.acted_ms,
    )


def warning_of(pod: Pod, *, node: str, reason: str, text: str, at_ms: int, once: str = "") -> dict[str, object]:
    """Return a warning Event on a pod. Each pod gets one per reason and ``once``, as from the central parts."""
    id_ = f"{pod.uid}.{reason.lower()}" + (f".{once}" if once else "")
    return _event(pod, node=node, id_=id_, reason=reason, action="Count", note=text, at_ms=at_ms)


def _event(
    pod: Pod, *, node: str, id_: str, reason: str, action: str, note: str, at_ms: int, by: str = ""
) -> dict[str, object]:
    return event_body(
        {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        end=f".{id_}",
        by=(CONTROLLER, node),
        reason=reason,
        action=action,
        note=note[: NOTE_MAX - len(by)] + by,
        at_ms=at_ms,
    )


def node_event(node: str, uid: str, reason: str, *, at_ms: int) -> dict[str, object]:
    """Return an Event on a Node. ``uid`` "": unknown; ``reason`` "": resumed; ``at_ms`` since the epoch."""
    note = f"limits are lifted and no pod is evicted: {reason}" if reason else "limits and evictions are in force again"
    return event_body(
        {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid or node},
        end=f".slacktide-suspend-{at_ms:x}",
        by=(CONTROLLER, node),
        reason="SlacktideSuspended" if reason else "SlacktideResumed",
        action="Suspend" if reason else "Resume",
        note=note,
        at_ms=at_ms,
        warning=bool(reason),
    )
