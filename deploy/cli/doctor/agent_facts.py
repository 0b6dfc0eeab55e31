"""Queries the agent that runs here as a probe does, and the API server as an agent does. It creates nothing."""

from __future__ import annotations

import base64
import binascii
import http.client
import os
import re
from pathlib import Path

import msgspec

from slacktide.agents.http import Access, HttpError, token_of
from slacktide.agents.listening import reachable
from slacktide.agents.node.apiserver import ApiServer
from slacktide.deploy.cli.doctor.facts import API_RIGHTS, AgentFacts, ApiFacts, ApiRight, NoApi, TokenFacts
from slacktide.deploy.runtime.endpoints import PROCESS

ANSWER_S = 3.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MINOR = re.compile(r"v?1\.(\d+)")


def gather_agent(host: str, port: int, state_folder: Path, proc_mount: Path) -> AgentFacts | None:
    """Query the endpoints; None: no agent answers, and none locks the state folder. `slacktide up` uses another folder.

    Args:
        host: of its endpoints.
        port: of its endpoints.
        state_folder: locked by a running agent.
        proc_mount: /proc.
    """
    address = reachable(host)
    live = _ask(address, port, "/live")
    if live is None and not is_locked(state_folder / "lock", proc_mount):
        return None
    # Each request to an agent that does not answer waits for the timeout. Send only one.
    asked = {} if live is None else {path: _ask(address, port, path) for path in ("/ready", "/fresh")}
    unanswered = f"no answer within {ANSWER_S:g} s"
    return AgentFacts(
        url=f"http://{address}:{port}",
        not_live=unanswered if live is None else live,
        not_ready=asked.get("/ready") or "",
        not_fresh=asked.get("/fresh") or "",
    )


def is_locked(file: Path, proc_mount: Path) -> bool:
    """Return whether a process holds a lock (flock) on the file. Trying the lock could prevent an agent's start."""
    try:
        held = (proc_mount / "locks").read_text(errors="replace")
        status = file.stat()
    except OSError:
        return False
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(wanted in line.split() and "FLOCK" in line for line in held.splitlines())


def _ask(host: str, port: int, path: str) -> str | None:
    """Return the trouble; "": none; None: no process of Slacktide answers."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.getheader(PROCESS) is None:
            return None
        text = answer.read(4_096).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else text or f"status {answer.status}"


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


def gather_api(access: Access) -> ApiFacts | NoApi:
    """Query an API server. Raises SlacktideError if the address is invalid."""
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
