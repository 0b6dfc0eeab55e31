"""Three questions a process answers about itself, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Health:
    """Filled by the parts of a process, read by whoever serves ``/live``, ``/ready`` and ``/fresh``.

    live: restart me if not. ready: started, connected, able to work. fresh: what I work on is recent.
    Each is "" when all is well, else what is wrong.
    """

    not_live: str = ""
    not_ready: str = "starting"
    not_fresh: str = "nothing seen yet"
