"""What is in force on a node: facts, pods and policy, from files, Kafka and the kubelet. Reports misplaced pods."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from slacktide.agents.files import Watched
from slacktide.agents.http import Access, HttpError, Https
from slacktide.agents.ignored import REASON, Ignored, once_of
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.state import KeptInventory, State
from slacktide.schemas import policy as policies
from slacktide.schemas.errors import BadMessageError, SlacktideError, TextError
from slacktide.schemas.inventory import NodeFacts, Pod, unended
from slacktide.schemas.kubernetes import Described, Listed, described, listed
from slacktide.schemas.qos import OVERRULED_ADVICE, VAIN_ADVICE, as_held, overruling, vain_claim
from slacktide.schemas.text import answer_of
from slacktide.streams.records import Record, place_of


class Description(Protocol):
    """The last valid facts and pods. A watched file is one."""

    value: Described
    refused: str
    """Why the current source is refused; "": it is in force."""

    @property
    def unlisted(self) -> str:
        """Why the pod list is stale; "": it is current."""

    @property
    def changed(self) -> bool:
        """Whether to poll. Cheap."""

    def poll(self) -> bool:
        """Read again; may block. Return whether ``value`` or ``refused`` changed."""


class Lister(Protocol):
    """Lists a node's pods."""

    where: str

    @property
    def refused(self) -> str:
        """Why the configuration is refused; "": it is in force."""

    def look(self) -> Listed:
        """List the pods; may block. Raises SlacktideError if they cannot be listed."""


class PublishedNode:
    """A node whose facts the bridge publishes to Kafka. ``other``: source of the pods, and of the first facts."""

    def __init__(self, other: Description, *, last: NodeFacts | None) -> None:
        self._other = other
        self.facts = last
        """The facts from Kafka; None: none yet."""
        self.value = self._joined()
        self.refused = other.refused

    @property
    def changed(self) -> bool:
        """Whether to poll."""
        return self._other.changed

    @property
    def unlisted(self) -> str:
        """Why the pod list is stale."""
        return self._other.unlisted

    def poll(self) -> bool:
        """List the pods again."""
        changed = self._other.poll()
        self.value, self.refused = self._joined(), self._other.refused
        return changed

    def take(self, facts: NodeFacts) -> bool:
        """Use facts from Kafka. Return whether they are new."""
        if facts == self.facts:
            return False
        self.facts = facts
        self.value = self._joined()
        return True

    def _joined(self) -> Described:
        other = self._other.value
        return other if self.facts is None else replace(other, facts=self.facts)


class Joined:
    """Facts from a file and pods from a lister. The last valid value of each stays in force.

    Raises:
        SlacktideError: the pods cannot be listed, and no earlier list is known.
    """

    changed = True

    def __init__(self, file: Watched[Described], lister: Lister, *, last: Sequence[Pod] | None) -> None:
        self._file = file
        self._lister = lister
        self._listed = Listed(pods=list(last or ()), notes=())
        self.unlisted = ""
        try:
            self._listed = lister.look()
        except SlacktideError as exc:
            if last is None:
                raise
            self.unlisted = self._text_of(exc)
        self.value = self._joined()
        self.refused = self._refused()

    def poll(self) -> bool:
        """Poll both."""
        self._file.poll()
        try:
            self._listed, self.unlisted = self._lister.look(), ""
        except SlacktideError as exc:
            self.unlisted = self._text_of(exc)
        before = self.value, self.refused
        self.value, self.refused = self._joined(), self._refused()
        return (self.value, self.refused) != before

    def _joined(self) -> Described:
        file, listed = self._file.value, self._listed
        ignored = f"{self._file.path}: its pods are ignored, because {self._lister.where} lists the pods"
        notes = (*file.notes, *([ignored] if file.pods else ()), *listed.notes)
        return Described(facts=file.facts, pods=listed.pods, notes=notes)

    def _refused(self) -> str:
        return "\n".join(filter(None, (self._file.refused, self._lister.refused, self.unlisted)))

    def _text_of(self, exc: SlacktideError) -> str:
        return f"{exc}\nthe last valid list, of {len(self._listed.pods)} pods, stays in force"


log = logging.getLogger(__name__)


def node_description(
    file: Path,
    node: str,
    kept: KeptInventory | None,
    *,
    machine: Callable[[], Mapping[str, Any]] | None,
    lister: Lister | None,
    from_kafka: bool,
) -> Description:
    """Return the node and its pods; if they cannot be read, as ``kept`` by an earlier run.

    Raises:
        SlacktideError: neither node nor pods are known.
    """
    last = None if kept is None else Described(facts=kept.facts, pods=kept.pods, notes=())
    watched = Watched(file, lambda document, name: described(document, name, node, machine=machine), last=last)
    description: Description = watched
    if lister is not None:
        description = Joined(watched, lister, last=None if kept is None else kept.pods)
    if not from_kafka:
        return description
    return PublishedNode(description, last=kept.facts if kept is not None and kept.from_kafka else None)


class Notes(Protocol):
    """Creates Events on pods in the background."""

    def note(self, pod: Pod, *, node: str, reason: str, text: str, at_ms: int, once: str = "") -> None:
        """Create a warning Event on a pod, one per reason and ``once``; retry until the API server is back."""


class PodFindings:
    """Reports pods that are not held as they claim, and fields that are ignored, once per run of the agent.

    The API server keeps one Event per pod and finding.
    """

    def __init__(self, node: str, notes: Notes | None, wall_ms: Callable[[], int]) -> None:
        self._node = node
        self._notes = notes
        self._wall_ms = wall_ms
        self._refused = ""
        self._noted: frozenset[str] = frozenset()
        self._reported: frozenset[str] = frozenset()
        self._ignored = Ignored("pods")

    def report(self, description: Description) -> None:
        """Log what is new about an inventory, and check its pods."""
        refused, known = description.refused, description.value
        if refused and refused != self._refused:
            log.error("%s", refused)
        for note in known.notes:
            if note not in self._noted:
                log.warning("%s", note)
        self._refused, self._noted = refused, frozenset(known.notes)
        self.look(known.pods)
        if not refused:
            log.info("inventory in force", extra={"node": known.facts.name, "pods": len(known.pods)})

    def look(self, pods: Sequence[Pod]) -> None:
        """Check the current pods."""
        held = (as_held(pod) for pod in unended(pods))
        misplaced = {pod.uid: pod for pod in held if pod.unheld or pod.overruled}
        for uid in misplaced.keys() - self._reported:
            pod = misplaced[uid]
            reason, text = (
                ("NotHeldBack", f"{vain_claim(pod)}; {VAIN_ADVICE}")
                if pod.unheld
                else ("ClassOverruled", f"{overruling(pod)}; {OVERRULED_ADVICE}")
            )
            log.warning("pod %s/%s %s", pod.namespace, pod.name, text)
            self._note(pod, reason, text)
        self._reported = frozenset(misplaced)
        for pod in unended(pods):
            for note in self._ignored.new(pod.uid, pod.ignored):  # in the log with all notes of the inventory
                self._note(pod, REASON, note, once_of(note))

    def _note(self, pod: Pod, reason: str, text: str, once: str = "") -> None:
        if self._notes is not None:
            self._notes.note(pod, node=self._node, reason=reason, text=text, at_ms=self._wall_ms(), once=once)


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
        try:
            reply = self._server.ask(_PATH)
        except HttpError as exc:
            raise KubeletError(f"{self.where}: {exc}") from exc
        if reply.status != 200:
            self.close()
            advice = _ADVICE.get(reply.status, "check that this is a kubelet")
            raise KubeletError(f"{self.where}: {reply.status} {reply.words}: {advice}")
        try:
            answer: _PodList = answer_of(reply.body, _PodList, where=self.where)
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


class Policies:
    """One agent's view of the policy topic."""

    def __init__(self, state: State, metrics: AgentMetrics) -> None:
        self._state = state
        self._metrics = metrics
        self._in_force = policies.InForce(state.policy() or policies.DEFAULT)

    @property
    def policy(self) -> policies.Policy:
        """The policy in force: the last valid one of the highest epoch."""
        return self._in_force.policy

    @property
    def refused(self) -> str:
        """Why the newest record is refused; "": it is in force."""
        return self._in_force.refused

    @property
    def diverges(self) -> str:
        """Why this agent may use another policy than the others; "": it does not."""
        return self._in_force.refused if self._in_force.by_epoch else ""

    def read(self, records: Iterable[Record], to_dead_letter: Callable[[Record, str], None]) -> bool:
        """Read records of the topic, in order. Return whether the version in force changed."""
        before, refused = self.policy, self.refused
        for record in records:
            try:
                taken = self._in_force.take(record.key, record.value, place_of(record))
            except BadMessageError as exc:
                to_dead_letter(record, str(exc))
                continue
            if taken:
                self._metrics.policy_published(self.policy.published_ms)
        self._metrics.policy_refused(refused=bool(self.refused))
        if self.refused and self.refused != refused:
            log.error("a policy is rejected", extra={"why": self.refused})
        self._state.keep_policy(self.policy)
        if self.policy.version == before.version:
            return False
        log.info("policy in force", extra={"version": self.policy.version, "before": before.version})
        return True
