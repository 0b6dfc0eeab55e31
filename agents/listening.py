"""Where the servers of all parts listen."""

from __future__ import annotations

import socket

ALL = "::"
"""All addresses of the machine, of both families where it has both."""
ANY = frozenset({"0.0.0.0", ALL, ""})  # noqa: S104 - compared, not bound
"""What means more than one address."""


def listening(host: str, port: int, *, backlog: int = 128) -> socket.socket:
    """Listen on an address.

    Args:
        host: an address or a name; ``::`` also takes IPv4, and is ``0.0.0.0`` on a machine without IPv6.
        port: 0: any free one.
        backlog: connections that the kernel keeps until they are accepted.

    Raises:
        OSError: the address could not be had.

    """
    if host == ALL and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    address = "0.0.0.0" if host == ALL else host  # noqa: S104 - asked for
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=backlog)


def reachable(host: str) -> str:
    """The host of a URL by which the machine itself reaches whoever listens there."""
    return bracketed("127.0.0.1" if host in ANY else host)


def bracketed(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
