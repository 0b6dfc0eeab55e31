"""PURE: who sent a record. A MAC that only the node named by the record, or the cluster key's holder, can make.

A cluster key never leaves the bridge, the stream workers and the queue. A node key is derived from it for one node and
a time of expiry. The agent gets it that proves with its ServiceAccount token that it runs on that node. The body of a
record carries the node's boot id and sequence number, so the MAC covers them, too. All of it is HMAC-SHA-256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from slacktide.schemas.errors import BadMessageError, SlacktideError, TextError
from slacktide.schemas.headers import Header
from slacktide.schemas.message import Message
from slacktide.schemas.text import integer_of

HEADER = "slacktide-proof"
"""``v1;<key id>;<expiry, UTC epoch seconds>;<MAC, 64 hex digits>``."""
NODE_KEY_LIFE_S = 24 * 3600
CURRENT, PREVIOUS = "current", "previous"
"""Names of the cluster keys, in their Secret and in the folder where it is mounted."""
SECRET_BYTES_MIN = 32
NODES_MAX = 20_000
"""Node keys that a verifier holds ready, for each topic: some 20 MB."""
MAC_CHARS = 64
EXPIRES_S_MAX = 253_402_300_799
"""The end of the year 9999."""
ENROL_PATH = "/v1/enrol"
ENROL_AUDIENCE = "slacktide-enrolment"
"""Of the token that an agent shows: no other service accepts it, and this one accepts no other."""
_HEADER_BYTES_MAX = 128
_VERSION = b"v1"
_BLOCK_BYTES, _DIGEST_BYTES = 64, 32
"""Of SHA-256."""
_INNER_PAD, _OUTER_PAD = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
"""Of HMAC, for ``bytes.translate``."""

Verdict = Literal["", "ok", "absent", "malformed", "unknown key", "expired", "forged"]
"""What a check finds. "": nothing was checked, because the policy does not ask for it."""
PROVEN: frozenset[str] = frozenset({"", "ok"})
"""Verdicts under which a record is used."""
Mode = Literal["off", "required"]


class ProofKeyError(SlacktideError):
    """A text is not a cluster key."""


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """One key of the ring."""

    id: str
    """8 hex digits, derived from the secret."""
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, text: str) -> ClusterKey:
        """Read a key as the Secret holds it.

        Args:
            text: base64 of at least 32 random bytes.

        Raises:
            ProofKeyError: it is not; the message does not repeat it.
        """
        try:
            secret = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise ProofKeyError("a cluster key is not base64; make one with: openssl rand -base64 32") from None
        if len(secret) < SECRET_BYTES_MIN:
            raise ProofKeyError(f"a cluster key has {len(secret)} bytes; accepted: {SECRET_BYTES_MIN} or more")
        return cls(id=_digest(secret, b"slacktide key id")[:4].hex(), secret=secret)


@dataclass(frozen=True, slots=True)
class NodeKey:
    """What one node signs with."""

    key_id: str
    """Of the cluster key behind it."""
    node: str
    expires_s: int
    """UTC epoch seconds. A record that Kafka appends later is refused."""
    secret: bytes = field(repr=False)

    def header(self, topic: str, value: bytes) -> Header:
        """Sign a record of this node.

        Args:
            topic: that it goes to.
            value: its body, as it goes out. The node's name is the record's key, or is in the body beside that key.
        """
        prefix = b"%b;%b;%d;" % (_VERSION, self.key_id.encode(), self.expires_s)
        # The body comes last and needs no length.
        mac = _digest(self.secret, _fields(topic.encode(), self.node.encode()) + value)
        return HEADER, prefix + mac.hex().encode()


def node_key(cluster_key: ClusterKey, node: str, expires_s: int) -> NodeKey:
    """Derive the key of one node.

    Args:
        cluster_key: the current one.
        node: its name: the key of its records.
        expires_s: UTC epoch seconds.
    """
    secret = _digest(cluster_key.secret, _fields(b"slacktide node key", node.encode(), b"%d" % expires_s))
    return NodeKey(key_id=cluster_key.id, node=node, expires_s=expires_s, secret=secret)


class Enrolled(Message, frozen=True, kw_only=True):
    """A node key, as the bridge gives it out and as the agent keeps it. It goes over HTTPS, never through Kafka."""

    node: str
    key_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]
    expires_s: Annotated[int, msgspec.Meta(ge=0, le=EXPIRES_S_MAX)]
    """UTC epoch seconds."""
    secret_base64: str

    def __repr__(self) -> str:
        """Without the secret: this text may reach a log."""
        return f"Enrolled(node={self.node!r}, key_id={self.key_id!r}, expires_s={self.expires_s})"

    @classmethod
    def of(cls, key: NodeKey) -> Enrolled:
        """The key as a message."""
        secret = base64.b64encode(key.secret).decode()
        return cls(node=key.node, key_id=key.key_id, expires_s=key.expires_s, secret_base64=secret)

    def key(self) -> NodeKey:
        """The key in the message. Raises BadMessageError if the secret is not 32 bytes in base64."""
        try:
            secret = base64.b64decode(self.secret_base64, validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if len(secret) != _DIGEST_BYTES:
            raise BadMessageError("Enrolled", f"secret_base64 does not hold {_DIGEST_BYTES} bytes")
        return NodeKey(key_id=self.key_id, node=self.node, expires_s=self.expires_s, secret=secret)


@dataclass(slots=True)
class _Known:
    """A node key for records of one topic. RFC 2104, section 4: both states are made once, and copied for each record.

    A copy of ``hmac.HMAC`` takes longer than these two.
    """

    inner: hashlib._Hash
    """SHA-256 of the padded node key, topic and record key: only the body is hashed for each record."""
    outer: hashlib._Hash
    """SHA-256 of the padded node key."""
    expires_ms: int
    proven: bool = False
    """Whether it is kept."""


class Verifier:
    """Checks records against a ring of cluster keys.

    Args:
        ring: the current key and the previous one.
    """

    def __init__(self, ring: Sequence[ClusterKey] = ()) -> None:
        self._ring: dict[bytes, ClusterKey] = {}
        self._known: dict[tuple[str, bytes, bytes], _Known] = {}
        """By topic, record key, and header up to the MAC. Only of headers that were right once."""
        self.keys(ring)

    def keys(self, ring: Iterable[ClusterKey]) -> None:
        """Use these keys from now on, and no others."""
        now = {key.id.encode(): key for key in ring}
        if now != self._ring:
            self._ring = now
            self._known.clear()

    def check(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp_ms: int
    ) -> Verdict:
        """Find whether a node has sent the record.

        Args:
            topic: where the record lies.
            key: the node's name: the record's key, or of a minute of a service what its body names.
            value: of the record.
            headers: of the record; with several proofs the last one counts.
            timestamp_ms: when Kafka appended it, by which the expiry is judged.
        """
        # Agents write it last: this way the check costs a microsecond beside the hash.
        text = headers[-1][1] if headers and headers[-1][0] == HEADER else proof_in(headers)
        if text is None:
            return "absent"
        if key is None or value is None or len(text) > _HEADER_BYTES_MAX:
            return "malformed"
        which = topic, key, text[:-MAC_CHARS]
        known = self._known.get(which)
        if known is None:
            derived = self._derive(*which)
            if isinstance(derived, str):
                return derived
            known = derived
        inner, outer = known.inner.copy(), known.outer.copy()
        inner.update(value)
        outer.update(inner.digest())
        if not hmac.compare_digest(outer.hexdigest().encode(), text[-MAC_CHARS:]):
            return "forged"
        if timestamp_ms >= known.expires_ms:
            return "expired"
        if not known.proven:
            self._keep(which, known)
        return "ok"

    def _derive(self, topic: str, key: bytes, prefix: bytes) -> _Known | Verdict:
        parts = prefix.split(b";")
        if len(parts) != 4 or parts[0] != _VERSION or parts[3]:
            return "malformed"
        try:
            expires_s = integer_of(parts[2], where=HEADER, least=0, most=EXPIRES_S_MAX)
        except TextError:
            return "malformed"
        if b"%d" % expires_s != parts[2]:
            return "malformed"
        cluster_key = self._ring.get(parts[1])
        if cluster_key is None:
            return "unknown key"
        try:
            node = key.decode()
        except UnicodeDecodeError:
            return "malformed"
        secret = node_key(cluster_key, node, expires_s).secret
        inner = hashlib.sha256(secret.ljust(_BLOCK_BYTES, b"\0").translate(_INNER_PAD))
        inner.update(_fields(topic.encode(), key))
        outer = hashlib.sha256(secret.ljust(_BLOCK_BYTES, b"\0").translate(_OUTER_PAD))
        return _Known(inner, outer, expires_s * 1_000)

    def _keep(self, which: tuple[str, bytes, bytes], known: _Known) -> None:
        if len(self._known) >= NODES_MAX:
            del self._known[next(iter(self._known))]
        known.proven = True
        self._known[which] = known


def proof_in(headers: Iterable[Header]) -> bytes | None:
    """The proof among a record's headers, the last one of several; None: there is none."""
    found = None
    for name, text in headers:
        if name == HEADER:
            found = text
    return found


def _digest(secret: bytes, text: bytes) -> bytes:
    return hmac.digest(secret, text, "sha256")


def _fields(*parts: bytes) -> bytes:
    """Each with its length before it: no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)
