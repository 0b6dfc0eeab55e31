"""The door to Kubernetes, on a real API server."""

import asyncio
import gc
import json
import warnings
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import incluster_config

from slacktide.agents.kubernetes import api_server as api_server_module
from slacktide.agents.kubernetes.access import Access, of_service_account
from slacktide.agents.kubernetes.api_server import SILENCE_S, ApiServer, Changed, Gone, Trouble, Whole, follow
from slacktide.agents.kubernetes.resource import CONFIGMAPS, NODES, PODS, ApiAwayError, ApiRefusedError, Resource
from testbed.cluster.api_server import ApiServer as Cluster
from testbed.cluster.identity import access_of

pytestmark = pytest.mark.cluster


@pytest.fixture
def own_api_server(tmp_path: Path) -> Iterator[Cluster]:
    """One that a test may stop."""
    cluster = Cluster(tmp_path)
    cluster.start()
    yield cluster
    cluster.stop()


def _compact(cluster: Cluster) -> None:
    """Have etcd forget what was before now."""
    etcd = f"http://127.0.0.1:{cluster._etcd_port}/v3/kv"

    def ask(path: str, body: dict[str, str]) -> dict[str, Any]:
        with urlopen(f"{etcd}/{path}", json.dumps(body).encode()) as answer:
            return json.load(answer)

    revision = ask("range", {"key": "AA=="})["header"]["revision"]
    ask("compaction", {"revision": revision})


class _Metadata(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Metadata


def _door(cluster: Cluster) -> ApiServer:
    return ApiServer(access_of(cluster.kubeconfig), name="door-test")


def _config(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_objects_are_made_read_changed_and_deleted(api_server: Cluster) -> None:
    namespace = api_server.namespace()
    async with _door(api_server) as api:
        made = await api.create(CONFIGMAPS, _config("one", {"a": "1", "b": "2"}), dict, namespace=namespace)
        assert made["metadata"]["managedFields"][0]["manager"] == "door-test"
        await api.patch(CONFIGMAPS, "one", {"data": {"a": None, "c": "3"}}, dict, namespace=namespace)
        assert (await api.get(CONFIGMAPS, "one", dict, namespace=namespace))["data"] == {"b": "2", "c": "3"}
        with pytest.raises(ApiRefusedError) as conflict:
            await api.replace(CONFIGMAPS, "one", made, dict, namespace=namespace)
        assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
        await api.delete(CONFIGMAPS, "one", namespace=namespace)
        with pytest.raises(ApiRefusedError, match=r"GET https://.*/configmaps/one: 404 NotFound: .*one.*not found"):
            await api.get(CONFIGMAPS, "one", dict, namespace=namespace)


async def test_a_status_is_written_apart_from_the_object(api_server: Cluster) -> None:
    node = api_server.node()
    async with _door(api_server) as api:
        amounts = {"kubernetes.io/batch-cpu": "1500"}
        patch = {"status": {"capacity": amounts, "allocatable": amounts}, "spec": {"unschedulable": True}}
        await api.patch(NODES, node, patch, dict, sub="status")
        shown = await api.get(NODES, node, dict)
    assert shown["status"]["allocatable"]["kubernetes.io/batch-cpu"] == "1500"
    assert "unschedulable" not in shown["spec"]


async def test_a_collection_is_read_through_all_its_pages(api_server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server_module, "PAGE", 3)
    namespace = api_server.namespace()
    async with _door(api_server) as api:
        for number in range(8):
            await api.create(CONFIGMAPS, _config(f"c{number}", {}), dict, namespace=namespace)
        listed = await api.list(CONFIGMAPS, _Named, namespace=namespace)
        assert [one.metadata.name for one in listed.items] == [f"c{number}" for number in range(8)]
        one = await api.list(CONFIGMAPS, _Named, namespace=namespace, fields="metadata.name=c5")
        assert [found.metadata.name for found in one.items] == ["c5"]


async def test_an_eviction_is_posted_to_its_pod(api_server: Cluster) -> None:
    namespace, node = api_server.namespace(), api_server.node()
    pod = api_server.pod(namespace, "victim", node=node)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "victim", "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": "another"}},
    }
    async with _door(api_server) as api:
        with pytest.raises(ApiRefusedError) as refused:
            await api.create(PODS, eviction, dict, namespace=namespace, name="victim", sub="eviction")
        assert refused.value.status == 409
        eviction["deleteOptions"] = {"preconditions": {"uid": pod["metadata"]["uid"]}}
        await api.create(PODS, eviction, dict, namespace=namespace, name="victim", sub="eviction")
        left = await api.get(PODS, "victim", dict, namespace=namespace)
    assert [one["type"] for one in left["status"]["conditions"] if one["status"] == "True"][-1] == "DisruptionTarget"


async def test_what_is_refused_says_which_field(api_server: Cluster) -> None:
    async with _door(api_server) as api:
        with pytest.raises(ApiRefusedError) as refused:
            await api.create(CONFIGMAPS, _config("Not A Name", {}), dict, namespace="default")
    assert (refused.value.status, refused.value.causes[0].field) == (422, "metadata.name")


async def test_who_may_not_is_told_so(api_server: Cluster) -> None:
    account = api_server.account(api_server.namespace(), "nobody")
    async with ApiServer(access_of(account.kubeconfig), name="nobody") as api:
        with pytest.raises(ApiRefusedError, match=r"403 Forbidden: .*nobody.*kubectl auth can-i"):
            await api.list(NODES, dict)


async def test_a_server_that_is_not_there_is_away(api_server: Cluster) -> None:
    nowhere = Access(configuration=Configuration(host="https://127.0.0.1:1", ssl_ca_cert=str(api_server.ca)))
    async with ApiServer(nowhere, name="test") as api:
        with pytest.raises(ApiAwayError, match=r"GET https://127\.0\.0\.1:1/api/v1/nodes: "):
            await api.list(NODES, dict)


async def test_a_pods_service_account_is_used_and_its_renewed_token_read(
    api_server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = api_server.namespace()
    account = api_server.account(namespace, "pod")
    (tmp_path / "token").write_text("stale")
    (tmp_path / "ca.crt").write_text(api_server.ca.read_text())
    (tmp_path / "namespace").write_text(namespace)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api_server.port))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", timedelta())
    mine = of_service_account(tmp_path)
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reviews = Resource(group="authentication.k8s.io", plural="selfsubjectreviews")
    async with ApiServer(mine, name="test") as api:
        with pytest.raises(ApiRefusedError, match="401 Unauthorized"):
            await api.create(reviews, who, dict)
        (tmp_path / "token").write_text(account.token)
        review = await api.create(reviews, who, dict)
    assert review["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:pod"
    assert mine.namespace == namespace


async def test_a_collection_is_followed_through_changes_and_deletions(api_server: Cluster) -> None:
    namespace = api_server.namespace()
    async with _door(api_server) as api, aclosing(follow(api, CONFIGMAPS, dict, namespace=namespace)) as told:
        await api.create(CONFIGMAPS, _config("old", {}), dict, namespace=namespace)
        whole = await anext(told)
        assert isinstance(whole, Whole)
        assert [one["metadata"]["name"] for one in whole.items] == ["old"]
        await api.create(CONFIGMAPS, _config("new", {"a": "1"}), dict, namespace=namespace)
        await api.delete(CONFIGMAPS, "old", namespace=namespace)
        async with asyncio.timeout(60):
            changed = await anext(told)
            assert isinstance(changed, Changed)
            assert changed.object["data"] == {"a": "1"}
            assert await anext(told) == Gone(name="old", namespace=namespace)


async def test_what_can_not_be_gone_on_with_is_listed_anew(own_api_server: Cluster) -> None:
    cluster = own_api_server
    async with _door(cluster) as api, aclosing(follow(api, CONFIGMAPS, dict, namespace="default")) as told:
        assert isinstance(await anext(told), Whole)
        cluster.api.stop()
        async with asyncio.timeout(60):
            assert isinstance(await anext(told), Trouble)
        await asyncio.to_thread(cluster.start)
        cluster.post("/api/v1/namespaces/default/configmaps", _config("after", {}))
        cluster.api.stop()
        _compact(cluster)
        await asyncio.to_thread(cluster.start)
        async with asyncio.timeout(60):
            while not isinstance(whole := await anext(told), Whole):
                pass
    assert "after" in [one["metadata"]["name"] for one in whole.items]


async def test_a_watch_of_what_never_changes_is_asked_for_anew_and_that_is_no_trouble(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server_module, "SILENCE_S", 2.0)
    namespace = api_server.namespace()
    async with _door(api_server) as api, aclosing(follow(api, CONFIGMAPS, dict, namespace=namespace)) as told:
        assert isinstance(await anext(told), Whole)
        listening = asyncio.ensure_future(anext(told))
        await asyncio.wait({listening}, timeout=5)
        assert not listening.done()
        await api.create(CONFIGMAPS, _config("late", {}), dict, namespace=namespace)
        async with asyncio.timeout(60):
            assert isinstance(await listening, Changed)


def test_a_watch_that_is_left_leaves_no_connection_open(api_server: Cluster) -> None:
    """Each on a loop of its own, which ends with its door, as a command's does."""
    namespace = api_server.namespace()

    async def left() -> None:
        async with _door(api_server) as api, aclosing(follow(api, CONFIGMAPS, dict, namespace=namespace)) as told:
            assert isinstance(await anext(told), Whole)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(told)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(20):
            asyncio.run(left())
        gc.collect()
    assert not [str(one.message) for one in warned]


async def test_a_watch_outlives_its_api_server(own_api_server: Cluster) -> None:
    cluster = own_api_server
    async with _door(cluster) as api, aclosing(follow(api, CONFIGMAPS, dict, namespace="default")) as told:
        assert isinstance(await anext(told), Whole)
        cluster.api.stop()
        async with asyncio.timeout(60):
            assert isinstance(await anext(told), Trouble)
        await asyncio.to_thread(cluster.start)
        cluster.post("/api/v1/namespaces/default/configmaps", _config("after", {}))
        async with asyncio.timeout(2 * SILENCE_S + 60):  # one watch may be silent: it is given up
            said = [one async for one in _until_changed(told)]
    assert said[-1].object["metadata"]["name"] == "after"
    assert not [one for one in said if isinstance(one, Whole)], "it goes on from where it was"


async def _until_changed(told: Any) -> Any:
    async for one in told:
        yield one
        if isinstance(one, Changed) and one.object["metadata"]["name"] == "after":
            return


async def test_the_environments_proxy_is_gone_through_unless_the_server_is_excepted(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with kubectl; nobody listens on that port."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.com")
    async with ApiServer(access_of(api_server.kubeconfig), name="test") as api:
        with pytest.raises(ApiAwayError):
            await api.text("/version")

    monkeypatch.setenv("no_proxy", "example.com,127.0.0.1")
    async with ApiServer(access_of(api_server.kubeconfig), name="test") as api:
        assert "gitVersion" in await api.text("/version")
