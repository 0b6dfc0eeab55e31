"""What an agent is given for its ServiceAccount token: the key of its node. Over HTTPS, never through Kafka."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.proof import EXPIRES_S_MAX, NodeKey

AUDIENCE = "slacktide-enrolment"
"""Of the token that an agent shows: no other service accepts it, and this one accepts no other."""
PATH = "/v1/enrol"
_SECRET_BYTES = 32


class Enrolled(Message, frozen=True, kw_only=True):
    """A node key, as the bridge gives it out and as the agent keeps it."""

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
        if len(secret) != _SECRET_BYTES:
            raise BadMessageError("Enrolled", f"secret_base64 does not hold {_SECRET_BYTES} bytes")
        return NodeKey(key_id=self.key_id, node=self.node, expires_s=self.expires_s, secret=secret)
