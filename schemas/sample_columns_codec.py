"""PURE: encodes a sample in columns, and decodes it for the scalar rules."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from slacktide.schemas.bounds import AMOUNT_MAX, COUNT_MAX, PODS_MAX, TIME_MS_MAX, Name
from slacktide.schemas.codec import MALFORMED, refusal
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod, Pods
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse, Pressure
from slacktide.schemas.sample_columns import NODE_NUMBERS, NONE, NUMBERS, Looks, More, Now, Of, Part, Psi, Throttled
from slacktide.schemas.sample_looks import looks_of, pressure_of

T = TypeVar("T")

BEGIN = b'{"of":{'
NOW = b',"now":['
LOOKS = b'"looks":['
MORE = b'"more":'
KIND = "NodeSample"


class _Rest(msgspec.Struct, frozen=True, gc=False):
    """The fields after ``now``."""

    looks: Looks = []
    more: More = More()
    psi: Psi | None = None
    throttled: Throttled = []
    facts: Raw = Raw()
    pods: Raw = Raw()
    pods_part: Part | None = None


class _Uid(msgspec.Struct, frozen=True, gc=False):
    uid: Name


class UnknownPodsError(BadMessageError):
    """The pod list of a sample is unknown, so its figures cannot be assigned to pods."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        """The readable fields: ``pod_use`` is empty."""
        super().__init__(KIND, f"the pod list {fields['pods_revision']!r} at `$.of.pods_revision` is not known")

    @property
    def sample(self) -> NodeSample:
        """Return the sample without facts and use by pod."""
        return NodeSample(**self.fields | {"facts": None, "pods": None})


_encode = msgspec.json.Encoder().encode
_decode_of = msgspec.json.Decoder(Of).decode
_decode_now = msgspec.json.Decoder(Now).decode
_decode_first = msgspec.json.Decoder(Annotated[list[Any], Meta(min_length=2)]).decode
_decode_rest = msgspec.json.Decoder(_Rest).decode
_decode_uids = msgspec.json.Decoder(Annotated[list[_Uid], Meta(max_length=PODS_MAX)]).decode
_decode_pods = msgspec.json.Decoder(Pods).decode
_decode_facts = msgspec.json.Decoder(NodeFacts).decode
_NO_MORE = More()
_ALIKE = tuple(name for name in More.__struct_fields__ if name not in {"evict", "others"})
"""Fields that ``NodeSample`` has, too."""
_NO_LIMITS = Limits(be_cfs_quota_us=-1)
_NO_PRESSURE = NodeUse(cpu_milli=None, mem_bytes=None).pressure
"""The default itself: msgspec omits no other."""
_NULL = b"null"
_IN_GROUP = b"01"
_fields = msgspec.structs.astuple
_PSI = Pressure.__struct_fields__


def encoded(sample: NodeSample, pods: Sequence[Pod]) -> bytes:
    """Write a sample in columns.

    Args:
        sample: to be written.
        pods: the list with its ``pods_revision``.
    """
    use, since = sample.use, sample.since_raise_ms
    numbers: list[int | None] = [NONE] * (NODE_NUMBERS + 2 * len(pods))
    numbers[:NODE_NUMBERS] = (
        sample.seq,
        sample.observed_ms,
        sample.interval_ms,
        use.cpu_milli,
        use.mem_bytes,
        NONE if since is None else since,
    )
    group, throttled, others = _columns(sample.pod_use, pods, numbers)
    of = Of(
        node=sample.node,
        boot_id=sample.boot_id,
        clock_epoch=sample.clock_epoch,
        policy_version=sample.policy_version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        limits=_canonical(sample.limits),
        be_group=group,
    )
    more = More(
        evict=_NO_MORE.evict if sample.evict == _NO_MORE.evict else sample.evict,
        others=others,
        **{name: getattr(sample, name) for name in _ALIKE},
    )
    rest: dict[str, object] = {}
    if sample.ls_pressure is not None:
        rest["looks"] = looks_of(sample.ls_pressure)
    if more != _NO_MORE:
        rest["more"] = more
    if use.pressure != _NO_PRESSURE:
        rest["psi"] = msgspec.structs.astuple(use.pressure)
    if throttled:
        rest["throttled"] = throttled
    if sample.pods is not None:
        rest["now_names"] = NUMBERS
    if sample.facts is not None:
        rest["facts"] = sample.facts
    if sample.pods is not None:
        rest["pods"] = sample.pods
    behind = b"," + _encode(rest)[1:] if rest else b"}"
    return b"".join((b'{"of":', _encode(of), NOW, _encode(numbers)[1:], behind))


def with_limits(value: bytes, *, policy_version: str, limits: Limits | None, since_raise_ms: int | None) -> bytes:
    """Return a valid sample in columns with another policy and limit; everything else stays, undecoded."""
    cut = head_of(value)
    end = value.index(b"]", cut)
    numbers = value[cut:end].split(b",", NODE_NUMBERS)
    numbers[NODE_NUMBERS - 1] = b"%d" % (NONE if since_raise_ms is None else since_raise_ms)
    of = decode_of(value[:cut])
    changed = msgspec.structs.replace(of, policy_version=policy_version, limits=_canonical(limits))
    return b"".join((b'{"of":', _encode(changed), NOW, b",".join(numbers), value[end:]))


def _canonical(limits: Limits | None) -> Limits | None:
    """Make equal limits encode to equal bytes: msgspec omits a default only if it is the same object."""
    if limits is None or limits.be_cfs_period_us != _NO_LIMITS.be_cfs_period_us:
        return limits
    return Limits(be_cfs_quota_us=limits.be_cfs_quota_us, be_cpuset=limits.be_cpuset)


def _columns(
    uses: Sequence[PodUse], pods: Sequence[Pod], numbers: list[int | None]
) -> tuple[str, list[int | None], list[PodUse]]:
    """Fill in the pods' numbers in the order of the list.

    Returns:
        Which pods are in the best-effort cgroup, throttling, and uses of pods that are not in the list.
    """
    place_of = (_places if isinstance(pods, list) else _places_kept)(pods).get
    group = bytearray(len(pods))
    throttled: list[tuple[int, int | None, int | None]] = []
    others = []
    for use in uses:
        uid, cpu_milli, mem_bytes, periods, throttled_periods, in_group = _fields(use)
        place = place_of(uid)
        if place is None or group[place]:
            others.append(use)
            continue
        at = NODE_NUMBERS + 2 * place
        numbers[at], numbers[at + 1], group[place] = cpu_milli, mem_bytes, _IN_GROUP[in_group]
        if periods is not None or throttled_periods is not None:
            throttled.append((place, periods, throttled_periods))
    throttled.sort(key=itemgetter(0))
    return group.replace(b"\0", b"0").decode(), list(chain.from_iterable(throttled)), others


def _places(pods: Sequence[Pod]) -> dict[str, int]:
    """Index by uid; the last one of a uid counts."""
    return {pod.uid: place for place, pod in enumerate(pods)}


_places_kept = lru_cache(maxsize=1)(_places)
"""Cached for the current list. Not for a ``list``, which may be changed in place."""


def head_of(value: bytes) -> int:
    """Return the end of the head, after the bracket that opens ``now``.

    Raises:
        BadMessageError: not a sample in columns.
    """
    at = value.find(NOW) if value.startswith(BEGIN) else -1
    if at < 0:
        raise BadMessageError(KIND, f"a sample in columns begins with `{BEGIN.decode()}` and holds `{NOW.decode()}`")
    return at + len(NOW)


def decode_of(head: bytes) -> Of:
    """Read a head, as ``head_of`` cuts it off. Raises BadMessageError if a field is absent or refused."""
    return _read(_decode_of, head[len(BEGIN) - 1 : -len(NOW)], "$.of")


def identity_of(value: bytes) -> tuple[Of, Any, Any]:
    """Read the head, ``seq`` and ``observed_ms`` (both undecoded). All else may be unreadable.

    Raises:
        BadMessageError: one of them is absent.
    """
    cut = head_of(value)
    first = _read(_decode_first, b"[" + value[cut : value.find(b"]", cut) + 1], "$.now")
    return decode_of(value[:cut]), first[0], first[1]


def carried(value: bytes) -> tuple[Raw, Raw]:
    """Read facts and the whole pod list, undecoded; empty if the sample does not carry them.

    Raises:
        BadMessageError: the fields after ``now`` cannot be read.
    """
    rest = _read(_decode_rest, b"{" + value[_end_of_list(value, head_of(value), "now") :], "$")
    return rest.facts, Raw() if rest.pods_part or bytes(rest.pods) == _NULL else rest.pods


def to_sample(value: bytes | None, pods_of_revision: Callable[[str], Sequence[str] | None]) -> NodeSample:
    """Decode a sample for the scalar rules.

    Args:
        value: a record's body.
        pods_of_revision: the uids of the pod list that a revision names; None: it is not known.

    Raises:
        UnknownPodsError: the list is neither known nor carried.
        BadMessageError: a field is absent or refused: its path, value and range are in the text.
    """
    fields = fields_of(value, pods_of_revision)
    facts, pods = bytes(fields["facts"]), bytes(fields["pods"])
    fields["facts"] = None if facts in (b"", _NULL) else _read(_decode_facts, facts, "$.facts")
    fields["pods"] = None if pods in (b"", _NULL) else _read(_decode_pods, pods, "$.pods")
    return NodeSample(**fields)


def fields_of(value: bytes | None, pods_of_revision: Callable[[str], Sequence[str] | None]) -> dict[str, Any]:
    """Read the fields of a ``NodeSample``; facts and pods stay undecoded, as ``msgspec.Raw``.

    Raises:
        UnknownPodsError: the list is neither known nor carried.
        BadMessageError: a field is absent or refused: its path, value and range are in the text.
    """
    if value is None:
        raise BadMessageError(KIND, "the value is null")
    cut = head_of(value)
    end = _end_of_list(value, cut, "now")
    of = decode_of(value[:cut])
    now = _read(_decode_now, b"[" + value[cut:end].rstrip(b","), "$.now")
    rest = _read(_decode_rest, b"{" + value[end:], "$")
    _check_places(value, end, rest)
    pods = Raw() if rest.pods_part or bytes(rest.pods) == _NULL else rest.pods
    uids: Sequence[str] | None = []
    if of.be_group:  # else it has no figures of listed pods, and needs no list
        listed = [pod.uid for pod in _read(_decode_uids, bytes(pods), "$.pods")] if pods else None
        uids = pods_of_revision(of.pods_revision) if listed is None else listed
    _check(of, now, None if uids is None else len(uids))
    fields: dict[str, Any] = {
        "node": of.node,
        "boot_id": of.boot_id,
        "seq": now[0],
        "clock_epoch": of.clock_epoch,
        "observed_ms": now[1],
        "interval_ms": now[2],
        "policy_version": of.policy_version,
        "facts_revision": of.facts_revision,
        "pods_revision": of.pods_revision,
        "use": NodeUse(
            cpu_milli=now[3],
            mem_bytes=now[4],
            pressure=_NO_PRESSURE if rest.psi is None else Pressure(**dict(zip(_PSI, rest.psi, strict=True))),
        ),
        "pod_use": [],
        "limits": of.limits,
        "since_raise_ms": None if now[5] == NONE else now[5],
        "facts": rest.facts,
        "pods": pods,
        "ls_pressure": pressure_of(rest.looks),
        **{name: getattr(rest.more, name) for name in _ALIKE},
    }
    if rest.more.evict != _NO_MORE.evict:
        fields["evict"] = rest.more.evict
    if uids is None:
        raise UnknownPodsError(fields)
    uses = _uses(of, now, uids, rest.throttled) + rest.more.others
    if len(uses) > PODS_MAX:
        raise BadMessageError(KIND, f"Expected {PODS_MAX} pods at most - at `$.more.others`: {len(uses)} use something")
    return fields | {"pod_use": uses}


def _uses(of: Of, now: Sequence[int | None], uids: Sequence[str], throttled: Sequence[int | None]) -> list[PodUse]:
    """The figures of each pod."""
    cfs: dict[int, tuple[int | None, int | None]] = {}
    for at in range(0, len(throttled), 3):
        place = throttled[at]
        if place is None or place >= len(uids) or at + 3 > len(throttled):
            raise BadMessageError(KIND, f"Expected a place below {len(uids)} and two numbers - at `$.throttled[{at}]`: "
                                        f"the value is {place}")  # fmt: skip
        cfs[place] = throttled[at + 1], throttled[at + 2]
    found = []
    for place, (uid, cpu, mem, in_group) in enumerate(
        zip(uids, now[NODE_NUMBERS::2], now[NODE_NUMBERS + 1 :: 2], of.be_group, strict=True)
    ):
        if cpu != NONE:
            periods, throttled_periods = cfs.get(place, (None, None))
            found.append(
                PodUse(
                    uid=uid,
                    cpu_milli=cpu,
                    mem_bytes=mem,
                    periods=periods,
                    throttled_periods=throttled_periods,
                    best_effort_group=in_group == "1",
                )
            )
    return found


_RANGES: tuple[tuple[str, int, int, bool], ...] = (
    ("seq", 0, COUNT_MAX, False),
    ("observed_ms", 0, TIME_MS_MAX, False),
    ("interval_ms", 0, TIME_MS_MAX, False),
    ("cpu_milli", 0, AMOUNT_MAX, True),
    ("mem_bytes", 0, AMOUNT_MAX, True),
    ("since_raise_ms", NONE, TIME_MS_MAX, False),
)
"""The node's numbers: name, minimum, maximum, and whether it may be unknown."""


def _check(of: Of, now: Sequence[int | None], pods: int | None) -> None:
    """Refuse impossible figures, and a wrong number of pods.

    Args:
        of: the head.
        now: the figures.
        pods: number of pods in the list; None: unknown.

    Raises:
        BadMessageError: with the number's place, name, value and range.
    """
    for at, (name, least, most, unknown) in enumerate(_RANGES):
        number = now[at]
        if not unknown if number is None else not least <= number <= most:
            raise _refused(at, name, number, least, most, unknown=unknown)
    count = len(now) - NODE_NUMBERS
    if count != 2 * len(of.be_group) or (pods is not None and count != 2 * pods):
        listed = "" if pods is None else f" and the pod list {pods}"
        raise BadMessageError(KIND, f"`$.now` has {count} numbers of pods, `$.of.be_group` {len(of.be_group)}"
                                    f"{listed} pods; accepted: two numbers for each pod")  # fmt: skip
    for at in range(NODE_NUMBERS, len(now), 2):
        if now[at] == now[at + 1] == NONE:
            continue
        for place, name in ((at, "cpu_milli"), (at + 1, "mem_bytes")):
            number = now[place]
            if number is not None and not 0 <= number <= AMOUNT_MAX:
                raise _refused(place, f"{name} of pod {(at - NODE_NUMBERS) // 2}", number, 0, AMOUNT_MAX, unknown=True)


def _refused(at: int, name: str, number: int | None, least: int, most: int, *, unknown: bool) -> BadMessageError:
    wanted = f"`int{' | null' if unknown else ''}` in {least}..{most}"
    return BadMessageError(
        KIND, f"Expected {wanted} - at `$.now[{at}]`, {name}: the value is {_encode(number).decode()}"
    )


def _check_places(value: bytes, end: int, rest: _Rest) -> None:
    """Refuse ``looks`` or ``more`` where arrays do not look for them. ``end``: of ``now``."""
    if rest.looks and not value.startswith(LOOKS, end):
        raise BadMessageError(KIND, "`$.looks` does not stand right behind `$.now`")
    behind = _end_of_list(value, end, "looks") if rest.looks else end
    if rest.more != _NO_MORE and not value.startswith(MORE, behind):
        raise BadMessageError(KIND, "`$.more` does not stand right behind `$.now` and `$.looks`")


def _end_of_list(value: bytes, cut: int, name: str) -> int:
    """Where the fields after a list of numbers begin, without the comma."""
    at = value.find(b"]", cut) + 1
    if not at:
        raise BadMessageError(KIND, f"JSON is malformed: the list `$.{name}` does not end")
    return at + value.startswith(b",", at)


def _read(decode: Callable[[bytes], T], raw: bytes, path: str) -> T:
    """Decode a part of a record, with its path in the record. Raises BadMessageError if it is refused."""
    try:
        return decode(raw)
    except MALFORMED as exc:
        why = refusal(raw, exc)
        if path == "$":
            raise BadMessageError(KIND, why) from exc
        placed = why.replace(" at `$", f" at `{path}", 1)
        raise BadMessageError(KIND, placed if placed != why else f"{why} - at `{path}`") from exc
