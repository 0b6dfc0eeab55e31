"""Facts and pods of a node: from a file, or facts from a file and pods from a lister. Reports misplaced pods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from slacktide.agents.files import Watched
from slacktide.agents.ignored import REASON, Ignored, once_of
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import NodeFacts, Pod, unended
from slacktide.schemas.kubernetes import Described, Listed
from slacktide.schemas.qos import OVERRULED_ADVICE, VAIN_ADVICE, as_held, overruling, vain_claim


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
        self._facts = last
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

    @property
    def facts(self) -> NodeFacts | None:
        """The facts from Kafka; None: none yet."""
        return self._facts

    def poll(self) -> bool:
        """List the pods again."""
        changed = self._other.poll()
        self.value, self.refused = self._joined(), self._other.refused
        return changed

    def take(self, facts: NodeFacts) -> bool:
        """Use facts from Kafka. Return whether they are new."""
        if facts == self._facts:
            return False
        self._facts = facts
        self.value = self._joined()
        return True

    def _joined(self) -> Described:
        other = self._other.value
        return other if self._facts is None else replace(other, facts=self._facts)


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
        unread = (
            (f"{self._file.path}: its pods are ignored, because {self._lister.where} lists the pods",)
            if file.pods
            else ()
        )
        return Described(facts=file.facts, pods=listed.pods, notes=(*file.notes, *unread, *listed.notes))

    def _refused(self) -> str:
        return "\n".join(filter(None, (self._file.refused, self._lister.refused, self.unlisted)))

    def _text_of(self, exc: SlacktideError) -> str:
        return f"{exc}\nthe last valid list, of {len(self._listed.pods)} pods, stays in force"


log = logging.getLogger(__name__)


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
        self._reported: frozenset[str] = frozenset()
        self._ignored = Ignored("pods")

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
