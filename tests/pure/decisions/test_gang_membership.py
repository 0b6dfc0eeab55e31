"""Which gang a pod is in by its labels and annotations, and what the gang asks for."""

import json

import pytest

from slacktide.streams.decisions.gang.membership import Membership, Options, membership, needed, options_of_group

GROUP = "pod-group.scheduling.sigs.k8s.io"
X_GROUP = "scheduling.x-k8s.io/pod-group"
KEY = "gang.scheduling.koordinator.sh/"
LEAST = "accepted: a whole number from 1 to 2147483647"


def of(labels: dict[str, str], annotations: dict[str, str] | None = None, native: str = "") -> Membership | None:
    return membership("ns", labels, annotations or {}, native)


def own(annotations: dict[str, str], labels: dict[str, str] | None = None) -> Options:
    found = of(labels or {}, {f"{KEY}name": "g", f"{KEY}min-available": "2", **annotations})
    assert found is not None
    assert found.own is not None
    return found.own


ALL = {GROUP: "a", f"{GROUP}/name": "b", X_GROUP: "d"}


@pytest.mark.parametrize(
    ("labels", "annotations", "native", "gang", "kind"),
    [
        (ALL, {f"{KEY}name": "c"}, "n", "ns/n", "native"),
        (ALL, {f"{KEY}name": "c"}, "", "ns/a", "pod_group"),
        ({f"{GROUP}/name": "b", X_GROUP: "d"}, {f"{KEY}name": "c"}, "", "ns/b", "pod"),
        ({X_GROUP: "d"}, {f"{KEY}name": "c"}, "", "ns/c", "pod"),
        ({X_GROUP: "d"}, {f"{KEY}name": ""}, "", "ns/d", "x_pod_group"),
    ],
)
def test_the_first_field_that_names_a_gang_counts(
    labels: dict[str, str], annotations: dict[str, str], native: str, gang: str, kind: str
) -> None:
    found = of(labels, annotations, native)
    assert found is not None
    assert (found.gang, found.kind) == (gang, kind)
    assert (found.own is None) == (kind != "pod")


def test_a_pod_without_any_is_in_none() -> None:
    assert of({"app": "a"}, {f"{KEY}min-available": "2"}) is None


def test_a_gang_by_annotations_has_these_defaults() -> None:
    assert own({}) == Options(
        least=2, flaw="", mode="Strict", match="once-satisfied", waiting_s=600, together=("ns/g",)
    )


@pytest.mark.parametrize(
    ("annotations", "labels", "least", "flaw"),
    [
        ({f"{KEY}min-available": "2147483647"}, {}, 2_147_483_647, ""),
        ({f"{KEY}min-available": "1"}, {}, 1, ""),
        ({f"{KEY}min-available": "0"}, {}, 0, f"annotation {KEY}min-available: '0'; {LEAST}"),
        ({f"{KEY}min-available": "2147483648"}, {}, 0, f"annotation {KEY}min-available: '2147483648'; {LEAST}"),
        ({f"{KEY}min-available": "x"}, {}, 0, f"annotation {KEY}min-available: 'x'; {LEAST}"),
        ({}, {f"{GROUP}/name": "g"}, 2, ""),
        ({}, {f"{GROUP}/name": "g", f"{GROUP}/min-available": "5"}, 5, ""),
        ({}, {f"{GROUP}/name": "g", f"{GROUP}/min-available": "-1"}, 0,
         f"label {GROUP}/min-available: '-1'; {LEAST}"),
    ],
)  # fmt: skip
def test_the_least_number_is_an_int32_of_at_least_one(
    annotations: dict[str, str], labels: dict[str, str], least: int, flaw: str
) -> None:
    found = own(annotations, labels)
    assert (found.least, found.flaw) == (least, flaw)


def test_an_absent_least_number_is_a_flaw() -> None:
    found = of({}, {f"{KEY}name": "g"})
    assert found is not None
    assert found.own == Options(
        least=0, flaw=f"annotation {KEY}min-available: is absent; accepted: 1 to 2147483647", together=("ns/g",)
    )


@pytest.mark.parametrize(
    ("annotations", "field", "value"),
    [
        ({f"{KEY}mode": "NonStrict"}, "mode", "NonStrict"),
        ({f"{KEY}mode": "Strict"}, "mode", "Strict"),
        ({f"{KEY}mode": "strict"}, "mode", "Strict"),
        ({f"{KEY}match-policy": "only-waiting"}, "match", "only-waiting"),
        ({f"{KEY}match-policy": "waiting-and-running"}, "match", "waiting-and-running"),
        ({f"{KEY}match-policy": "other"}, "match", "once-satisfied"),
        ({f"{GROUP}/match-policy": "only-waiting"}, "match", "only-waiting"),
        ({f"{GROUP}/match-policy": "only-waiting", f"{KEY}match-policy": "waiting-and-running"}, "match",
         "waiting-and-running"),
        ({f"{KEY}waiting-time": "1m30s"}, "waiting_s", 90),
        ({f"{KEY}waiting-time": "0s"}, "waiting_s", 600),
        ({f"{KEY}waiting-time": "-5s"}, "waiting_s", 600),
        ({f"{KEY}groups": '["ns/h","ns/g","ns/h"]'}, "together", ("ns/g", "ns/h")),
        ({f"{KEY}groups": "[]"}, "together", ("ns/g",)),
        ({f"{KEY}groups": "{"}, "together", ("ns/g",)),
    ],
)  # fmt: skip
def test_each_option_has_its_annotation(annotations: dict[str, str], field: str, value: object) -> None:
    found = own(annotations)
    assert getattr(found, field) == value
    assert (found.least, found.flaw) == (2, "")


@pytest.mark.parametrize(
    ("groups", "flaw"),
    [
        (["ns/h"], "does not name the gang itself, ns/g"),
        (["ns/g", "h"], "'h'; accepted: a namespace and a name, as in batch/workers"),
        (["ns/g", ""], "''; accepted: a namespace and a name, as in batch/workers"),
        (["ns/g", "ns/a,ns/b"], "'ns/a,ns/b'; accepted: a namespace and a name, as in batch/workers"),
        (["ns/g", *(f"ns/h{number}" for number in range(100))], "101 gangs; accepted: at most 100"),
    ],
)
def test_a_list_of_groups_that_is_none_is_a_flaw_of_the_gang_alone(groups: list[str], flaw: str) -> None:
    found = own({f"{KEY}groups": json.dumps(groups)})
    assert (found.least, found.flaw, found.together) == (0, f"annotation {KEY}groups: {flaw}", ("ns/g",))


def test_a_hundred_gangs_start_together() -> None:
    groups = ["ns/g", *(f"ns/h{number}" for number in range(99))]
    assert len(own({f"{KEY}groups": json.dumps(groups)}).together) == 100


@pytest.mark.parametrize("name", ["a", "Z9._-", "x" * 253])
def test_names_of_objects_and_labels_are_names_of_gangs(name: str) -> None:
    assert own({f"{KEY}name": name}).flaw == ""


@pytest.mark.parametrize("name", ["-a", "a,b", "a/b", "x" * 254, "ä"])
def test_other_names_are_a_flaw_and_meet_no_other_gang(name: str) -> None:
    found = of({}, {f"{KEY}name": name, f"{KEY}min-available": "1"})
    assert found is not None
    assert found.own is not None
    assert found.gang.startswith("ns/-")
    assert len(found.gang) == len("ns/-") + 16
    assert found.own.together == (found.gang,)
    assert found.own.least == 0
    assert found.own.flaw.startswith(f"annotation {KEY}name: ")
    assert found.own.flaw.endswith("; accepted: letters, digits, '-', '_' and '.', at most 253")


@pytest.mark.parametrize(
    ("least", "timeout_s", "options"),
    [
        (3, None, Options(least=3, together=("ns/g",))),
        (3, 1, Options(least=3, waiting_s=1, together=("ns/g",))),
        (3, 0, Options(least=3, together=("ns/g",))),
        (3, -1, Options(least=3, together=("ns/g",))),
        (3, 2_147_483_647, Options(least=3, waiting_s=2_147_483_647, together=("ns/g",))),
        (3, 2_147_483_648, Options(least=3, together=("ns/g",))),
        (3, "9", Options(least=3, together=("ns/g",))),
        (None, None, Options(least=0, flaw="spec.minMember: is absent; accepted: 1 to 2147483647", together=("ns/g",))),
        (0, None, Options(least=0, flaw=f"spec.minMember: '0'; {LEAST}", together=("ns/g",))),
    ],
)
def test_a_pod_group_has_its_least_number_and_time_in_its_specification(
    least: object, timeout_s: object, options: Options
) -> None:
    assert options_of_group("ns/g", least, timeout_s, {}, {}) == options


@pytest.mark.parametrize(
    ("resources", "free", "flaw"),
    [
        ({"cpu": "1500m", "memory": "1Gi"}, (1_500, 2**30), ""),
        ({"cpu": 2, "nvidia.com/gpu": "8"}, (2_000, 0), ""),
        ({"cpu": "much"}, (0, 0), "spec.minResources: 'much' is not a quantity such as 500m, 2 or 4Gi"),
    ],
)
def test_a_pod_group_may_ask_for_cpu_and_memory_that_is_free(resources, free, flaw) -> None:
    found = options_of_group("ns/g", 2, None, {}, resources)
    assert (found.least_free, found.flaw, found.least) == (free, flaw, 0 if flaw else 2)


def test_a_pod_groups_time_is_not_that_of_an_annotation() -> None:
    found = options_of_group("ns/g", 1, None, {f"{KEY}waiting-time": "5s", f"{KEY}mode": "NonStrict"}, {})
    assert (found.waiting_s, found.mode) == (600, "NonStrict")


@pytest.mark.parametrize(
    ("match", "bound", "satisfied", "least"),
    [
        ("once-satisfied", 0, False, 4),
        ("once-satisfied", 3, False, 1),
        ("once-satisfied", 5, False, 0),
        ("once-satisfied", 0, True, 0),
        ("waiting-and-running", 0, True, 4),
        ("waiting-and-running", 3, True, 1),
        ("waiting-and-running", 4, False, 0),
        ("waiting-and-running", 9, False, 0),
        ("only-waiting", 0, True, 4),
        ("only-waiting", 4, True, 4),
    ],
)
def test_how_many_places_a_plan_needs(match: str, bound: int, least: int, *, satisfied: bool) -> None:
    options = Options(least=4, match=match)  # type: ignore[arg-type]
    assert needed(options, bound=bound, satisfied=satisfied) == least
