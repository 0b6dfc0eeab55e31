"""Strategic merge patches, on pods."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.admission.strategic_merge_patch import MERGE_KEYS, PatchError, patched
from testbed.vectors import each_row


def in_spec(**fields) -> dict:
    return {"spec": fields}


def named(*names: str, **more) -> list[dict]:
    return [{"name": name, **more} for name in names]


def names(items: list[dict]) -> str:
    return "".join(item["name"] for item in items)


@each_row("pod", "patch", "expected")
def test_maps(pod: dict, patch: dict, expected: dict) -> None:
    assert patched(pod, patch) == expected


@each_row("before", "patch", "expected")
def test_items_are_merged_by_name(before: str, patch: list, expected: str) -> None:
    result = patched(in_spec(containers=named(*before)), in_spec(containers=patch))

    assert (
        "".join(f"[{n}]" if len(n) > 1 else n for n in (one["name"] for one in result["spec"]["containers"]))
        == expected
    )


def test_items_of_one_name_are_merged_as_maps() -> None:
    before = [{"name": "a", "image": "old", "env": named("X", "Y", value="1"), "args": ["x"]}, {"name": "b"}]
    patch = [{"name": "a", "image": "new", "env": [{"name": "Y", "value": "2"}, {"name": "X", "$patch": "delete"}]}]

    assert patched(in_spec(containers=before), in_spec(containers=patch))["spec"]["containers"] == [
        {"name": "a", "image": "new", "env": [{"name": "Y", "value": "2"}], "args": ["x"]},
        {"name": "b"},
    ]


def test_a_new_item_brings_no_nulls_and_directives() -> None:
    patch = [{"name": "a", "image": None, "resources": {"$patch": "delete"}, "env": [{"$patch": "replace"}]}]

    assert patched(in_spec(), in_spec(containers=patch)) == in_spec(containers=[{"name": "a", "env": []}])
    assert patched(in_spec(containers=[]), in_spec(containers=patch)) == in_spec(containers=[{"name": "a", "env": []}])


def test_two_items_of_one_name_in_the_patch_meet() -> None:
    patch = [{"name": "a", "image": "i"}, {"name": "a", "tty": True}]

    assert patched(in_spec(containers=[]), in_spec(containers=patch))["spec"]["containers"] == [
        {"name": "a", "image": "i", "tty": True}
    ]


@pytest.mark.parametrize("path", sorted(set(MERGE_KEYS) - {"metadata.finalizers"}))
def test_each_list_is_merged_by_its_own_key(path: str) -> None:
    """Reading: the patchMergeKey tags in kubernetes' core/v1 types."""
    keys = {"ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath", "hostAliases": "ip",
            "ownerReferences": "uid", "topologySpreadConstraints": "topologyKey"}  # fmt: skip
    *outer, name = path.split(".")
    key = keys.get(name, "name")

    def at(*items: dict) -> dict:
        value: object = {name: list(items)}
        for part in reversed(outer):
            whole = [{"name": "c", **value}] if "ontainers" in part else value
            value = {part: whole}
        return value

    assert patched(at({key: 1, "a": 1}, {key: 2}), at({key: 1, "b": 2})) == at({key: 1, "a": 1, "b": 2}, {key: 2})


@each_row("patch", "expected")
def test_a_list_of_texts(patch: dict, expected: list[str]) -> None:
    assert patched({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": patch}) == {
        "metadata": {"finalizers": expected}
    }


@each_row("items", "order", "expected")
def test_the_order_of_items_can_be_given(items: str | None, order: str, expected: str) -> None:
    patch = {"$setElementOrder/containers": named(*order)}
    if items is not None:
        patch["containers"] = named(*items)

    assert names(patched(in_spec(containers=named(*"abc")), {"spec": patch})["spec"]["containers"]) == expected


def test_an_order_of_nothing_does_nothing() -> None:
    assert patched({"spec": {}}, {"spec": {"$setElementOrder/containers": named("a")}}) == {"spec": {}}
    assert patched({"metadata": {}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {"metadata": {}}


def test_an_order_may_leave_out_what_is_deleted() -> None:
    patch = {"containers": [{"name": "a", "$patch": "delete"}], "$setElementOrder/containers": named("c", "b")}

    assert names(patched(in_spec(containers=named(*"abc")), {"spec": patch})["spec"]["containers"]) == "cb"


TWO = {"metadata": {"finalizers": ["a"], "labels": {"x": "1"}}, "spec": {"containers": named("a", "b")}}


@each_row("patch", "why")
def test_what_cannot_be_merged_is_refused(patch: object, why: str) -> None:
    with pytest.raises(PatchError) as refused:
        patched(TWO, patch)

    assert str(refused.value) == why


def test_a_patch_without_end_is_refused() -> None:
    deep: dict = {}
    for _ in range(3_000):
        deep = {"a": deep}

    with pytest.raises(PatchError, match="nested too deep"):
        patched(deep, deep)


_names = st.sampled_from("abc")
_texts = st.dictionaries(_names, st.sampled_from("xyz"), max_size=3)
_env = st.lists(st.fixed_dictionaries({"name": _names, "value": _names}), unique_by=lambda one: one["name"])
_containers = st.lists(
    st.fixed_dictionaries({"name": _names}, optional={"image": _names, "env": _env, "args": st.lists(_names)}),
    unique_by=lambda one: one["name"],
)
_pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": _texts, "finalizers": st.lists(_names, unique=True)}),
        "spec": st.fixed_dictionaries({}, optional={"containers": _containers, "priority": st.integers(0, 9)}),
    },
)


def _in(pod: dict, outer: str, name: str) -> list | dict:
    return pod.get(outer, {}).get(name, [])


@given(_pods, _pods)
def test_a_patch_without_directives_holds_afterwards_and_is_done_once(pod: dict, patch: dict) -> None:
    given_pod, given_patch = deepcopy(pod), deepcopy(patch)
    once = patched(pod, patch)

    assert patched(once, patch) == once
    assert (pod, patch) == (given_pod, given_patch)
    assert patched(pod, {}) == pod
    assert patched(pod, pod) == pod
    assert dict(_in(patch, "metadata", "labels")).items() <= dict(_in(once, "metadata", "labels")).items()
    for part in (pod, patch):
        assert set(names(_in(part, "spec", "containers"))) <= set(names(_in(once, "spec", "containers")))
