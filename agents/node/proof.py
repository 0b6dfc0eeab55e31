"""Signs this node's records with its enrolled key, and saves the key for the next start."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.enrolment import Enrolled
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.proof import NODE_KEY_LIFE_S, NodeKey
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

FILE = "proof-key.json"
RENEW_S = NODE_KEY_LIFE_S // 2
WARN_S = NODE_KEY_LIFE_S // 4
"""Remaining life at which renewals have failed for six hours."""


class Prover:
    """The key of this node, saved in ``folder`` readable by its owner alone; None: not saved."""

    def __init__(self, node: str, folder: Path | None, now_ms: Callable[[], int]) -> None:
        self._node = node
        self._file = None if folder is None else folder / FILE
        self._now_ms = now_ms
        self._key = self._kept()

    @property
    def left_s(self) -> int:
        """Seconds until the key expires; 0: no key, or expired."""
        return 0 if self._key is None else max(0, self._key.expires_s - self._now_ms() // 1_000)

    @property
    def trouble(self) -> str:
        """Why the key is missing, expired or about to expire; "": it is valid."""
        if self._key is None:
            return "this node has no key to sign its records"
        if not self.left_s:
            return "this node's key has expired"
        return "" if self.left_s > WARN_S else f"this node's key expires in {self.left_s // 60} min"

    def sign(self, out: Out) -> Out:
        """Return the record with its proof, or unchanged without a key. Call it right before sending."""
        if self._key is None or out.value is None:
            return out
        return msgspec.structs.replace(out, headers=(*out.headers, self._key.header(out.topic, out.value)))

    def use(self, enrolled: Enrolled) -> None:
        """Sign with this key from now on, and save it. Raises BadMessageError if it is invalid or another node's."""
        self._key = self._read(enrolled)
        self._keep(enrolled)

    def _read(self, enrolled: Enrolled) -> NodeKey:
        if enrolled.node != self._node:
            raise BadMessageError(
                "Enrolled", f"the key belongs to node {enrolled.node!r}, but this agent runs on {self._node!r}"
            )
        return enrolled.key()

    def _kept(self) -> NodeKey | None:
        if self._file is None:
            return None
        try:
            return self._read(decode(self._file.read_bytes(), Enrolled))
        except FileNotFoundError:
            return None
        except (OSError, BadMessageError) as exc:
            log.warning("the node's key is lost; requesting a new one", extra={"why": str(exc)})
            return None

    def _keep(self, enrolled: Enrolled) -> None:
        if self._file is None:
            return
        fresh = self._file.with_name(f"{FILE}.new")
        try:
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(encode(enrolled))
            fresh.replace(self._file)
        except OSError as exc:
            log.warning("the node's key could not be stored for the next start", extra={"why": str(exc)})
