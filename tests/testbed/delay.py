"""A TUN device that gives every packet back later: what the kernel's netem would do where it is there."""

import fcntl
import os
import select
import struct
import threading
import time
from collections import deque

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 65_535
HELD_MAX = 20_000


class Delay:
    """Made in the network namespace where the device shall be; works until the process ends."""

    def __init__(self, device: str) -> None:
        self.delay_s = 0.0
        self.passed = 0
        """Packets given back."""
        self._file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self._file, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
        self._held: deque[tuple[float, bytes]] = deque()
        threading.Thread(target=self._work, name=device, daemon=True).start()

    def _work(self) -> None:
        while True:
            wait_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            readable, _, _ = select.select([self._file], [], [], wait_s)
            if readable:
                packet = os.read(self._file, PACKET_BYTES_MAX)
                if len(self._held) < HELD_MAX:
                    self._held.append((time.monotonic() + self.delay_s, packet))
            while self._held and self._held[0][0] <= time.monotonic():
                os.write(self._file, self._held.popleft()[1])
                self.passed += 1
