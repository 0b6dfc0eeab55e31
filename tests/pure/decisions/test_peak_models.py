"""Models of a node's peaks: what trains them, when they expire, what is kept of them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod
from slacktide.streams.decisions.prediction.peak_models import (
    CLASSES,
    NO_USE,
    NODE,
    NODE_ITEMS,
    PERCENTILES,
    SYSTEM,
    PeakModels,
    PeakUse,
)

AT_MS = 1_780_012_800_000
SECOND_MS, MINUTE_MS = 1_000, 60_000
GIB = 1 << 30
PROD, BATCH = CLASSES["koord-prod"], CLASSES["koord-batch"]


def pod(uid: str, band: str = "koord-prod", **more) -> Pod:
    return Pod(uid=uid, namespace="n", name=uid, priority_class_label=band, **more)


def use(cores: float, gib: float = 1.0) -> PeakUse:
    return PeakUse(cpu_cores=cores, mem_bytes=int(gib * GIB))


def trained(*pods, node=None, at_ms=AT_MS) -> PeakModels:
    models = PeakModels()
    models.train(pods, node, at_ms=at_ms)
    return models


def top(models: PeakModels, uid: str) -> tuple[int, int]:
    """The maximum, in millicores and MiB."""
    model = models.models[uid]
    return model.cpu.peak(1.0).amount, model.mem.peak(1.0).amount >> 20


def like(cores: float, gib: float) -> tuple[int, int]:
    """What one sample of this reads as."""
    return top(trained((pod("a"), use(cores, gib))), "a")


def test_a_round_trains_each_pod_its_class_the_node_and_the_system() -> None:
    models = trained(
        (pod("a"), use(2, 4)), (pod("b"), use(1, 2)), (pod("c", "koord-batch"), use(0.5, 1)), node=use(4, 8)
    )

    assert top(models, "a") == like(2, 4)
    assert top(models, PROD) == like(3, 6)
    assert top(models, BATCH) == like(0.5, 1)
    assert top(models, NODE) == like(4, 8)
    assert top(models, SYSTEM) == like(0.5, 1)
    assert models.models.keys() == {"a", "b", "c", *NODE_ITEMS}


def test_a_class_without_pods_gets_a_sample_of_nothing() -> None:
    models = trained(node=use(1, 1))

    for uid in CLASSES.values():
        assert top(models, uid) == (25, 5)
        assert models.models[uid].cpu.total == 1.0


def test_a_pod_without_usage_trains_nothing() -> None:
    models = trained((pod("a"), None), node=use(1, 1))

    assert "a" not in models.models
    assert top(models, SYSTEM) == like(1, 1)


def test_a_pod_trains_whatever_its_phase_and_unknown_classes_count_by_their_qos() -> None:
    odd = pod("b", "odd", kube_qos="Burstable")
    models = trained((pod("a", phase="Succeeded"), use(1, 1)), (odd, use(2, 2)))

    assert top(models, "a") == like(1, 1)
    assert top(models, PROD) == like(3, 3)
    assert top(models, CLASSES[""]) == (25, 5)


@pytest.mark.parametrize(
    ("node", "system"),
    [
        pytest.param(None, (25, 5), id="nothing of a node whose usage is not known"),
        pytest.param(use(1, 8), (25, like(0, 4)[1]), id="each resource by itself, at least 0"),
        pytest.param(use(3, 1), (like(1, 0)[0], 5), id="and the other way round"),
    ],
)
def test_the_system_is_what_the_node_uses_beyond_its_pods(node, system) -> None:
    models = trained((pod("a"), use(2, 4)), node=node)

    assert top(models, SYSTEM) == system
    assert (NODE in models.models) == (node is not None)


def test_a_model_of_a_resource_has_its_own_half_life() -> None:
    models = trained((pod("a"), use(1)))
    models.train([(pod("a"), use(1))], None, at_ms=AT_MS + 24 * 60 * MINUTE_MS)

    assert models.models["a"].cpu.total == 5.0
    assert models.models["a"].mem.total == 3.0


def test_a_model_expires_after_30_minutes_without_a_sample() -> None:
    models = trained((pod("a"), use(1)), (pod("b"), use(1)))
    models.train([(pod("b"), use(1))], None, at_ms=AT_MS + 30 * MINUTE_MS)

    assert models.expire(at_ms=AT_MS + 30 * MINUTE_MS) == []
    assert models.expire(at_ms=AT_MS + 30 * MINUTE_MS + 1) == ["a"]
    assert models.models.keys() == {"b", *NODE_ITEMS} - {NODE}


def test_a_model_is_saved_again_after_10_minutes() -> None:
    models = trained()
    first = models.save(at_ms=AT_MS)

    assert first.keys() == {SYSTEM, *CLASSES.values()}
    assert models.save(at_ms=AT_MS + 10 * MINUTE_MS - 1) == {}
    assert models.save(at_ms=AT_MS + 10 * MINUTE_MS).keys() == first.keys()


def test_a_round_saves_12_models_first_those_never_saved_then_the_oldest_by_uid() -> None:
    pods = [(pod(f"p{index:02}"), use(1)) for index in range(20)]
    models = trained(*pods)
    uids = sorted(models.models)
    rounds = [sorted(models.save(at_ms=AT_MS + minute * MINUTE_MS)) for minute in range(4)]

    assert rounds == [uids[:12], uids[12:24], uids[24:], []]
    models.train([(pod("new"), use(1))], None, at_ms=AT_MS + 10 * MINUTE_MS)
    assert sorted(models.save(at_ms=AT_MS + 11 * MINUTE_MS)) == sorted(["new", *uids[:11]])
    assert sorted(models.save(at_ms=AT_MS + 13 * MINUTE_MS)) == sorted(uids[11:23])


def test_of_models_that_were_saved_the_oldest_comes_first_whatever_its_uid() -> None:
    models = trained(*[(pod(f"z{index}"), use(1)) for index in range(6)])
    first = models.save(at_ms=AT_MS).keys()
    models.train([(pod("a"), use(1))], None, at_ms=AT_MS)

    assert len(first) == 12
    assert models.save(at_ms=AT_MS + MINUTE_MS).keys() == {"a"}
    assert models.save(at_ms=AT_MS + 11 * MINUTE_MS).keys() == first
    assert models.save(at_ms=AT_MS + 11 * MINUTE_MS).keys() == {"a"}


def test_uses_add_up_and_what_is_beyond_is_never_negative() -> None:
    one, other = PeakUse(cpu_cores=2.5, mem_bytes=7), PeakUse(cpu_cores=1.0, mem_bytes=9)

    assert one.plus(other) == PeakUse(cpu_cores=3.5, mem_bytes=16)
    assert one.beyond(other) == PeakUse(cpu_cores=1.5, mem_bytes=0)
    assert other.beyond(one) == PeakUse(cpu_cores=0, mem_bytes=2)
    assert PeakUse(cpu_cores=0, mem_bytes=0) == NO_USE


def test_before_its_first_round_nothing_expires_and_nothing_is_saved() -> None:
    saved = trained((pod("a"), use(1))).save(at_ms=AT_MS)
    models = PeakModels.restored(saved, {"a"})

    assert not models.synced
    assert models.expire(at_ms=AT_MS + 1_000 * MINUTE_MS) == []
    assert models.save(at_ms=AT_MS + 1_000 * MINUTE_MS) == {}
    models.train([], None, at_ms=AT_MS + 1_000 * MINUTE_MS)
    assert models.synced
    assert models.expire(at_ms=AT_MS + 1_000 * MINUTE_MS) == ["a"]


def test_after_a_restart_the_nodes_items_and_pods_still_here_go_on() -> None:
    pods = [(pod("a"), use(2, 4)), (pod("gone"), use(1, 1))]
    before = trained(*pods, node=use(4, 8))
    saved = before.save(at_ms=AT_MS + 5 * MINUTE_MS)
    models = PeakModels.restored(saved, {"a", "unsaved"})

    assert models.models.keys() == {"a", *NODE_ITEMS}
    assert {uid: top(models, uid) for uid in models.models} == {uid: top(before, uid) for uid in models.models}
    assert {model.updated_ms for model in models.models.values()} == {AT_MS + 5 * MINUTE_MS}
    assert {model.saved_ms for model in models.models.values()} == {None}


@pytest.mark.parametrize("half", ["cpu", "mem"])
def test_a_checkpoint_that_is_refused_makes_no_model(half) -> None:
    """An empty one would predict that the pod needs nothing."""
    saved = trained((pod("a"), use(2))).save(at_ms=AT_MS)
    broken = msgspec.structs.replace(getattr(saved["a"], half), total_weight=-1.0)
    saved["a"] = msgspec.structs.replace(saved["a"], **{half: broken})

    assert "a" not in PeakModels.restored(saved, {"a"}).models


uses = st.builds(use, st.integers(0, 64 * 8).map(lambda part: part / 64), st.integers(0, 64))
rounds = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.tuples(uses, st.sampled_from([*CLASSES]))), min_size=1, max_size=8
)


@given(rounds)
def test_a_class_peaks_at_least_as_high_as_each_of_its_pods_in_one_class(each) -> None:
    models = PeakModels()
    for index, pods in enumerate(each):
        models.train([(pod(uid), used) for uid, (used, _) in pods.items()], None, at_ms=AT_MS + index * 60 * SECOND_MS)

    for uid in models.models.keys() - NODE_ITEMS:
        assert top(models, PROD)[0] >= top(models, uid)[0]
        assert top(models, PROD)[1] >= top(models, uid)[1]


@given(rounds, st.randoms(use_true_random=False))
def test_the_order_of_pods_does_not_matter(each, random) -> None:
    """The amounts add up exactly here."""
    one, other = PeakModels(), PeakModels()
    for index, pods in enumerate(each):
        listed = [(pod(uid, band), used) for uid, (used, band) in pods.items()]
        at_ms = AT_MS + index * 60 * SECOND_MS
        one.train(listed, use(9, 99), at_ms=at_ms)
        other.train(random.sample(listed, len(listed)), use(9, 99), at_ms=at_ms)

    assert one.models == other.models


@given(rounds)
def test_a_restart_moves_no_peak_by_more_than_a_bucket(each) -> None:
    """Few samples: none is too light to be kept."""
    models = PeakModels()
    for index, pods in enumerate(each):
        listed = [(pod(uid, band), used) for uid, (used, band) in pods.items()]
        models.train(listed, use(9, 99), at_ms=AT_MS + index * 60 * SECOND_MS)
    saved = models.save(at_ms=AT_MS) | models.save(at_ms=AT_MS)
    loaded = PeakModels.restored(saved, set("abc"))

    assert loaded.models.keys() == models.models.keys()
    for uid, model in models.models.items():
        assert loaded.models[uid].cpu.peak(PERCENTILES["max"]).amount == model.cpu.peak(1.0).amount
        assert loaded.models[uid].cpu.total == model.cpu.total
