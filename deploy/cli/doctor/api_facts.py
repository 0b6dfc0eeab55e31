"""Queries the API server as an agent would: its version, and the agent's rights. Nothing is created."""

from __future__ import annotations

import base64
import binascii
import re

import msgspec

from slacktide.agents.http import Access, HttpError, token_of
from slacktide.agents.node.apiserver import ApiServer
from slacktide.deploy.cli.doctor.facts import API_RIGHTS, ApiFacts, ApiRight, NoApi, TokenFacts

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MINOR = re.compile(r"v?1\.(\d+)")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class _Named(msgspec.Struct):
    name: str = ""


class _Claim(msgspec.Struct):
    namespace: str = ""
    pod: _Named | None = None
    node: _Named | None = None


class _Claims(msgspec.Struct, rename={"kubernetes": "kubernetes.io"}):
    kubernetes: _Claim = msgspec.field(default_factory=_Claim)


class _Allowed(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Allowed


def gather(access: Access) -> ApiFacts | NoApi:
    """Query an API server.

    Raises:
        SlacktideError: the address is invalid.
    """
    server = ApiServer(access)
    try:
        version = _version(server)
        rights = {right: _allowed(server, right) for right in API_RIGHTS}
        token = token_facts("" if access.token is None else token_of(access.token))
    except (HttpError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
        return NoApi(url=server.url, trouble=str(exc))
    finally:
        server.close()
    minor = _MINOR.match(version)
    return ApiFacts(
        url=server.url, version=version, minor=None if minor is None else int(minor[1]), token=token, rights=rights
    )


def token_facts(token: str) -> TokenFacts:
    """Return the claims of a ServiceAccount's token; only the API server can confirm them."""
    try:
        body = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_Claims)
    except (IndexError, binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return TokenFacts(pod="", node="")
    bound = claims.kubernetes
    return TokenFacts(
        pod=f"{bound.namespace}/{bound.pod.name}" if bound.pod else "", node=bound.node.name if bound.node else ""
    )


def _version(server: ApiServer) -> str:
    answer = server.get("/version")
    if answer.status != 200:
        raise HttpError(f"{answer.status} {answer.words}")
    return msgspec.json.decode(answer.body, type=_Version).git_version


def _allowed(server: ApiServer, right: ApiRight) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
    }
    answer = server.post(_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    if answer.status not in {200, 201}:
        raise HttpError(f"{answer.status} {answer.words}")
    return msgspec.json.decode(answer.body, type=_Review).status.allowed
