"""Kubelet client: lists the pods of its node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from slacktide.agents.http import Access, HttpError, Https
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes import Listed, listed
from slacktide.schemas.text import answer_of

_PATH = "/pods"
_PORT = 10250
_DIGEST_BYTES = 16
_UNTRUSTED = "use the host name in its certificate, give its CA with --kubelet-ca, or give --kubelet-insecure"
_ADVICE = {
    401: "check that the kubelet accepts this token (authentication.webhook.enabled, a service account of its "
    "cluster) or client certificate (authentication.x509.clientCAFile)",
    403: "requires the right to get nodes/pods (ClusterRole: resources [nodes/pods], verbs [get]); before "
    "Kubernetes 1.33 the kubelet requires nodes/proxy",
}


class KubeletError(SlacktideError):
    """The kubelet cannot be reached, or its answer is unusable."""


class _PodList(msgspec.Struct):
    """The kubelet's answer. The order of its pods varies."""

    kind: str
    items: list[msgspec.Raw] | None = None


class Kubelet:
    """Lists the pods of one kubelet. Blocking: run it in a thread.

    ``runs``: whether a pod, by uid, has its cgroup. Such pods stay listed: a starting kubelet lists none for some
    seconds, and it forgets force-deleted pods at once.

    Raises:
        KubeletError: the address is invalid.
    """

    refused = ""
    """Always "": it has no configuration file."""

    def __init__(self, access: Access, runs: Callable[[str], bool] = lambda _: False) -> None:
        try:
            self._server = Https(access, port=_PORT, untrusted=_UNTRUSTED)
        except ValueError as exc:
            raise KubeletError(f"{access.url}: not the address of a kubelet; accepted: https://HOST:{_PORT}") from exc
        self.where = f"{access.url.rstrip('/')}{_PATH}"
        self._runs = runs
        self._read: dict[bytes, Listed] = {}
        self._pods: dict[str, Pod] = {}

    def look(self) -> Listed:
        """List the pods, sorted by uid. Only changed pods are decoded. Raises KubeletError without a usable answer."""
        items = {hashlib.blake2b(item, digest_size=_DIGEST_BYTES).digest(): item for item in self._items()}
        self._read = {digest: self._read.get(digest) or self._listed(item) for digest, item in items.items()}
        listed = {pod.uid: pod for one in self._read.values() for pod in one.pods}
        running = {uid: pod for uid, pod in self._pods.items() if uid not in listed and self._runs(uid)}
        self._pods = dict(sorted((listed | running).items()))
        notes = sorted(note for one in self._read.values() for note in one.notes)
        return Listed(pods=list(self._pods.values()), notes=tuple(notes))

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        self._server.close()

    def _items(self) -> list[msgspec.Raw]:
        body = self._body()
        try:
            answer: _PodList = answer_of(body, _PodList, where=self.where)
        except TextError as exc:
            raise KubeletError(f"{self.where}: not a PodList: {exc.why}") from exc
        if answer.kind != "PodList":
            raise KubeletError(f"{self.where}: a {answer.kind}, not a PodList")
        return answer.items or []

    def _listed(self, item: msgspec.Raw) -> Listed:
        try:
            return listed(answer_of(item, object, where=self.where), self.where)
        except TextError as exc:
            return Listed(pods=[], notes=(f"{self.where}: a pod is not valid JSON: {exc.why}",))

    def _body(self) -> bytes:
        try:
            answer = self._server.ask(_PATH)
        except HttpError as exc:
            raise KubeletError(f"{self.where}: {exc}") from exc
        if answer.status != 200:
            self.close()
            advice = _ADVICE.get(answer.status, "check that this is a kubelet")
            raise KubeletError(f"{self.where}: {answer.status} {answer.words}: {advice}")
        return answer.body
