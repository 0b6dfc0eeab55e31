"""Which gang a pod belongs to, and what a gang asks for.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/coscheduling/util/gang_helper.go (ShouldCreatePodGroup,
GetGangNameByPod), core/gang.go (tryInitByPodConfig, tryInitByPodGroup). Slacktide refuses a minimum below 1.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from slacktide.schemas.bounds import INT32_MAX
from slacktide.schemas.errors import QuantityError, TextError
from slacktide.schemas.policy.keys import seconds_of
from slacktide.schemas.text import integer_of, json_of, shown
from slacktide.schemas.units import cpu_milli, whole
from slacktide.streams.decisions.load.load_aware_estimator import NOTHING, Amounts

Kind = Literal["native", "pod_group", "x_pod_group", "pod"]
"""Where a gang's options are: in Kubernetes' own API, in a PodGroup of one of two API groups, or on its first pod."""
Mode = Literal["Strict", "NonStrict"]
Match = Literal["once-satisfied", "waiting-and-running", "only-waiting"]

SCHEDULER = "koord-scheduler"
"""The schedulerName of Koordinator."""
GATE = "slacktide.io/gang"
"""Scheduling gate of a pod that waits for its gang."""
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
LIGHT_NAME, LIGHT_LEAST, LIGHT_MATCH = (f"{POD_GROUP}/{name}" for name in ("name", "min-available", "match-policy"))
X_POD_GROUP = "scheduling.x-k8s.io/pod-group"
_PREFIX = "gang.scheduling.koordinator.sh/"
NAME, LEAST, MODE, MATCH, WAITING, TOGETHER = (
    _PREFIX + name for name in ("name", "min-available", "mode", "match-policy", "waiting-time", "groups")
)
WAITING_S = 600
TOGETHER_MAX = 100
"""Gangs that start together."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
_NAMED, _ID = re.compile(_NAME), re.compile(f"{_NAME}/{_NAME}")
_MODES: Final[Mapping[str, Mode]] = {one: one for one in get_args(Mode)}
_MATCHES: Final[Mapping[str, Match]] = {one: one for one in get_args(Match)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a gang asks for."""

    least: int
    """How many of its pods start together, at least 1; 0: see ``flaw``."""
    flaw: str = ""
    """Why none of its pods can start: the field, its text and what is accepted; "": they can."""
    mode: Mode = "Strict"
    match: Match = "once-satisfied"
    waiting_s: int = WAITING_S
    """Seconds from a plan to the binding of its pods."""
    together: tuple[str, ...] = ()
    """Ids of the gangs that start together, sorted; its own is one of them."""
    least_free: Amounts = NOTHING
    """CPU and memory that no pod requests on all nodes together, without which none of its pods starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The gang of a pod."""

    gang: str
    """Its id: namespace and name."""
    kind: Kind
    own: Options | None = None
    """Options on the pod; None: they are in the PodGroup."""


def membership(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], native: str = ""
) -> Membership | None:
    """Return the gang of a pod by the first field that names one; None: it is in none.

    ``native``: the group by Kubernetes' own API, whose pods its scheduler holds itself.
    """
    if native:
        return Membership(gang=f"{namespace}/{native}", kind="native")
    if name := labels.get(POD_GROUP):
        return Membership(gang=f"{namespace}/{name}", kind="pod_group")
    where, least = f"annotation {LEAST}", annotations.get(LEAST)
    if name := labels.get(LIGHT_NAME):
        if LIGHT_LEAST in labels:
            where, least = f"label {LIGHT_LEAST}", labels[LIGHT_LEAST]
    else:
        name = annotations.get(NAME)
    if name:
        gang = f"{namespace}/{name}"
        if not _NAMED.fullmatch(name):  # its hash is no name, so it meets no other gang
            gang = f"{namespace}/-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
            flaw = f"annotation {NAME}: {shown(name)}; accepted: letters, digits, '-', '_' and '.', at most 253"
            return Membership(gang=gang, kind="pod", own=Options(least=0, flaw=flaw, together=(gang,)))
        return Membership(gang=gang, kind="pod", own=_options(gang, where, least, annotations))
    if name := labels.get(X_POD_GROUP):
        return Membership(gang=f"{namespace}/{name}", kind="x_pod_group")
    return None


def options_of_group(
    gang: str, least: object, timeout_s: object, annotations: Mapping[str, str], resources: Mapping[str, object]
) -> Options:
    """Return the options of a PodGroup.

    ``least`` is ``spec.minMember``, ``timeout_s`` ``scheduleTimeoutSeconds``, ``resources`` ``minResources``, which
    Koordinator ignores.
    """
    written = None if least is None else str(least)
    options = _options(gang, "spec.minMember", written, annotations)
    given = isinstance(timeout_s, int) and 0 < timeout_s <= INT32_MAX
    options = replace(options, waiting_s=timeout_s if given and isinstance(timeout_s, int) else WAITING_S)
    try:
        return replace(
            options,
            least_free=Amounts(
                cpu_milli(resources.get("cpu", "0")),
                whole(resources.get("memory", "0")),
            ),
        )
    except QuantityError as exc:
        return replace(options, least=0, flaw=options.flaw or f"spec.minResources: {exc}")


def _options(gang: str, where: str, least: str | None, annotations: Mapping[str, str]) -> Options:
    count, flaw = 0, f"{where}: is absent; accepted: 1 to {INT32_MAX}"
    try:
        if least is not None:
            count, flaw = integer_of(least, where=where, least=1, most=INT32_MAX), ""
    except TextError as exc:
        flaw = str(exc)
    together = _together(gang, annotations.get(TOGETHER))
    if wrong := _flaw(gang, together):
        count, flaw, together = 0, f"annotation {TOGETHER}: {wrong}", (gang,)
    return Options(
        least=count,
        flaw=flaw,
        mode=_MODES.get(annotations.get(MODE, ""), "Strict"),
        match=_MATCHES.get(annotations.get(MATCH) or annotations.get(LIGHT_MATCH, ""), "once-satisfied"),
        waiting_s=_waiting_s(annotations.get(WAITING)),
        together=together,
    )


def _together(gang: str, text: str | None) -> tuple[str, ...]:
    """An unreadable list is ignored."""
    try:
        listed: list[str] = json_of(text, list[str], where=TOGETHER) if text else []
    except TextError:
        listed = []
    return tuple(sorted(set(listed))) or (gang,)


def _flaw(gang: str, together: tuple[str, ...]) -> str:
    """Return what is wrong with the list; "": nothing."""
    if len(together) > TOGETHER_MAX:
        return f"{len(together)} gangs; accepted: at most {TOGETHER_MAX}"
    odd = [one for one in together if not _ID.fullmatch(one)]
    if odd:
        return f"{shown(odd[0])}; accepted: a namespace and a name, as in batch/workers"
    return "" if gang in together else f"does not name the gang itself, {gang}"


def _waiting_s(text: str | None) -> int:
    try:
        return seconds_of(text)
    except ValueError:
        return WAITING_S


def needed(options: Options, *, bound: int, satisfied: bool) -> int:
    """Return for how many pods of a gang a plan must have places; ``satisfied``: its group started once.

    0: its pods are judged one by one.
    """
    if options.match == "only-waiting":
        return options.least
    if options.match == "once-satisfied" and satisfied:
        return 0
    return max(0, options.least - bound)
