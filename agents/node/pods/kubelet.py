"""The one door to the kubelet: the pods of its node."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from slacktide.agents.http import TIMEOUT_S, Answer, HttpError, get
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes import Listed, listed

_PATH = "/pods"
_PORT = 10250
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ADVICE = {
    401: "does it know this token (authentication.webhook.enabled, a service account of its cluster) "
    "or client certificate (authentication.x509.clientCAFile)?",
    403: "this takes the right to get nodes/pods (ClusterRole: resources [nodes/pods], verbs [get]); "
    "before Kubernetes 1.33 the kubelet asks for nodes/proxy",
}


class KubeletError(SlacktideError):
    """The kubelet is away, or does not say which pods it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a kubelet is reached. Files are read anew for each connection, the token for each request: they rotate."""

    url: str
    """Such as ``https://127.0.0.1:10250``."""
    token: Path | None = None
    ca: Path | None = None
    """None: the machine's own authorities."""
    cert: Path | None = None
    key: Path | None = None
    insecure: bool = False
    """Take whoever answers for the kubelet."""


class _PodList(msgspec.Struct):
    """What the kubelet answers; its pods in no order that stays."""

    kind: str
    items: list[msgspec.Raw] | None = None


class Kubelet:
    """Lists the pods of one kubelet. Blocking: for a thread.

    Args:
        access: how it is reached.
        runs: whether a pod, by uid, still has its group. A kubelet that starts lists nothing for some seconds, and
            one whose pod was deleted by force forgets it at once: what runs stays listed as it was.

    Raises:
        KubeletError: the address is none.

    """

    refused = ""
    """It goes by no file of its own."""

    def __init__(self, access: Access, runs: Callable[[str], bool] = lambda _: False) -> None:
        parts = urlsplit(access.url)
        if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise KubeletError(f"{access.url}: not the address of a kubelet; accepted: https://HOST:{_PORT}")
        self.where = f"{access.url.rstrip('/')}{_PATH}"
        self._access = access
        self._runs = runs
        self._host, self._port = parts.hostname, parts.port or _PORT
        self._connection: HTTPSConnection | None = None
        self._read: dict[bytes, Listed] = {}
        self._pods: dict[str, Pod] = {}

    def look(self) -> Listed:
        """The pods as they are now, by uid; what is said of a pod is read only where it is new.

        Raises:
            KubeletError: it is away, refuses, or answers with something else.

        """
        items = [bytes(item) for item in self._items()]
        self._read = {item: self._read.get(item) or self._listed(item) for item in items}
        listed = {pod.uid: pod for one in self._read.values() for pod in one.pods}
        running = {uid: pod for uid, pod in self._pods.items() if uid not in listed and self._runs(uid)}
        self._pods = dict(sorted((listed | running).items()))
        notes = sorted(note for one in self._read.values() for note in one.notes)
        return Listed(pods=list(self._pods.values()), notes=tuple(notes))

    def close(self) -> None:
        """Hang up. Whoever asks again calls anew, with files as they are then: what was refused may be replaced."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _items(self) -> list[msgspec.Raw]:
        body = self._body()
        try:
            answer = msgspec.json.decode(body, type=_PodList)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise KubeletError(f"{self.where}: not a PodList: {exc}") from exc
        if answer.kind != "PodList":
            raise KubeletError(f"{self.where}: a {answer.kind}, and not a PodList")
        return answer.items or []

    def _listed(self, item: bytes) -> Listed:
        try:
            return listed(msgspec.json.decode(item), self.where)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            return Listed(pods=[], notes=(f"{self.where}: a pod is not JSON: {exc}",))

    def _body(self) -> bytes:
        try:
            answer = self._ask()
        except (HttpError, OSError) as exc:
            self.close()
            raise KubeletError(f"{self.where}: {_said(exc)}") from exc
        if answer.status != 200:
            self.close()
            advice = _ADVICE.get(answer.status, "is this a kubelet?")
            raise KubeletError(f"{self.where}: {answer.status} {answer.words}: {advice}")
        return answer.body

    def _ask(self) -> Answer:
        headers = {"Accept": "application/json"}
        if self._access.token is not None:
            headers["Authorization"] = f"Bearer {_token(self._access.token)}"
        if self._connection is None:
            self._connection = HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=_trust(self._access))
        return get(self._connection, _PATH, headers)


def _token(file: Path) -> str:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise HttpError(f"the token {file} cannot be read: {_said(exc)}") from exc
    if not _TOKEN.fullmatch(text):
        raise HttpError(f"{file} holds no token: one line of text is accepted")
    return text


def _trust(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=access.ca)
        if access.cert is not None:
            context.load_cert_chain(access.cert, access.key)
    except OSError as exc:
        files = ", ".join(str(file) for file in (access.ca, access.cert, access.key) if file is not None)
        raise HttpError(f"{files}: {_said(exc)}; accepted: PEM") from exc
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _said(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {exc.verify_message}; name the host as the certificate does, "
            "give its authority with --kubelet-ca, or --kubelet-insecure"
        )
    if isinstance(exc, OSError):
        return exc.strerror or str(exc)
    return str(exc)
