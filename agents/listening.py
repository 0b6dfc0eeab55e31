"""Listening sockets of all servers."""

import socket

ALL = "::"
"""All IPv4 and IPv6 addresses of the machine."""
ANY = frozenset({"0.0.0.0", ALL, ""})  # noqa: S104 - compared, not bound
"""Hosts that mean all addresses."""


def listening(host: str, port: int, *, backlog: int = 128) -> socket.socket:
    """Listen on an address.

    Host ``::`` also accepts IPv4, and means ``0.0.0.0`` on a machine without IPv6. Port 0 means any free port.

    Raises:
        OSError: the address is not available.
    """
    if host == ALL and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    address = "0.0.0.0" if host == ALL else host  # noqa: S104 - asked for
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((address, port), family=family, backlog=backlog)


def reachable(host: str) -> str:
    """Return the host in a URL by which this machine reaches the listener."""
    return bracketed("127.0.0.1" if host in ANY else host)


def bracketed(host: str) -> str:
    """Return the host in URL syntax."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
