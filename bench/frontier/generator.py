"""Open-loop requests over TCP: ``python -m bench.frontier.generator PORT REQUEST``, with plays as JSON lines on stdin.

Arrivals are drawn ahead. A request that finds no free connection waits, and its latency counts from its arrival, so the
service's slowness hides nothing. A play is ``{"start_s": monotonic, "seed", "phases": [[seconds, per second], ...]}``.
The answer is one line: pairs of the arrival's offset in seconds and the latency in milliseconds.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections import deque

from slacktide.deploy.demo.ls_worker import arrivals

CONNECTIONS = 32
QUIET_S = 0.5
"""An answer is whole when nothing has come for so long. All answers have the same length: it is learnt once."""
GIVE_UP_S = 5.0


class Generator:
    """Some connections to one service, and what is due on them."""

    def __init__(self, port: int, request: bytes) -> None:
        self._port, self._request = port, request
        self._free = [self._connected() for _ in range(CONNECTIONS)]
        self._length = self._learn(self._free[0])
        self._busy: dict[socket.socket, tuple[float, int]] = {}
        """When the request arrived, and how many bytes of its answer are missing."""

    def _connected(self) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self._port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one

    def _learn(self, one: socket.socket) -> int:
        one.sendall(self._request)
        length = 0
        while select.select([one], [], [], QUIET_S)[0]:
            length += len(one.recv(1 << 20))
        return length

    def play(self, start_s: float, seed: int, phases: list[list[float]]) -> list[tuple[float, float]]:
        """Send what is due until all is answered, or given up."""
        coming = arrivals(seed, phases)
        waiting: deque[float] = deque()
        served: list[tuple[float, float]] = []
        end_s = start_s + sum(seconds for seconds, _ in phases) + GIVE_UP_S
        due_s = next(coming, None)
        while (now_s := time.monotonic() - start_s) < end_s - start_s and (due_s is not None or waiting or self._busy):
            while due_s is not None and due_s <= now_s:
                waiting.append(due_s)
                due_s = next(coming, None)
            while waiting and self._free:
                one = self._free.pop()
                self._busy[one] = waiting.popleft(), self._length
                one.sendall(self._request)
            until_s = (end_s - start_s if due_s is None else due_s) - now_s
            for one in select.select(list(self._busy), [], [], max(0.0, until_s))[0]:
                served += self._read(one, start_s)
        late_s = time.monotonic() - start_s
        unanswered = [*waiting, *(at for at, _ in self._busy.values())]
        self._replace_busy()
        return served + [(at_s, (late_s - at_s) * 1000) for at_s in unanswered]

    def close(self) -> None:
        """Close all connections."""
        for one in [*self._free, *self._busy]:
            one.close()

    def _replace_busy(self) -> None:
        """A late answer must not pass for that of the next play's request."""
        for one in self._busy:
            one.close()
            self._free.append(self._connected())
        self._busy.clear()

    def _read(self, one: socket.socket, start_s: float) -> list[tuple[float, float]]:
        arrived_s, missing = self._busy[one]
        got = one.recv(1 << 20)
        if not got:
            raise ConnectionError("the service closed a connection; it must keep idle ones for a whole run")
        missing -= len(got)
        if missing > 0:
            self._busy[one] = arrived_s, missing
            return []
        del self._busy[one]
        self._free.append(one)
        return [(arrived_s, (time.monotonic() - start_s - arrived_s) * 1000)]


def main() -> None:
    """Play until stdin ends."""
    with contextlib.suppress(PermissionError):  # where real time is not for this group
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    generator = Generator(int(sys.argv[1]), sys.argv[2].encode().decode("unicode_escape").encode())
    _answer("ready")
    for line in sys.stdin:
        play = json.loads(line)
        _answer(json.dumps(generator.play(play["start_s"], play["seed"], play["phases"])))


def _answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
