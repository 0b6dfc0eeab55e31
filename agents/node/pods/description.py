"""What a node is and which pods it has: a file alone, or a file for the node and somebody who lists its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from slacktide.agents.files import Watched
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.kubernetes import Described, Listed


class Description(Protocol):
    """The node and its pods as they were last good. A watched file is one."""

    value: Described
    refused: str
    """Why the source as it is now is not in force; "" where it is."""

    @property
    def unlisted(self) -> str:
        """Why the list of pods is old: its source does not answer, or not with a list; "": it is not."""

    @property
    def changed(self) -> bool:
        """Whether to poll: cheap to ask."""

    def poll(self) -> bool:
        """Look anew; may block.

        Returns:
            Whether something changed: a new ``value``, or a change of ``refused``.

        """


class Lister(Protocol):
    """Knows a node's pods."""

    where: str
    """Whom one asks, for messages."""

    @property
    def refused(self) -> str:
        """Why the configuration is not in force; "" where it is."""

    def look(self) -> Listed:
        """The pods as they are now; may block.

        Raises:
            SlacktideError: they cannot be listed.

        """


class PublishedNode:
    """A node as Kafka has it, where it does: Kubernetes' view of it. Its pods come from another source.

    Args:
        other: the pods, and the node until Kafka has it.
        last: what an earlier run read from Kafka; None: nothing.

    """

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
        """Why the list of pods is old."""
        return self._other.unlisted

    @property
    def facts(self) -> NodeFacts | None:
        """What Kafka has of the node; None: nothing yet."""
        return self._facts

    def poll(self) -> bool:
        """Look at the pods anew."""
        changed = self._other.poll()
        self.value, self.refused = self._joined(), self._other.refused
        return changed

    def take(self, facts: NodeFacts) -> bool:
        """Take the facts from Kafka over; whether they are new."""
        if facts == self._facts:
            return False
        self._facts = facts
        self.value = self._joined()
        return True

    def _joined(self) -> Described:
        other = self._other.value
        return other if self._facts is None else replace(other, facts=self._facts)


class Joined:
    """The node from a file, its pods from a lister; of each the last good stays in force.

    Args:
        file: the node; pods in it do not count.
        lister: the pods.
        last: pods that were last good, from an earlier run; None: nothing.

    Raises:
        SlacktideError: the pods cannot be listed, and there is nothing good to begin with.

    """

    changed = True
    """Who lists pods is asked each time."""

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
        """Ask both."""
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
        unread = (f"{self._file.path}: its pods are not read: those of {self._lister.where} are",) if file.pods else ()
        return Described(facts=file.facts, pods=listed.pods, notes=(*file.notes, *unread, *listed.notes))

    def _refused(self) -> str:
        return "\n".join(filter(None, (self._file.refused, self._lister.refused, self.unlisted)))

    def _text_of(self, exc: SlacktideError) -> str:
        return f"{exc}\nthe last good list, of {len(self._listed.pods)} pods, stays in force"
