"""All attacks."""

from attack import exhaustion, forgery, poison  # noqa: F401 - each adds its own
from attack.listing import ATTACKS

__all__ = ["ATTACKS"]
