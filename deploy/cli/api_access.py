"""Determines access to the API server, from the pod's environment or options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # not needed for --help
    from slacktide.agents.http import Access

API_SERVER = (
    "URL of the API server that evicts pods, such as https://10.96.0.1. Without it, an agent in a pod uses its "
    "cluster's. Outside a cluster the agent ends pods through their control groups."
)
API_TOKEN = "File with a ServiceAccount token bound to the agent's pod, read for each request. Default: the pod's own."  # noqa: S105
API_CA = (
    "File with the CA certificate of the API server. Without it: the pod's, or outside a cluster this machine's CAs."
)


def access_of(server: str | None, token: Path | None, ca: Path | None) -> Access | None:
    """Return access to the API server; None: there is none.

    Raises:
        click.UsageError: a file is given without an address.
    """
    from slacktide.agents.http import Access  # noqa: PLC0415
    from slacktide.agents.node.apiserver import ACCOUNT, in_cluster  # noqa: PLC0415

    if server is None:
        refuse_alone(server, token, ca)
        return in_cluster(os.environ)
    own_ca = ACCOUNT / "ca.crt"
    return Access(url=server, token=token or ACCOUNT / "token", ca=ca or (own_ca if own_ca.is_file() else None))


def refuse_alone(server: str | None, token: Path | None, ca: Path | None) -> None:
    """Reject files without an address.

    Raises:
        click.UsageError: a file is given without an address.
    """
    for flag, given in (("--api-token", token), ("--api-ca", ca)):
        if server is None and given is not None:
            raise click.UsageError(f"{flag} needs an API server: give its address with --api-server")
