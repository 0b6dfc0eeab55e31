"""Decodes cases to the types of rules. Annotations contain how cases write a type: names, bounds and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta

T = TypeVar("T")
Build = Callable[..., Any]
"""Converts a decoded value to its type; the text is the value's path in the case."""

AMOUNT_MAX = 2**53
"""The rules compute with doubles, which are exact up to here."""
Amount = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]
Whole = Annotated[int, Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
"""An integer that may be negative: a priority, a cost, a quota of -1."""
Percent = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
"""Rules handle percents below 0 or above 100; only absurd values are rejected."""
Cores = Annotated[float, Meta(ge=0, le=1e9)]
Seconds = Whole

_BOUNDED = {"_milli": Amount, "_bytes": Amount, "_cores": Cores, "_pct": Percent}
"""Types of a rule's numbers by the unit in their names."""
_IN_FULL = {"_s": "_seconds", "_pct": "_percent", "_time_min": "_time_minutes"}
_NAMES = {
    "affinity": "node_affinity_terms",
    "after_initialized_s": "estimated_seconds_after_initialized",
    "after_scheduled_s": "estimated_seconds_after_pod_scheduled",
    "allow_customize": "allow_customize_estimation",
    "be": "be_pools",
    "borrow_least": "preference",
    "cpu_static": "cpu_manager_static",
    "custom_after_initialized_s": "custom_estimated_seconds_after_initialized",
    "custom_after_scheduled_s": "custom_estimated_seconds_after_pod_scheduled",
    "custom_factors": "custom_scaling_factors",
    "daemonset": "owned_by_daemonset",
    "dominant_weight": "dominant_resource_weight",
    "elapsed_s": "seconds_since_limiter_update",
    "expiration_s": "node_metric_expiration_seconds",
    "factors": "estimated_scaling_factors",
    "filter_expired": "filter_expired_node_metrics",
    "initialized_s": "initialized_time_seconds",
    "inits": "init_containers",
    "kube_qos": "kube_qos_class",
    "limiter": "limiter_tokens_before",
    "ls": "ls_pools",
    "max_zones": "max_numa_nodes",
    "memory_static": "memory_manager_static",
    "metric_expiration_s": "node_metric_expiration_seconds",
    "next_when_borrowing": "when_can_borrow",
    "next_when_preempting": "when_can_preempt",
    "pod_level": "pod_level_requests",
    "policies": "topology_policies",
    "prefer_closest": "prefer_closest_numa_nodes",
    "preferred": "preferred_bind_policy",
    "priority_class_label": "priority_class",
    "prod_include_system": "prod_usage_include_system",
    "qos": "kube_qos_class",
    "qos_label": "qos_class",
    "quota_us": "current_cfs_quota_us",
    "reference_ms": "reference_seconds",
    "required": "required_bind_policy",
    "schedule_when_expired": "enable_schedule_when_node_metrics_expired",
    "scheduled_s": "scheduled_time_seconds",
    "scheduler": "scheduler_name",
    "score_prod": "score_according_prod_usage",
    "sidecar": "restart_policy_always",
    "taints": "node_taints",
    "throttled_ratio": "throttled_ratio_last",
    "too_few_targets": "number_of_nodes",
    "use_deviation": "use_deviation_thresholds",
    "used": "usage",
    "used_cores": "cpu_usage_cores",
    "weights": "resource_weights",
    "zone": "numa_node",
    "BeCpu.limit_milli": "real_limit_milli",
    "BurstContainer.limit_milli": "cpu_limit_milli",
    "BurstContainer.used_cores": "cpu_usage_cores_last",
    "CoresPod.cpus": "status_cpuset",
    "CpusetRule.system": "system_qos",
    "Factors.cpu_pct": "cpu",
    "Factors.mem_pct": "memory",
    "NodeNeeds.selector": "node_selector",
    "PlacedPod.created_s": "creation_time_seconds",
    "SharePoolPod.request_milli": "cpu_request_milli",
    "Spec.exclusive": "exclusive_policy",
    "Wish.bind": "bind_policy",
    "Wish.exclusive": "exclusive_policy",
    "Wish.required": "bind_policy_required",
    "Zone.costs": "distances",
}
"""Names in cases of fields that the rules call differently, all or those of one type."""
_IN_INPUTS = {name: _NAMES[name] for name in ("kube_qos", "priority_class_label", "qos_label", "used_cores")}

_NULL = "null"
Nullable = Annotated[T, _NULL]
"""A field with a default: null counts as absent."""
_FLAT = "flat"
Flat = Annotated[T, _FLAT]
"""A field whose type has a ``Form``: the object that contains it has that type's fields."""


def name_in_cases(field: str) -> str:
    """Return the name of a rule's field in cases, which write units and memory in full."""
    for unit, in_full in _IN_FULL.items():
        if field.endswith(unit):
            field = field.removesuffix(unit) + in_full
    return _IN_INPUTS.get(field, field.replace("mem_", "memory_"))


class Given(msgspec.Struct, frozen=True, kw_only=True, rename=name_in_cases):
    """The base of inputs that are no rule's type. Unknown fields are ignored."""


class By:
    """In ``Annotated[T, By(convert, form)]``: cases write the type ``form``, which ``convert`` converts to T.

    ``convert`` also gets the value's path, for its errors.
    """

    def __init__(self, convert: Build, form: Any) -> None:
        self.convert, self.form = convert, form


class Form:
    """In ``Annotated[T, Form(...)]``: the fields of the rule's type T in cases; null means the field's default.

    Args:
        fields: the names of those that cases have; "": all.
        strict: null is an error.
        names: names in cases that differ from the usual ones.
        make: a function that returns T, whose arguments are the fields.
        changed: the type, the default or both of fields for which cases have another one. Null is an error unless the
            type is ``Nullable``. ``...`` instead of a default: the field is required.
    """

    def __init__(
        self,
        fields: str = "",
        *,
        strict: bool = False,
        names: Mapping[str, str] | None = None,
        make: Callable[..., Any] | None = None,
        **changed: Any,
    ) -> None:
        self.fields, self.changed = fields.split(), changed
        self.strict, self.names, self.make = strict, names or {}, make

    def fields_of(self, kind: Callable[..., object]) -> list[_Field]:
        """Return the fields of the rule's type in cases."""
        hints, parameters = get_type_hints(kind, include_extras=True), inspect.signature(kind).parameters
        return [
            self._field(name, _name_of(kind, name), hints[name], parameters[name]) for name in self.fields or parameters
        ]

    def _field(self, name: str, encoded: str, hint: Any, parameter: inspect.Parameter) -> _Field:
        changed = self.changed.get(name, ())
        parts = changed if isinstance(changed, tuple) and changed else (changed,) if name in self.changed else ()
        types, defaults = [one for one in parts if _is_type(one)], [one for one in parts if not _is_type(one)]
        optional, no_default = NoneType in get_args(hint), parameter.default is parameter.empty
        required = ... in defaults if defaults else no_default and not optional
        default = defaults[0] if defaults else None if optional and no_default else UNSET
        hint = types[0] if types else _bounded(name, hint)
        if not (types or required or self.strict):
            hint = Annotated[hint, _NULL]
        return _Field(name, self.names.get(name, encoded), hint, required, default)


class _Field(NamedTuple):
    name: str
    encoded: str
    hint: Any
    required: bool
    default: Any = UNSET
    """Of an absent field; UNSET: as the type's."""


def _name_of(kind: Callable[..., object], name: str) -> str:
    return _NAMES.get(f"{kind.__name__}.{name}") or _NAMES.get(name) or name_in_cases(name)


def _is_type(value: object) -> bool:
    return isinstance(value, (type, UnionType)) or get_origin(value) is not None


def _bounded(name: str, hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        return Union[tuple(_bounded(name, one) for one in get_args(hint))]  # noqa: UP007 - of a tuple
    number = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if number not in {int, float}:
        return hint
    return next(
        (bounded for unit, bounded in _BOUNDED.items() if name.endswith(unit)), Whole if number is int else number
    )


@cache
def in_cases(hint: Any) -> tuple[Any, Build | None]:
    """Return the type to decode for an annotation, and how its values are built; None: they are as decoded."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(*args)
    if origin in {Union, UnionType}:
        parts = [in_cases(one) for one in args]
        builds = {_class_of(decoded): build for decoded, build in parts if build is not None}
        decoded: Any = Union[tuple(decoded for decoded, _ in parts)]  # noqa: UP007 - of a tuple
        return decoded, _of_class(builds) if builds else None
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _collection(origin, args)
    if isinstance(hint, type) and issubclass(hint, Given):
        hints = get_type_hints(hint, include_extras=True)
        fields = [
            _Field(one.name, one.encode_name, hints[one.name], one.required) for one in msgspec.structs.fields(hint)
        ]
        if all(in_cases(one.hint)[1] is None and not _has(one.hint, _NULL) for one in fields):
            return hint, None
        config = hint.__struct_config__
        return _built(hint, fields, tag_field=config.tag_field, tag=config.tag)
    return hint, None


def _class_of(decoded: Any) -> Any:
    plain = get_args(decoded)[0] if get_origin(decoded) is Annotated else decoded
    return get_origin(plain) or plain


def _of_class(builds: Mapping[Any, Build]) -> Build:
    return lambda value, path: builds[type(value)](value, path) if type(value) in builds else value


def _collection(origin: type, args: tuple[Any, ...]) -> tuple[Any, Build | None]:
    mapping = issubclass(origin, Mapping)
    decoded, build = in_cases(args[1 if mapping else 0])
    whole = dict[args[0], decoded] if mapping else tuple[decoded, ...] if origin is tuple else list[decoded]  # type: ignore[valid-type]
    if build is None:
        return whole, None
    if mapping:
        return whole, lambda value, path: {key: build(one, path) for key, one in value.items()}
    return whole, lambda value, path: type(value)(build(one, f"{path}[{at}]") for at, one in enumerate(value))


def arguments_in_cases(function: Callable[..., object]) -> tuple[Any, Build]:
    """Return the type to decode for a function's arguments, and how to call it with them."""
    hints = get_type_hints(function, include_extras=True)
    if "given" in hints:
        decoded, build = in_cases(hints["given"])
        return decoded, lambda value, path, **more: function(value if build is None else build(value, path), **more)
    parameters = inspect.signature(function).parameters.values()
    fields = [
        _Field(one.name, name_in_cases(one.name), hints[one.name], one.default is one.empty) for one in parameters
    ]
    return _built(function, fields)


def converted(value: object, kind: type[T], path: str = "input") -> T:
    """Convert a JSON value to an input. Raises msgspec.ValidationError or CaseError if it is not valid."""
    decoded, build = in_cases(cast("Hashable", kind))
    one = msgspec.convert(value, decoded)
    built: T = one if build is None else build(one, path)
    return built


def _annotated(kind: Any, *notes: Any) -> tuple[Any, Build | None]:
    for note in notes:
        if isinstance(note, By):
            decoded, inner = in_cases(note.form)
            build: Build | None = note.convert if inner is None else _then(inner, note.convert)
            break
        if isinstance(note, Form):
            decoded, build = _built(note.make or kind, note.fields_of(note.make or kind))
            break
    else:
        decoded, build = in_cases(kind)
    for note in notes:
        if isinstance(note, Meta):
            decoded = Annotated[decoded, note]
    return (decoded | None if _NULL in notes else decoded), build


def _built(make: Callable[..., Any], fields: Sequence[_Field], **config: Any) -> tuple[Any, Build]:
    """Return a struct with these fields, and the function that makes a value from it."""
    rows: list[tuple[Any, ...]] = []
    names: dict[str, str] = {}
    build = _builder(make, fields, "", rows, names)
    return msgspec.defstruct(make.__name__, rows, frozen=True, kw_only=True, rename=names, **config), build


def _builder(
    make: Callable[..., Any], fields: Sequence[_Field], prefix: str, rows: list[tuple[Any, ...]], names: dict[str, str]
) -> Build:
    """Add the fields to a struct's rows and names, and return the function that makes a value from the struct."""
    flat: dict[str, Build] = {}
    plain: list[tuple[str, str, str, bool, object, Build | None]] = []
    for one in fields:
        inside = f"{prefix}{one.name}"
        if _has(one.hint, _FLAT):
            kind, *notes = get_args(one.hint)
            form = next(note for note in notes if isinstance(note, Form))
            make_flat = form.make or kind
            flat[one.name] = _builder(make_flat, form.fields_of(make_flat), f"{inside}__", rows, names)
            continue
        decoded, convert = in_cases(one.hint)
        rows.append((inside, decoded) if one.required else (inside, decoded, UNSET))
        names[inside] = one.encoded
        plain.append((one.name, inside, one.encoded, _has(one.hint, _NULL), one.default, convert))

    def build(value: Any, path: str) -> Any:
        given = {name: convert(value, path) for name, convert in flat.items()}
        for name, inside, encoded, nullable, default, convert in plain:
            one = getattr(value, inside)
            if one is UNSET or (nullable and one is None):
                if default is not UNSET:
                    given[name] = default
            else:
                given[name] = one if convert is None else convert(one, f"{path}.{encoded}")
        return make(**given)

    return build


def _has(hint: Any, note: str) -> bool:
    return get_origin(hint) is Annotated and note in get_args(hint)[1:]


def _then(inner: Build, convert: Build) -> Build:
    return lambda value, path: convert(inner(value, path), path)
