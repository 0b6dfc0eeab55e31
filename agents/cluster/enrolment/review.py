"""Whether a reviewed token belongs to an agent, and of which node. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from slacktide.schemas.enrolment import AUDIENCE
from slacktide.schemas.errors import SlacktideError

ACCOUNT = "slacktide-agent"
NODE_NAME, POD_NAME, POD_UID = (f"authentication.kubernetes.io/{name}" for name in ("node-name", "pod-name", "pod-uid"))


class NotAnAgentError(SlacktideError):
    """The token is not that of a node's agent."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The token's user."""

    username: str = ""
    extra: dict[str, list[str]] | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The review's result."""

    authenticated: bool = False
    user: User = User()
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True, kw_only=True):
    """A TokenReview with its result."""

    status: Status = Status()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The pod and node that a token is bound to."""

    node: str
    """"": not in the token, as before Kubernetes 1.30; the pod has it."""
    pod: str
    pod_uid: str


def request_of(token: str) -> dict[str, object]:
    """Return the TokenReview to create."""
    spec = {"token": token, "audiences": [AUDIENCE]}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}


def bound_of(review: TokenReview, namespace: str) -> Bound:
    """Return the pod and node of the token. ``namespace`` is that of the agents.

    Raises:
        NotAnAgentError: the token is invalid, not an agent's, or not bound to a pod.
    """
    status = review.status
    if not status.authenticated or AUDIENCE not in (status.audiences or ()):
        raise NotAnAgentError(f"the API server does not accept the token for the audience {AUDIENCE}")
    wanted = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    if status.user.username != wanted:
        raise NotAnAgentError(f"the token belongs to {status.user.username[:253]}; accepted: {wanted}")
    extra = status.user.extra or {}
    node, pod, uid = (_one(extra.get(name)) for name in (NODE_NAME, POD_NAME, POD_UID))
    if not pod or not uid:
        raise NotAnAgentError("the token is not bound to a pod; accepted: a projected ServiceAccount token")
    return Bound(node=node, pod=pod, pod_uid=uid)


def _one(values: list[str] | None) -> str:
    return values[0] if values is not None and len(values) == 1 else ""
