"""Which reservation a pending pod gets.

Reading: koordinator a7a1b76b, pkg/util/reservation/reservation.go (MatchReservationOwners, MatchReservation),
pkg/scheduler/plugins/reservation/scoring.go.
"""

from collections.abc import Iterable

from slacktide.schemas.policy.selector import matches
from slacktide.streams.decisions.reservation.objects import (
    TTL_S,
    Affinity,
    Claimant,
    Owner,
    Ref,
    Reservation,
    affinity_of,
    exact_names,
)

AVAILABLE = "Available"


def owns(reservation: Reservation, pod: Claimant) -> bool:
    """Return whether one of the reservation's owners is the pod."""
    return any(_is_owner(one, pod) for one in reservation.owners)


def _is_owner(owner: Owner, pod: Claimant) -> bool:
    if owner.object is not None and not _is_object(owner.object, pod):
        return False
    if owner.controller is not None:
        here = owner.controller.namespace in ("", pod.namespace)
        if not here or not any(_is_ref(owner.controller, one) for one in pod.owners):
            return False
    return owner.selector is None or matches(owner.selector, pod.labels)


def _is_object(given: Ref, pod: Claimant) -> bool:
    """The kind is ignored, as by the reference."""
    both = (given.uid, pod.uid), (given.name, pod.name), (given.namespace, pod.namespace), (given.api_version, "v1")
    return all(one in ("", other) for one, other in both)


def _is_ref(given: Ref, found: Ref) -> bool:
    both = (given.uid, found.uid), (given.name, found.name), (given.kind, found.kind)
    alike = all(one in ("", other) for one, other in (*both, (given.api_version, found.api_version)))
    return alike and (given.controller is None or given.controller == bool(found.controller))


def demanded(pod: Claimant) -> Affinity | None:
    """Return what the pod demands of its reservation; None: it needs none. Raises CaseError or TextError."""
    return None if pod.affinity is None else affinity_of(pod.affinity)


def _meets(reservation: Reservation, affinity: Affinity | None) -> bool:
    if affinity is None:
        return True
    if affinity.name:
        return affinity.name == reservation.name
    return not affinity.selectors or any(matches(one, reservation.labels) for one in affinity.selectors)


def _fits(reservation: Reservation, pod: Claimant) -> bool:
    """Return whether the amounts go together; what the pod requests beyond the reservation must be free on the node."""
    reserved, asked = reservation.requests, pod.requests
    if reservation.restricted and any(asked[name] > reserved[name] for name in asked.keys() & reserved.keys()):
        return False
    for name in () if pod.exact is None else exact_names(pod.exact):
        if name not in reserved and name not in asked:
            return True  # as in the reference: the rest is not compared
        if reserved.get(name) != asked.get(name):
            return False
    return True


def choices(pod: Claimant, reservations: Iterable[Reservation]) -> list[Reservation]:
    """Return the reservations that the pod may use, the best first. Raises CaseError or TextError."""
    affinity = demanded(pod)
    found = [
        one for one in reservations
        if one.phase == AVAILABLE and owns(one, pod) and _meets(one, affinity) and _fits(one, pod)
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.order == 0, one.order, -_score(one, pod), one.name))


def _score(reservation: Reservation, pod: Claimant) -> int:
    """The mean share of the reserved amounts that the pod requests, in percent; 0 where it requests more."""
    shares = [
        100 * pod.requests.get(name, 0) // amount if 0 < amount >= pod.requests.get(name, 0) else 0
        for name, amount in reservation.requests.items()
    ]
    return sum(shares) // max(1, len(shares))


def expired(reservation: Reservation, now_s: float) -> bool:
    """Return whether the reservation's time is over, also while it is pending."""
    ttl_s, at_s = reservation.ttl_s, reservation.expires_s
    if ttl_s == 0:
        return False
    if at_s is not None and now_s > at_s:
        return True
    if ttl_s is None or (ttl_s == TTL_S and at_s is not None):
        return at_s is None and now_s > reservation.created_s + TTL_S
    return now_s > reservation.created_s + ttl_s
