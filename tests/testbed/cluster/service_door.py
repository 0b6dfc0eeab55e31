"""What kube-proxy would do for one address: whoever dials a Service's reaches the process behind it."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

from testbed.hosts import HERE

Inside = Callable[[Callable[[], Any]], Any]


class ServiceDoor:
    """Passes bytes between an address of loopback and a port on 127.0.0.1, both ways, until closed.

    ``inside`` opens it in another network, such as that of pods.
    """

    def __init__(self, address: str, port: int, to_port: int, inside: Inside = HERE.inside) -> None:
        self._to_port = to_port
        self._open: set[socket.socket] = set()
        self._listener: socket.socket = inside(lambda: socket.create_server((address, port)))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        address = ("127.0.0.1", self._to_port)
        with caller, contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as behind:
            behind.settimeout(None)
            self._open |= {caller, behind}
            self._pass({caller: behind, behind: caller})
            self._open -= {caller, behind}

    @staticmethod
    def _pass(ways: dict[socket.socket, socket.socket]) -> None:
        with selectors.DefaultSelector() as selector:
            for end in ways:
                selector.register(end, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if not (said := end.recv(65536)):
                        return
                    ways[end].sendall(said)

    def close(self) -> None:
        for each in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
