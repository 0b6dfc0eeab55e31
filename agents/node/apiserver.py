"""The node's one door to the API server: what an agent asks of it, which is little. Blocking: for a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from slacktide.agents.http import Answer
from slacktide.agents.https import Access, Https
from slacktide.agents.listening import bracketed
from slacktide.schemas.errors import SlacktideError

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
"""In the environment of each container of a cluster."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, which is bound to it, and the cluster's authority."""
_PORT = 443
_UNTRUSTED = "give the cluster's authority with --api-ca"


class ApiServerError(SlacktideError):
    """What was given is not the address of an API server."""


def in_cluster(environment: Mapping[str, str], account: Path = ACCOUNT) -> Access | None:
    """How a container of a cluster reaches the API server; None: this is none, or it was given no token."""
    host, token = environment.get(HOST), account / "token"
    if not host or not token.is_file():
        return None
    return Access(url=f"https://{bracketed(host)}:{environment.get(PORT) or _PORT}", token=token, ca=account / "ca.crt")


class ApiServer:
    """Asks one API server.

    Args:
        access: how it is reached.

    Raises:
        ApiServerError: the address is none.

    """

    def __init__(self, access: Access) -> None:
        try:
            self._server = Https(access, port=_PORT, untrusted=_UNTRUSTED)
        except ValueError as exc:
            raise ApiServerError(
                f"{access.url}: not the address of an API server; accepted: https://HOST:PORT"
            ) from exc
        self.url = access.url.rstrip("/")

    def get(self, path: str) -> Answer:
        """Read.

        Raises:
            HttpError: no whole answer.

        """
        return self._server.ask(path)

    def watch(self, path: str, *, accept: str, silence_s: float) -> Iterator[bytes]:
        """Watch: a line for each change, until the server ends it.

        Raises:
            HttpError: it is away, refuses, or falls silent for longer than ``silence_s``.

        """
        return self._server.watch(path, accept=accept, silence_s=silence_s)

    def post(self, path: str, body: object) -> Answer:
        """Create; what may be created must be harmless when it is asked for twice.

        Raises:
            HttpError: no whole answer; ``UnreachedError``: the server has certainly not received the request.

        """
        return self._server.ask(path, method="POST", body=msgspec.json.encode(body))

    def close(self) -> None:
        """Hang up."""
        self._server.close()
