"""Which reservation is opened for which pod, by the order of the log."""

from slacktide.schemas.reservation import ReservationOpen


class Opens:
    """The records in force, mutable. The first record of a reservation and of a pod is in force until it ends."""

    def __init__(self) -> None:
        self.of: dict[str, ReservationOpen] = {}
        """By the reservation's uid."""
        self._pods: dict[str, str] = {}

    def for_pod(self, pod_uid: str) -> ReservationOpen | None:
        """Return the record in force for a pod."""
        return self.of.get(self._pods.get(pod_uid, ""))

    def take(self, uid: str, record: ReservationOpen | None) -> None:
        """Apply a record, in the order of the log; None: the reservation is over."""
        known = self.of.get(uid)
        if record is None or (record.ended and known is not None and known.pod_uid == record.pod_uid):
            if known is not None:
                del self.of[uid], self._pods[known.pod_uid]
        elif not record.ended and known is None and record.pod_uid not in self._pods:
            self.of[uid], self._pods[record.pod_uid] = record, uid
