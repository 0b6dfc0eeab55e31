"""A kubelet's podresources API: its answers as bytes, and a socket that answers with them."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SETTINGS, HEADERS, DATA, PING = 4, 1, 0, 6
END_STREAM = 1
NO_FIELDS = bytes(5)
"""The message of a question, which ends it."""
SERVERS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00" + b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
"""The settings that gRPC for Go sends at first, and its receipt for the caller's."""


def field(number: int, value: bytes) -> bytes:
    """Of a message in protobuf."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def device(resource: str, name: str, *zones: int) -> bytes:
    """Of an ``AllocatableResourcesResponse``; zone 0 is left out, as protobuf does."""
    nodes = b"".join(field(1, b"\x08" + varint(zone) if zone else b"") for zone in zones)
    topology = field(3, nodes) if zones else b""
    return field(1, field(1, resource.encode()) + field(2, name.encode()) + topology)


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def answered(message: bytes, size: int = 16_384) -> bytes:
    """As gRPC for Go sends it, in frames of such a size: its headers are not read."""
    data = b"\x00" + len(message).to_bytes(4, "big") + message
    parts = [frame(DATA, data[at : at + size]) for at in range(0, len(data), size)]
    return SERVERS + frame(HEADERS, b"\x88", 4) + b"".join(parts) + frame(HEADERS, b"\x88", 4 | END_STREAM)


@contextlib.contextmanager
def kubelet_socket(path: Path, sent: bytes) -> Iterator[list[bytes]]:
    """Each question gets these bytes and no more; the questions."""
    asked: list[bytes] = []
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        thread = threading.Thread(target=_serve, args=(door, sent, asked))
        thread.start()
        try:
            yield asked
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()


def _serve(door: socket.socket, sent: bytes, asked: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        while True:
            line, _ = door.accept()
            with line:
                question = b""
                while not question.endswith(frame(DATA, NO_FIELDS, END_STREAM)):
                    question += line.recv(65536)
                asked.append(question)
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                while line.recv(65536):
                    pass


def checkpoint(held: Mapping[str, Mapping[str, Mapping[int, Sequence[str]]]]) -> str:
    entries = [
        {"PodUID": uid, "ContainerName": "app", "ResourceName": resource, "DeviceIDs": ids, "AllocResp": "Eg=="}
        for uid, of_pod in held.items()
        for resource, ids in of_pod.items()
    ]
    return json.dumps({"Data": {"PodDeviceEntries": entries or None, "RegisteredDevices": {}}, "Checksum": 1})
