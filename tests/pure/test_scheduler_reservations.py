"""Reservations in the extender: who gets one, when its room is whose, and when it is given back."""

import json
from typing import Any

from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.node import Size
from slacktide.agents.cluster.scheduler.view import View
from slacktide.schemas.reservation import ReservationOpen
from slacktide.streams.decisions.load.load_aware_estimator import Amounts
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from slacktide.streams.decisions.reservation.objects import reservation_of
from testbed.kube_scheduler import GIB, WALL_S, Still, answers, figures, manifest, question
from testbed.scheduler_pods import parsed

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


class World:
    """One node of 4 CPUs, on which the placeholder of reservation ``r`` holds 3 for pods with the label app=web."""

    def __init__(self) -> None:
        self.clock, self.view = Still(), View(PlacementArgs())
        self.log: list[tuple[str, ReservationOpen]] = []
        self.read = 0
        self.answers = answers(self.view, lambda _: None, self.clock, "a", lambda key, one: self.log.append((key, one)))
        for record in figures("n", cpu=32_000):
            self.view.receive(record, received_s=self.clock.now_s, logged_s=WALL_S)
        self.view.has("n", Size(Amounts(4_000, 16 * GIB), Amounts(4_000, 16 * GIB)))
        self.reserve("r")
        self.shows(self.pod("reservation-uid-r", cpu=3, node="n", labels={"slacktide.io/reservation": "uid-r"}))

    @property
    def now(self) -> Now:
        return Now.by(self.clock)

    def reserve(self, name: str, phase: str = "Available") -> None:
        containers = [{"resources": {"requests": {"cpu": "3"}}}]
        owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
        template = {"spec": {"schedulerName": "koord-scheduler", "containers": containers}}
        self.answers.reservations.take(reservation_of({
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"owners": owners, "template": template},
            "status": {"phase": phase, "nodeName": "n"},
        }))  # fmt: skip

    def pod(
        self, name: str, *, cpu: int = 3, node: str = "", labels: Any = None, annotations: Any = None
    ) -> dict[str, Any]:
        container = {"name": "main", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}
        made = manifest(name, node=node, priority=9500, containers=[container])
        made["metadata"] |= {"labels": labels or {"app": "web"}, "annotations": annotations or {}}
        return made

    def shows(self, pod: dict[str, Any]) -> None:
        self.view.changed(parsed(pod), at_s=WALL_S)
        self.answers.reservations.changed(parsed(pod), self.now)

    def gone(self, name: str) -> None:
        self.view.gone(("batch", name))
        self.answers.reservations.gone(("batch", name), self.now)

    def passes(self, seconds: float) -> list[str]:
        """Names of pods that are woken then."""
        self.clock.now_s += seconds
        woken = [pod.key[1] for pod in self.answers.reservations.tick(self.now)]
        self.catch_up()
        return woken

    def catch_up(self) -> None:
        for key, record in self.log[self.read :]:
            self.answers.reservations.read(key, record, self.now)
        self.read = len(self.log)

    def asks(self, pod: dict[str, Any]) -> str:
        """The node that a pod gets, or why it gets none."""
        answer = self.answers.filter(question(pod, ["n"]))
        assert isinstance(answer, bytes)
        self.catch_up()
        found = json.loads(answer)
        return found["NodeNames"][0] if found["NodeNames"] else found["FailedAndUnresolvableNodes"]["n"]


def test_it_is_opened_for_a_pending_owner_that_nobody_asked_about() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    [(key, opened)] = world.log
    assert (key, opened.pod_uid, opened.node, opened.ended) == ("uid-r", "uid-web-0", "n", False)


def test_the_owner_waits_for_the_end_of_the_placeholder_and_then_gets_its_node() -> None:
    world = World()
    owner = world.pod("web-0")
    world.shows(owner)
    assert "reservation_opening: a reservation is being opened" in world.asks(owner)
    assert "reservation_opening: r on n: its placeholder is being deleted" in world.asks(owner)
    world.gone("reservation-uid-r")
    assert world.passes(0.5) == ["web-0"]
    assert world.asks(owner) == "n"


def test_between_placeholder_and_owner_the_room_is_nobody_elses() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    world.gone("reservation-uid-r")
    other = world.pod("other", cpu=2, labels={"app": "db"})
    assert "unrequested_short:cpu: pod requests 2000m, but only 1000m is free" in world.asks(other)


def test_a_kube_scheduler_that_sees_the_end_of_the_placeholder_first_gives_its_room_to_nobody_else() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    other = world.pod("other", cpu=2, labels={"app": "db"})
    assert "unrequested_short:cpu: pod requests 2000m, but only 1000m is free" in world.asks(other)


def test_until_the_record_of_its_owner_is_read_the_room_of_a_placeholder_that_is_gone_is_nobodys() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.answers.reservations.tick(world.now)  # the record is not read yet
    other = world.pod("other", cpu=2, labels={"app": "db"})
    world.gone("reservation-uid-r")
    answer = world.answers.filter(question(other, ["n"]))
    assert isinstance(answer, bytes)
    assert b"only 1000m is free" in answer
    world.catch_up()
    assert "only 1000m is free" in world.asks(other)
    assert world.asks(world.pod("web-0")) == "n"


def test_a_kubelet_ends_a_placeholder_before_it_is_gone() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.answers.reservations.tick(world.now)
    ended = world.pod("reservation-uid-r", cpu=3, node="n", labels={"slacktide.io/reservation": "uid-r"})
    world.shows(ended | {"status": {"phase": "Succeeded"}})
    other = world.pod("other", cpu=2, labels={"app": "db"})
    for _ in range(2):
        answer = world.answers.filter(question(other, ["n"]))
        assert isinstance(answer, bytes)
        assert b"only 1000m is free" in answer
        world.gone("reservation-uid-r")
    world.catch_up()
    assert world.asks(world.pod("web-0")) == "n"


def test_the_pods_of_a_list_say_who_wants_the_room_of_a_placeholder_that_it_lacks() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.view.whole([], at_s=WALL_S)
    world.answers.reservations.whole([], world.now)
    assert world.asks(world.pod("other", cpu=2, labels={"app": "db"})) == "n"


def test_without_a_pending_owner_the_room_of_a_placeholder_that_is_gone_is_anybodys() -> None:
    world = World()
    other = world.pod("other", cpu=2, labels={"app": "db"})
    world.shows(other)
    world.gone("reservation-uid-r")
    assert world.asks(other) == "n"


def test_room_without_a_record_is_anybodys_after_two_seconds() -> None:
    world = World()
    world.shows(world.pod("web-0", labels={"app": "web"}))
    world.gone("reservation-uid-r")
    other = world.pod("other", cpu=2, labels={"app": "db"})
    assert "only 1000m is free" in world.asks(other)
    world.view.blind(True, now_s=world.clock.now_s)  # an outage of the watch keeps what is assumed for longer
    world.view.blind(False, now_s=world.clock.now_s)
    world.clock.now_s += 2
    world.answers.reservations.tick(world.now)
    world.read = len(world.log)  # and no record comes
    assert world.asks(other) == "n"


def test_of_two_owners_one_gets_it_and_the_other_takes_any_node() -> None:
    world = World()
    for name in ("web-0", "web-1"):
        world.shows(world.pod(name))
    world.passes(0.5)
    assert [one.pod_uid for _, one in world.log] == ["uid-web-0"]
    assert world.asks(world.pod("web-1", cpu=1)) == "n"


def test_the_first_record_is_in_force_whichever_replica_wrote_it() -> None:
    world = World()
    world.shows(world.pod("web-0")), world.shows(world.pod("web-1"))
    first = ReservationOpen(
        reservation="r", reservation_uid="uid-r", node="n", pod_uid="uid-web-1", namespace="batch", name="web-1",
        decided_ms=1,
    )  # fmt: skip
    world.answers.reservations.read("uid-r", first, world.now)
    world.answers.reservations.read("uid-r", ReservationOpen(**{
        **{field: getattr(first, field) for field in first.__struct_fields__}, "pod_uid": "uid-web-0", "name": "web-0",
    }), world.now)  # fmt: skip
    assert world.answers.reservations.holds("uid-web-1")
    assert not world.answers.reservations.holds("uid-web-0")


def test_an_owner_that_is_not_bound_in_time_gives_it_back_and_does_not_get_it_again_at_once() -> None:
    world = World()
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    world.gone("reservation-uid-r")
    world.passes(5)
    assert not world.log[-1][1].ended
    world.passes(6)
    assert world.log[-1][1].ended
    assert world.log[-1][1].why == "it was not bound within 10 s"
    world.shows(world.pod("reservation-uid-r", cpu=3, node="n", labels={"slacktide.io/reservation": "uid-r"}))
    written = len(world.log)
    world.passes(30)
    assert len(world.log) == written
    world.passes(40)
    assert len(world.log) == written + 1


def test_an_owner_that_is_deleted_or_bound_elsewhere_gives_it_back() -> None:
    for end in ("deleted", "elsewhere"):
        world = World()
        world.shows(world.pod("web-0"))
        world.passes(0.5)
        if end == "deleted":
            world.gone("web-0")
        else:
            world.shows(world.pod("web-0", node="m"))
        assert world.log[-1][1].ended
        assert world.log[-1][1].why == ("the pod is gone" if end == "deleted" else "the pod was bound to m")


def test_a_pod_that_demands_one_waits_for_it() -> None:
    world = World()
    demands = world.pod("db-0", cpu=1, labels={"app": "db"}, annotations={AFFINITY: '{"name": "r"}'})
    assert "reservation_none: reservation r is not available to it" in world.asks(demands)
    odd = world.pod("db-1", cpu=1, labels={"app": "db"}, annotations={AFFINITY: "r"})
    assert "reservation_invalid: annotation scheduling.koordinator.sh/reservation-affinity" in world.asks(odd)


def test_one_that_is_not_available_is_not_opened() -> None:
    world = World()
    world.reserve("r", phase="Pending")
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    assert not world.log


def test_in_a_dry_run_nothing_is_opened() -> None:
    world = World()
    world.view.dry_run = True
    world.shows(world.pod("web-0"))
    world.passes(0.5)
    assert not world.log
