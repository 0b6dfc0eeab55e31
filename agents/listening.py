"""Listening sockets of all servers."""

from __future__ import annotations

import socket

ALL = "::"
"""All IPv4 and IPv6 addresses of the machine."""
ANY = frozenset({"0.0.0.0", ALL, ""})  # noqa: S104 - compared, not bound
"""Hosts that mean all addresses."""


def listening(host: str, port: int, *, backlog: int = 128) -> socket.socket:
    """Listen on an address.

    Args:
        host: an address or a name; ``::`` also takes IPv4, and is ``0.0.0.0`` on a machine without IPv6.
        port: 0: any free port.
        backlog: connections that the kernel keeps until they are accepted.

    Raises:
        OSError: the address is not available.

    """
    if host == ALL and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    address = "0.0.0.0" if host == ALL else host  # noqa: S104 - asked for
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=backlog)


def reachable(host: str) -> str:
    """The host in a URL by which this machine reaches the listener."""
    return bracketed("127.0.0.1" if host in ANY else host)


def bracketed(host: str) -> str:
    """The host in URL syntax."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
