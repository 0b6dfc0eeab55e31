"""Strategic merge patches, on pods."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.admission.strategic_merge_patch import MERGE_KEYS, PatchError, patched


def in_spec(**fields) -> dict:
    return {"spec": fields}


def named(*names: str, **more) -> list[dict]:
    return [{"name": name, **more} for name in names]


def names(items: list[dict]) -> str:
    return "".join(item["name"] for item in items)


@pytest.mark.parametrize(
    ("pod", "patch", "expected"),
    [
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}, id="maps are merged"),
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null deletes"),
        pytest.param({"b": 2}, {"a": None}, {"b": 2}, id="null for what is not there does nothing"),
        pytest.param({"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a null there is nothing there"),
        pytest.param({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="nor are nulls added"),
        pytest.param({"a": {"b": 1}}, {"a": 5}, {"a": 5}, id="another type replaces"),
        pytest.param({"a": [1]}, {"a": {"b": 1, "c": None}}, {"a": {"b": 1}}, id="a map for a list, without its nulls"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="an ordinary list is replaced"),
        pytest.param({"a": 1}, {}, {"a": 1}, id="an empty patch changes nothing"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"$patch": "replace", "d": 3}}, {"a": {"d": 3}}, id="replace"),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "delete", "d": 3}}, {"a": {}}, id="delete empties a map"),
        pytest.param({}, {"a": {"$patch": "replace", "b": 1}}, {"a": {"b": 1}}, id="replace where there is nothing"),
        pytest.param({}, {"a": {"$patch": "delete", "b": 1}}, {}, id="delete where there is nothing"),
        pytest.param({}, {"a": {"$patch": "some", "b": 1}}, {}, id="an unknown directive where there is nothing"),
        pytest.param({"a": 1}, {"$patch": "replace", "b": 2}, {"b": 2}, id="the whole pod"),
        pytest.param({}, {"a": {"b": {"$patch": "delete"}, "$retainKeys": ["b"]}}, {"a": {}}, id="none are added"),
        pytest.param({"a": [1]}, {"a": [{"$patch": "delete"}, {"b": 1}]}, {"a": [{"b": 1}]}, id="not in a list either"),
        pytest.param(
            {"a": {"b": 1, "c": 2, "d": 3}}, {"a": {"$retainKeys": ["b", "c"], "c": 4}}, {"a": {"b": 1, "c": 4}},
            id="only retained keys stay",
        ),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": [], "c": None}}, {"a": {}}, id="a null need not be retained"
        ),
    ],
)  # fmt: skip
def test_maps(pod: dict, patch: dict, expected: dict) -> None:
    assert patched(pod, patch) == expected


@pytest.mark.parametrize(
    ("before", "patch", "expected"),
    [
        pytest.param("ab", named("b"), "ab", id="what is named keeps its place"),
        pytest.param("ab", named("c"), "cab", id="what is new comes first"),
        pytest.param("ab", named("b", "c"), "abc", id="what is new follows its predecessor in the patch"),
        pytest.param("abc", named("c", "a"), "bca", id="the patch's order holds among what it names"),
        pytest.param("abcd", named("d", "new", "b"), "acd[new]b", id="and the old order among the others"),
        pytest.param("abc", [{"name": "b", "$patch": "delete"}], "ac", id="delete takes the item out"),
        pytest.param("aba", [{"name": "a", "$patch": "delete"}], "b", id="all items of the name"),
        pytest.param("ab", [{"name": "x", "$patch": "delete"}], "ab", id="deleting what is not there does nothing"),
        pytest.param("ab", [{"$patch": "replace"}, *named("c")], "c", id="replace keeps only the patch's items"),
        pytest.param("ab", [*named("c"), {"$patch": "replace"}], "c", id="wherever it stands"),
        pytest.param("ab", [{"$patch": "replace"}], "", id="and nothing if there are none"),
        pytest.param("ab", [], "ab", id="an empty list changes nothing"),
        pytest.param("", named("b", "a"), "ba", id="into an empty list"),
    ],
)
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


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"finalizers": ["c", "b"]}, ["c", "a", "b"], id="texts are united"),
        pytest.param({"$deleteFromPrimitiveList/finalizers": ["a", "x"]}, ["b"], id="and taken out"),
        pytest.param({"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}, ["c", "b"], id="both"),
        pytest.param({"$setElementOrder/finalizers": ["b", "a"]}, ["b", "a"], id="ordered"),
    ],
)
def test_a_list_of_texts(patch: dict, expected: list[str]) -> None:
    assert patched({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": patch}) == {
        "metadata": {"finalizers": expected}
    }


@pytest.mark.parametrize(
    ("items", "order", "expected"),
    [
        pytest.param(None, "ca", "bca", id="items are put in order, the others keep theirs"),
        pytest.param("d", "bd", "abdc", id="the order places what is new"),
        pytest.param("d", "dc", "dabc", id="or else it comes first"),
        pytest.param("", "cb", "acb", id="a list that adds nothing"),
        pytest.param("dx", "", "dxabc", id="an empty order orders nothing"),
    ],
)
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


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        pytest.param(["a"], "the patch is not an object", id="a list"),
        pytest.param("a", "the patch is not an object", id="a text"),
        pytest.param({"$patch": "merge"}, "pod: $patch: 'merge' is neither delete nor replace", id="unknown, for all"),
        pytest.param(
            {"metadata": {"labels": {"$patch": 1}}}, "metadata.labels: $patch: 1 is neither delete nor replace",
            id="unknown, for a map",
        ),
        pytest.param(
            in_spec(containers=[{"$patch": "merge"}]), "spec.containers: $patch: 'merge' is neither delete nor replace",
            id="unknown, for a list",
        ),
        pytest.param(
            in_spec(containers=[{"image": "i"}]), "spec.containers: an item without 'name' cannot be merged",
            id="an item without its key",
        ),
        pytest.param(
            in_spec(containers=[{"$patch": "delete"}]), "spec.containers: an item without 'name' cannot be merged",
            id="delete without a key",
        ),
        pytest.param(in_spec(containers=["a"]), "spec.containers: an item without 'name' cannot be merged", id="text"),
        pytest.param(
            {"metadata": {"finalizers": [1]}}, "metadata.finalizers: an item that is no text cannot be merged",
            id="a number among texts",
        ),
        pytest.param({"$retainKeys": ["a"], "b": 1}, "pod: $retainKeys is no list of all keys that the patch gives",
                     id="what is given is not retained"),
        pytest.param({"metadata": {"$retainKeys": "labels"}},
                     "metadata: $retainKeys is no list of all keys that the patch gives", id="retained is no list"),
        pytest.param(in_spec(containers=named("a", "b"), **{"$setElementOrder/containers": named("b", "a")}),
                     "spec.containers: $setElementOrder is not in the order of the patch's items", id="two orders"),
        pytest.param(in_spec(containers=named("c"), **{"$setElementOrder/containers": named("a")}),
                     "spec.containers: $setElementOrder is not in the order of the patch's items", id="no place"),
        pytest.param(in_spec(**{"$setElementOrder/args": []}),
                     "spec.args: only a list that is merged can be ordered, and by a list", id="order of another list"),
        pytest.param(in_spec(**{"$setElementOrder/containers": "a"}),
                     "spec.containers: only a list that is merged can be ordered, and by a list", id="order by a text"),
        pytest.param(in_spec(**{"$deleteFromPrimitiveList/containers": []}),
                     "spec.containers: items can be deleted only from a merged list of texts, and by a list",
                     id="texts out of maps"),
        pytest.param(in_spec(**{"$deleteFromPrimitiveList/args": []}),
                     "spec.args: items can be deleted only from a merged list of texts, and by a list",
                     id="texts out of a list that is replaced"),
        pytest.param({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
                     "metadata.finalizers: items can be deleted only from a merged list of texts, and by a list",
                     id="deletion by a text"),
    ],
)  # fmt: skip
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
