"""Boot ids: which start of a node's agent a sample belongs to.

``<start counter, 12 digits>-<random, 8 hexadecimal digits>``.
"""

from __future__ import annotations

import re

AHEAD_S = 86_400
"""An agent that lost its counter starts at its clock's seconds: one further ahead of Kafka's clock is invented."""
_BOOT_ID = re.compile(r"[0-9]{12}-[0-9a-f]{8}")
_SHOWN = 40


def boot_problem(boot_id: str, appended_ms: int) -> str:
    """Return why no agent can have this boot id; "" if one can.

    Args:
        boot_id: of a sample.
        appended_ms: when Kafka appended the sample, UTC epoch milliseconds.
    """
    if not _BOOT_ID.fullmatch(boot_id):
        return f"boot id {boot_id[:_SHOWN]!r} is not 12 digits, a dash and 8 hexadecimal digits"
    latest = appended_ms // 1_000 + AHEAD_S
    if int(boot_id[:12]) > latest:
        return f"boot id {boot_id!r}: the start counter is above {latest}, the time of its record in seconds and a day"
    return ""
