"""Which pod a Reservation is opened for. Topic slacktide.reservation.open.v1, key: the Reservation's uid."""

from slacktide.schemas.bounds import Name, TimeMs
from slacktide.schemas.message import Message


class ReservationOpen(Message, frozen=True, kw_only=True):
    """The latest decision for a Reservation. The first record of a Reservation is in force until one ends it."""

    reservation: Name
    """Name of the Reservation."""
    reservation_uid: Name
    """Its uid."""
    node: Name
    """The node on which the Reservation holds room."""
    pod_uid: Name
    """The pod that gets the room."""
    namespace: Name
    name: Name
    decided_ms: TimeMs
    ended: bool = False
    """Whether this ends the earlier record: the pod was not bound there."""
    why: str = ""
    """Why it ended, in words."""
