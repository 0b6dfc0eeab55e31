"""Client of the kubelet's podresources API: one gRPC call over its socket, in plain HTTP/2 frames.

Reading: RFC 9113, RFC 7541 and gRPC's PROTOCOL-HTTP2; kubernetes v1.34.4, pkg/kubelet/apis/podresources. A gRPC library
would add 20 MiB to each agent.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slacktide.schemas.errors import ZonesError

SOCKET = "pod-resources/kubelet.sock"
METHOD = b"/v1.PodResourcesLister/GetAllocatableResources"
ANSWER_S = 2.0
BYTES_MAX = 16 * 1024 * 1024
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY, _WINDOW_UPDATE = 0x0, 0x1, 0x3, 0x4, 0x7, 0x8
_END_STREAM = _ACK = 0x1
_END_HEADERS, _PADDED = 0x4, 0x8
_STREAM = 1
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_MESSAGE_HEAD = 5


class _Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def allocatable_resources(path: Path) -> bytes:
    """Call GetAllocatableResources. Return the ``AllocatableResourcesResponse`` in protobuf.

    Raises:
        ZonesError: no answer, an error, or a torn answer.
    """
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ANSWER_S)
            line.connect(str(path))
            line.sendall(_question())
            answer = _answer(line)
    except (OSError, EOFError, ValueError) as exc:
        raise ZonesError(f"{path}", getattr(exc, "strerror", None) or str(exc)) from exc
    return answer


def _question() -> bytes:
    """Return the request: flow-control windows large enough for the answer, headers, and an empty message."""
    window = b"\x00\x04" + BYTES_MAX.to_bytes(4, "big")
    headers = (
        b"\x83\x86"  # :method POST, :scheme http
        + _text(b"\x04", METHOD)
        + _text(b"\x01", b"localhost")
        + _text(b"\x0f\x10", b"application/grpc")
        + b"\x00" + _text(_text(b"", b"te"), b"trailers")
    )  # fmt: skip
    return (
        _PREFACE
        + _frame(_SETTINGS, payload=window)
        + _frame(_WINDOW_UPDATE, payload=BYTES_MAX.to_bytes(4, "big"))
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, bytes(_MESSAGE_HEAD))
    )


def _text(name: bytes, value: bytes) -> bytes:
    """Return a literal header field without indexing; its value has fewer than 127 bytes."""
    return name + bytes([len(value)]) + value


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _answer(line: socket.socket) -> bytes:
    """Read the message. Headers are ignored: an answer without a message is an error."""
    data = b""
    for frame in _frames_of_call(line):
        data += _unpadded(frame) if frame.kind == _DATA else b""
        if len(data) > BYTES_MAX:
            raise ValueError(f"an answer of more than {BYTES_MAX} bytes")
    if not data:
        raise ValueError("the kubelet answered the call with an error")
    message = data[_MESSAGE_HEAD:]
    if data[0] or int.from_bytes(data[1:_MESSAGE_HEAD], "big") != len(message):
        raise ValueError("an incomplete answer")
    return message


def _frames_of_call(line: socket.socket) -> Iterator[_Frame]:
    """Header and data frames to the end of the answer."""
    for frame in _frames(line):
        if frame.kind == _SETTINGS and not frame.flags & _ACK:
            line.sendall(_frame(_SETTINGS, _ACK))
        elif frame.kind in {_RST_STREAM, _GOAWAY}:
            raise ValueError("the kubelet ended the call")
        elif frame.kind in {_DATA, _HEADERS}:
            yield frame
            if frame.flags & _END_STREAM:
                return


def _frames(line: socket.socket) -> Iterator[_Frame]:
    with line.makefile("rb") as stream:
        while True:
            head = _exactly(stream.read(9), 9)
            size = int.from_bytes(head[:3], "big")
            yield _Frame(head[3], head[4], int.from_bytes(head[5:], "big"), _exactly(stream.read(size), size))


def _exactly(found: bytes, size: int) -> bytes:
    if len(found) < size:
        raise EOFError("the kubelet closed the connection")
    return found


def _unpadded(frame: _Frame) -> bytes:
    if not frame.flags & _PADDED:
        return frame.payload
    return frame.payload[1 : len(frame.payload) - frame.payload[0]]
