"""What a node is and which pods it has: a file alone, or a file for the node and somebody who lists its pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from slacktide.agents.files import Watched
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes import Described, Listed


class Description(Protocol):
    """The node and its pods as they were last good. A watched file is one."""

    value: Described
    refused: str
    """Why what is said now is not in force; "" where it is."""

    @property
    def changed(self) -> bool:
        """Whether to poll: cheap to ask."""

    def poll(self) -> bool:
        """Look anew; may block.

        Returns:
            Whether there is something to tell: a new ``value``, or a change of ``refused``.

        """


class Lister(Protocol):
    """Knows a node's pods."""

    where: str
    """Whom one asks, for messages."""

    @property
    def refused(self) -> str:
        """Why what one was told to go by is not in force; "" where it is."""

    def look(self) -> Listed:
        """The pods as they are now; may block.

        Raises:
            SlacktideError: they cannot be told.

        """


class Joined:
    """The node from a file, its pods from a lister; of each the last good stays in force.

    Args:
        file: the node; pods in it do not count.
        lister: the pods.
        last: pods that were last good, from an earlier run; None: nothing.

    Raises:
        SlacktideError: the pods cannot be told, and there is nothing good to begin with.

    """

    changed = True
    """Who lists pods is asked each time."""

    def __init__(self, file: Watched[Described], lister: Lister, *, last: Sequence[Pod] | None) -> None:
        self._file = file
        self._lister = lister
        self._listed = Listed(pods=list(last or ()), notes=())
        self._trouble = ""
        try:
            self._listed = lister.look()
        except SlacktideError as exc:
            if last is None:
                raise
            self._trouble = self._said(exc)
        self.value = self._joined()
        self.refused = self._refused()

    def poll(self) -> bool:
        """Ask both."""
        self._file.poll()
        try:
            self._listed, self._trouble = self._lister.look(), ""
        except SlacktideError as exc:
            self._trouble = self._said(exc)
        before = self.value, self.refused
        self.value, self.refused = self._joined(), self._refused()
        return (self.value, self.refused) != before

    def _joined(self) -> Described:
        file, listed = self._file.value, self._listed
        unread = (f"{self._file.path}: its pods are not read: those of {self._lister.where} are",) if file.pods else ()
        return Described(facts=file.facts, pods=listed.pods, notes=(*file.notes, *unread, *listed.notes))

    def _refused(self) -> str:
        return "\n".join(filter(None, (self._file.refused, self._lister.refused, self._trouble)))

    def _said(self, exc: SlacktideError) -> str:
        return f"{exc}\nthe last good list, of {len(self._listed.pods)} pods, stays in force"
