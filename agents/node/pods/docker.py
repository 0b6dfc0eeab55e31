"""Docker client: lists running containers with their labels."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import TypeVar

import msgspec

from slacktide.agents.http import TIMEOUT_S, HttpError, Request, ask
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.text import answer_of

T = TypeVar("T")


class DockerError(SlacktideError):
    """Docker cannot be reached, or its answer is unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerContainer:
    """A running container."""

    id: str
    name: str
    labels: dict[str, str]


class _Listed(msgspec.Struct, rename="pascal"):
    id: str
    names: list[str] | None = None
    labels: dict[str, str] | None = None


class _State(msgspec.Struct, rename="pascal"):
    pid: int


class _Inspected(msgspec.Struct, rename="pascal"):
    state: _State


class Docker:
    """Docker's API over its socket. Blocking: run it in a thread. Methods raise DockerError."""

    def __init__(self, path: str) -> None:
        self.path = path

    def running(self) -> list[DockerContainer]:
        """List running containers."""
        listed = self._ask("/containers/json", list[_Listed]) or []
        return [
            DockerContainer(id=one.id, name=(one.names or [one.id])[0].lstrip("/"), labels=one.labels or {})
            for one in listed
        ]

    def pid(self, container_id: str) -> int | None:
        """Return the pid of a container's first process; None: it has ended."""
        inspected = self._ask(f"/containers/{container_id}/json", _Inspected)
        return None if inspected is None or inspected.state.pid <= 0 else inspected.state.pid

    def _ask(self, path: str, kind: type[T]) -> T | None:
        """GET a path; None: not found."""
        connection = _UnixConnection(self.path)
        try:
            answer = ask(connection, Request(path=path, headers={"Accept": "application/json"}))
        except (HttpError, OSError) as exc:
            why = exc.strerror or str(exc) if isinstance(exc, OSError) else str(exc)
            raise DockerError(f"Docker at {self.path}: {why}") from exc
        finally:
            connection.close()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise DockerError(f"Docker at {self.path}: {path}: {answer.status} {answer.words}")
        try:
            found: T = answer_of(answer.body, kind, where=path)
        except TextError as exc:
            raise DockerError(f"Docker at {self.path}: {exc}") from exc
        return found


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
