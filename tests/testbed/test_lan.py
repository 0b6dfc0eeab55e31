"""The network of the tests does what it says: cuts, loses in one direction, and delays."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from testbed.hosts import Host
from testbed.lan import NAMESPACES, Lan

pytestmark = pytest.mark.netns
PORT = 7_000


def echo(door: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, sender = door.recvfrom(2_048)
            door.sendto(data, sender)


def asked(host: Host, address: str, times: int, wait_s: float = 0.3) -> list[float]:
    """How long each answer took, in seconds; those that came."""

    def ask() -> list[float]:
        took = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
            door.settimeout(wait_s)
            for number in range(times):
                begun_s = time.monotonic()
                door.sendto(b"%d" % number, (address, PORT))
                with contextlib.suppress(TimeoutError):
                    while door.recv(2_048) != b"%d" % number:
                        pass
                    took.append(time.monotonic() - begun_s)
        return took

    return host.inside(ask)


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan() as lan:
        yield lan


def listening(host: Host) -> socket.socket:
    def listen() -> socket.socket:
        door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        door.bind((host.address, PORT))
        threading.Thread(target=echo, args=(door,), daemon=True).start()
        return door

    return host.inside(listen)


@pytest.mark.story
def test_faults_are_between_two_hosts_alone_and_end(lan: Lan) -> None:
    one, other, third = (lan.join(name) for name in ("one", "other", "third"))
    with listening(other), listening(third):
        assert len(asked(one, other.address, 3)) == 3

        lan.cut("one", "other")
        assert asked(one, other.address, 2) == []
        assert len(asked(one, third.address, 2)) == 2

        lan.heal()
        lan.lose("other", "one", 0.5)
        assert 0 < len(asked(one, other.address, 30, 0.05)) < 30

        lan.heal()
        lan.slow("one", "other", 150)
        slow = asked(one, other.address, 2, 2.0)
        assert len(slow) == 2
        assert min(slow) > 0.29
        assert max(asked(one, third.address, 2)) < 0.29

        lan.heal()
        assert max(asked(one, other.address, 2)) < 0.29


@pytest.mark.story
def test_nothing_is_left() -> None:
    before = set(NAMESPACES.iterdir())
    with Lan() as lan:
        lan.join("one")

    assert set(NAMESPACES.iterdir()) <= before
