"""The agent's small client of the API server. Blocking: run it in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from slacktide.agents.http import Access, Answer, Https
from slacktide.agents.listening import bracketed
from slacktide.schemas.errors import SlacktideError

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PORT = 443
_UNTRUSTED = "give the CA of the API server with --api-ca"


class ApiServerError(SlacktideError):
    """The address of the API server is invalid."""


def in_cluster(environment: Mapping[str, str], account: Path = ACCOUNT) -> Access | None:
    """Return the access of a container in a cluster; None: not in a cluster, or no token."""
    host, token = environment.get(HOST), account / "token"
    if not host or not token.is_file():
        return None
    return Access(url=f"https://{bracketed(host)}:{environment.get(PORT) or _PORT}", token=token, ca=account / "ca.crt")


class ApiServer:
    """Client of one API server. Requests raise HttpError if there is no complete response.

    Raises:
        ApiServerError: the address is invalid.
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
        """GET a path."""
        return self._server.ask(path)

    def watch(self, path: str, *, accept: str, silence_s: float) -> Iterator[bytes]:
        """Watch a path: one line per change, until the server ends it. Silence for ``silence_s`` raises HttpError."""
        return self._server.watch(path, accept=accept, silence_s=silence_s)

    def post(self, path: str, body: object) -> Answer:
        """POST to a path. The request may be sent twice, so it must be idempotent.

        Raises:
            HttpError: no complete response; ``UnreachedError``: the server has certainly not received the request.
        """
        return self._server.ask(path, method="POST", body=msgspec.json.encode(body))

    def close(self) -> None:
        """Close the connection."""
        self._server.close()
