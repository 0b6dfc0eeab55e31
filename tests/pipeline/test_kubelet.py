"""Pods from a kubelet: a real HTTPS server that speaks as one does, well and ill."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slacktide.agents import http
from slacktide.agents.files import Watched
from slacktide.agents.http import Access
from slacktide.agents.node.inventory import Joined, Kubelet, KubeletError
from slacktide.agents.node.loop import WATCH_S, run
from slacktide.agents.node.settings import LoopSettings
from slacktide.agents.node.state import State
from slacktide.schemas.health import Health
from slacktide.schemas.inventory import Container, Pod, Resources
from slacktide.schemas.kubernetes import Described, described
from testbed.agent_rig import agent_of
from testbed.kubelet import TOKEN, Certificates, KubeletServer, pod
from testbed.one_machine import VirtualNode
from testbed.sampled import sampled

GIB = 1024**3


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pki") / "kubelet")


@pytest.fixture
def server(certificates):
    server = KubeletServer(certificates)
    server.pods = [pod("web")]
    yield server
    server.close()


@pytest.fixture
def access(server, certificates, tmp_path) -> Access:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    return Access(url=server.url, token=token, ca=certificates.ca)


@pytest.fixture
def ask():
    """A kubelet's door, shut at the end."""
    with contextlib.ExitStack() as opened:

        def opening(access: Access, runs: Callable[[str], bool] = lambda _: False) -> Kubelet:
            kubelet = Kubelet(access, runs)
            opened.callback(kubelet.close)
            return kubelet

        yield opening


def names(kubelet: Kubelet) -> list[str]:
    return [pod.name for pod in kubelet.look().pods]


def refusal(kubelet: Kubelet) -> str:
    with pytest.raises(KubeletError) as refused:
        kubelet.look()
    return str(refused.value)


def test_what_a_kubelet_lists_is_understood(access, ask) -> None:
    found = ask(access).look()

    asks, limits = Resources(cpu_milli=1000, mem_bytes=GIB), Resources(mem_bytes=GIB)
    main = Container(name="main", id="0a" * 32, requests=asks, limits=limits)
    of_class = {"qos_label": "LS", "priority": 9500, "kube_qos": "Burstable"}
    amounts = {"requests": asks, "limits": limits, "containers": [main]}
    assert found.pods == [Pod(uid="uid-web", namespace="shop", name="web", phase="Running", **of_class, **amounts)]
    assert found.notes == ()


def test_a_connection_is_kept_and_a_pod_that_did_not_change_is_not_read_again(access, server, ask) -> None:
    """A kubelet lists its pods in another order each time; that is no change."""
    server.pods = [pod("web"), pod("db")]
    kubelet = ask(access)
    first = kubelet.look()
    server.pods.reverse()
    second = kubelet.look()
    server.pods.append(pod("queue"))
    third = kubelet.look()

    assert second == first
    assert all(one is other for one, other in zip(first.pods, second.pods, strict=True))
    assert [pod.name for pod in third.pods] == ["db", "queue", "web"]
    assert third.pods[2] is first.pods[1]
    assert (server.asked, server.connections) == (3, 1)


def test_what_still_runs_stays_listed_as_it_was(access, server, ask) -> None:
    """A kubelet that starts lists nothing at first, and a pod deleted by force at once no more."""
    groups = {"uid-web", "uid-db"}
    server.pods = [pod("web"), pod("db"), pod("done")]
    kubelet = ask(access, lambda uid: uid in groups)
    kubelet.look()
    server.pods = []
    assert names(kubelet) == ["db", "web"]
    server.pods = [pod("db", cpu="2")]
    assert [(pod.name, pod.requests.cpu_milli) for pod in kubelet.look().pods] == [("db", 2000), ("web", 1000)]
    groups.clear()
    assert names(kubelet) == ["db"]


def test_a_kubelet_that_was_restarted_is_asked_again_at_once(access, server, certificates, ask) -> None:
    """It closes what it kept, and that is no trouble; while it is away, it is."""
    kubelet = ask(access)
    kubelet.look()
    server.manner = "empty_handed"
    assert "RemoteDisconnected" in refusal(kubelet)
    server.manner = "well"
    assert names(kubelet) == ["web"]
    server.close()
    assert f"{server.url}/pods" in refusal(kubelet)


def test_a_token_is_read_anew_each_time(access, server, ask) -> None:
    kubelet = ask(access)
    kubelet.look()
    server.token = "second-token"
    said = refusal(kubelet)

    assert "401 Unauthorized" in said
    assert TOKEN not in said
    access.token.write_text("second-token")
    assert names(kubelet) == ["web"]


def test_a_client_certificate_will_do(access, certificates, ask) -> None:
    mine = replace(access, token=None, cert=certificates.client, key=certificates.client_key)

    assert names(ask(mine)) == ["web"]
    assert "401" in refusal(ask(replace(access, token=None)))


def test_the_right_that_lacks_is_named(access, server, ask) -> None:
    server.allowed = False

    said = refusal(ask(access))

    assert "403 Forbidden (user=agent, verb=get, resource=nodes" in said
    assert "get nodes/pods" in said
    assert "before Kubernetes 1.33 the kubelet requires nodes/proxy" in said


def test_a_certificate_of_another_authority_is_refused_unless_that_is_wanted(access, certificates, ask) -> None:
    own = replace(access, ca=None)

    assert "--kubelet-ca, or give --kubelet-insecure" in refusal(ask(own))
    assert names(ask(replace(own, insecure=True))) == ["web"]
    elsewhere = replace(access, url=access.url.replace("127.0.0.1", "localhost"))
    assert "use the host name in its certificate" in refusal(ask(elsewhere))


@pytest.mark.parametrize(
    ("manner", "says"),
    [
        ("failing", "500 internal error: check that this is a kubelet"),
        ("garbage", "not a PodList"),
        ("nested", "not a PodList"),
        ("other", "a NodeList, not a PodList"),
        ("cut_off", "IncompleteRead"),
    ],
)
def test_an_answer_that_is_no_list_is_refused_and_the_next_good_one_counts(access, server, manner, says, ask) -> None:
    kubelet = ask(access)
    kubelet.look()
    server.manner = manner
    assert says in refusal(kubelet)
    assert says in refusal(kubelet), "and again, also where it is the same answer"
    server.manner = "well"

    assert names(kubelet) == ["web"]


def test_neither_a_slow_nor_a_huge_answer_is_waited_for(access, server, monkeypatch, ask) -> None:
    """Slow: a byte comes before any timeout of a socket; huge: more than anybody's pods."""
    monkeypatch.setattr(http, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(http, "BYTES_MAX", 2**20)
    kubelet = ask(access)
    began = time.monotonic()
    server.manner = "dripping"
    assert "incomplete answer after 0.5 s" in refusal(kubelet)
    server.manner = "huge"
    assert "the answer is larger than 1 MiB" in refusal(kubelet)

    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"url": "http://127.0.0.1:10255"}, "accepted: https://HOST:10250"),
        ({"url": "127.0.0.1"}, "accepted: https://HOST:10250"),
        ({"url": "https://127.0.0.1/pods"}, "accepted: https://HOST:10250"),
    ],
)
def test_an_address_that_is_none_is_refused(access, change, says, ask) -> None:
    with pytest.raises(KubeletError, match=says):
        ask(replace(access, **change))


@pytest.mark.parametrize("text", ["", "two\nlines", "smug\r\nHost: elsewhere", "blank in it", "ümlaut"])
def test_a_file_without_a_token_is_named_and_not_shown(access, text, ask) -> None:
    access.token.write_text(text)
    said = refusal(ask(access))

    assert f"{access.token} contains no token" in said
    assert not text or text not in said


def test_files_that_are_not_there_or_hold_something_else_are_named(access, tmp_path, ask) -> None:
    nowhere, text = tmp_path / "nowhere", tmp_path / "text"
    text.write_text("no certificate")

    assert f"{nowhere} cannot be read: No such file" in refusal(ask(replace(access, token=nowhere)))
    assert f"{nowhere}: No such file" in refusal(ask(replace(access, ca=nowhere)))
    assert f"{text}: " in refusal(ask(replace(access, ca=text)))
    assert f"{text}: " in refusal(ask(replace(access, cert=text)))


def test_a_pod_that_cannot_be_used_is_left_out_and_said(access, server, ask) -> None:
    """What one user writes does not hide everybody's pods."""
    server.pods = [pod("web"), pod("odd", cpu="-1"), pod("db")]
    found = ask(access).look()

    assert [pod.name for pod in found.pods] == ["db", "web"]
    (note,) = found.notes
    assert note.startswith(f"{server.url}/pods: shop/odd.spec.containers[0].resources.requests.cpu: -1: accepted: ")
    assert note.endswith("; the pod is left out")


@pytest.mark.parametrize("item", [7, {}, {"metadata": 7}, {"metadata": {"name": "x"}}, None])
def test_an_item_that_is_no_pod_hides_no_other(access, server, ask, item) -> None:
    server.pods = [item, pod("web")]
    found = ask(access).look()

    assert [pod.name for pod in found.pods] == ["web"]
    assert "the pod is left out" in found.notes[0]


def test_a_static_pod_is_known_by_the_uid_of_its_groups(access, server, ask) -> None:
    static = pod("proxy")
    static["metadata"]["annotations"] = {"kubernetes.io/config.hash": "9c9c", "kubernetes.io/config.source": "file"}
    server.pods = [static]

    assert [pod.uid for pod in ask(access).look().pods] == ["9c9c"]


NODE = """
kind: List
items:
- {kind: Node, metadata: {name: node-0}, status: {capacity: {cpu: "4", memory: 8Gi}}}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    file = tmp_path / "node.yaml"
    file.write_text(NODE)
    return file


def watched(file: Path) -> Watched[Described]:
    return Watched(file, lambda document, name: described(document, name, "node-0"))


def test_the_node_is_the_files_and_the_pods_are_the_kubelets(access, server, file, ask) -> None:
    joined = Joined(watched(file), ask(access), last=None)

    assert joined.value.facts.capacity == Resources(cpu_milli=4000, mem_bytes=8 * GIB)
    assert [pod.name for pod in joined.value.pods] == ["web"]
    assert not joined.poll(), "nothing changed"
    server.pods.append(pod("db"))
    assert joined.poll()
    file.write_text(NODE.replace('"4"', '"16"'))
    assert joined.poll()
    assert (len(joined.value.pods), joined.value.facts.capacity.cpu_milli) == (2, 16_000)


def test_what_a_file_says_of_pods_does_not_count_beside_a_kubelet_and_is_said(access, file, ask) -> None:
    file.write_text(NODE + "- {kind: Pod, metadata: {name: other, uid: u}, spec: {}}\n")
    value = Joined(watched(file), ask(access), last=None).value

    assert [pod.name for pod in value.pods] == ["web"]
    assert value.notes == (f"{file}: its pods are ignored, because {access.url}/pods lists the pods",)


@pytest.mark.parametrize("manner", ["failing", "garbage", "cut_off", "away"])
def test_the_last_good_list_stays_and_what_is_wrong_is_told_once(access, server, file, ask, manner) -> None:
    joined = Joined(watched(file), ask(access), last=None)
    if manner == "away":
        server.close()
    else:
        server.manner = manner

    assert joined.poll()
    assert joined.refused.endswith("\nthe last valid list, of 1 pods, stays in force")
    assert [pod.name for pod in joined.value.pods] == ["web"]
    assert not joined.poll(), "told already"
    if manner != "away":
        server.manner = "well"
        assert joined.poll(), "it is over"
        assert joined.refused == ""


def test_a_start_without_the_kubelet_goes_on_with_what_was_known_last(access, server, file, ask) -> None:
    known = ask(access).look().pods
    server.allowed = False
    joined = Joined(watched(file), ask(access), last=known)

    assert "403" in joined.refused
    assert joined.value.pods == known
    with pytest.raises(KubeletError, match="nodes/pods"):
        Joined(watched(file), ask(access), last=None)


async def test_an_agent_whose_kubelet_shows_a_certificate_that_it_does_not_trust_is_not_ready(
    embedded_broker, access, certificates, ask, tmp_path
) -> None:
    """It has a list of an earlier run, works by it, and no rollout counts it as up."""
    embedded_broker.apply_topics(1)
    other = Certificates(tmp_path / "other")
    with VirtualNode(tmp_path) as node:
        async with agent_of(node, embedded_broker.bootstrap, tmp_path, lister=ask(access)) as health:

            async def ready() -> bool:
                return not health.not_ready

            await until(ready)
        async with agent_of(
            node, embedded_broker.bootstrap, tmp_path, lister=ask(replace(access, ca=other.ca))
        ) as health:

            async def refused() -> bool:
                return "the list of pods is outdated" in health.not_ready

            await until(refused)
            assert "certificate" in health.not_ready


def test_a_node_that_has_no_pods_is_told_from_one_that_does_not_answer(access, server, file, ask) -> None:
    joined = Joined(watched(file), ask(access), last=None)
    server.pods = []

    assert joined.poll()
    assert (joined.value.pods, joined.refused) == ([], "")


async def until(true: Callable[[], Awaitable[object]], within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    while not await true():
        assert time.monotonic() < until_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.1)


async def test_an_agent_samples_the_pods_that_its_kubelet_lists_and_keeps_them_while_it_is_away(
    embedded_broker, access, server, ask, tmp_path, caplog
) -> None:
    """Through Kafka, as the stream gets them. With an old list the agent is not ready, and logs the reason once."""
    embedded_broker.apply_topics(1)
    stop, health = asyncio.Event(), Health()
    with VirtualNode(tmp_path) as node:
        state = tmp_path / "state"
        state.mkdir()
        kernel = node.kernel(state)
        settings = LoopSettings(
            node=node.name,
            bootstrap=embedded_broker.cluster,
            inventory=node.inventory,
            state_folder=state,
            lister=ask(access),
            sample_interval_ms=200,
            fetch_wait_ms=20,
        )
        running = asyncio.create_task(run(kernel, settings, stop, health))

        async def listed() -> list[list[str]]:
            samples = await sampled(embedded_broker.cluster)
            return [[pod.name for pod in sample.pods] for sample in samples if sample.pods is not None]

        await until(listed)
        server.pods.append(pod("db"))

        async def both() -> bool:
            return (await listed())[-1] == ["db", "web"]

        async def stale() -> bool:
            old = "the last valid list, of 2 pods, stays in force"
            return old in health.not_fresh and health.not_ready.startswith("the list of pods is outdated: ")

        async def ready() -> bool:
            return not health.not_ready

        await until(both)
        await until(ready)
        server.manner = "failing"
        await until(stale)
        await asyncio.sleep(2 * WATCH_S)
        server.manner = "well"
        await until(ready)
        stop.set()
        await running
        kernel.close()

    assert (await listed())[0] == ["web"]
    assert (await listed())[-1] == ["db", "web"]
    assert [pod.name for pod in State(state).inventory().pods] == ["db", "web"], "kept for a start without the kubelet"
    assert sum("500 internal error" in record.message for record in caplog.records) == 1
    assert sum("its pods are ignored" in record.message for record in caplog.records) == 1
