"""How the API server is found, from files alone."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from slacktide.agents.kubernetes.access import Access, access, of_kubeconfig, of_service_account
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFIGMAPS, NODE_METRICS, PODS, refused
from slacktide.schemas.errors import ConfigError
from testbed.vectors import each_row


def kubeconfig(folder: Path, user: dict, cluster: dict | None = None, **top: object) -> Path:
    server = {"server": "https://api.example:6443/", "insecure-skip-tls-verify": True}
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}],
        "clusters": [{"name": "c", "cluster": server | (cluster or {})}],
        "users": [{"name": "u", "user": user}],
    } | top
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return path


async def authorization(of: Access) -> str | None:
    said = await of.configuration.get_api_key_with_prefix("BearerToken")
    return None if said is None else str(said)


async def test_the_current_context_says_where_and_as_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("first")
    found = await of_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}))
    assert (found.configuration.host, found.namespace) == ("https://api.example:6443", "mine")
    assert await authorization(found) == "Bearer first"
    (tmp_path / "token").write_text("renewed")
    assert await authorization(found) == "Bearer first", "not read with every request"
    monkeypatch.setattr(sys.modules[of_kubeconfig.__module__], "RENEW_S", 0.0)
    assert await authorization(found) == "Bearer renewed"


async def test_a_program_may_say_who_asks(tmp_path: Path) -> None:
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}
    program = {"apiVersion": said["apiVersion"], "command": "echo", "args": [json.dumps(said)]}
    found = await of_kubeconfig(kubeconfig(tmp_path, {"exec": program}))
    assert await authorization(found) == "Bearer made"


@each_row("user", "top", "said")
async def test_what_cannot_be_used_is_said_with_its_place(tmp_path: Path, user: dict, top: dict, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        await of_kubeconfig(kubeconfig(tmp_path, user, **top))
    assert str(tmp_path) in str(refusal.value)
    assert said in str(refusal.value)
    assert "accepted: " in str(refusal.value)


async def test_a_kubeconfig_that_is_not_there_is_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="no/config: the file: no such file: accepted: a kubeconfig that kubectl"):
        await of_kubeconfig(tmp_path / "no" / "config")
    assert not caplog.messages


async def test_several_kubeconfigs_are_one_where_the_environment_names_several(tmp_path: Path) -> None:
    found = await of_kubeconfig(Path(f"{tmp_path / 'no'}:{kubeconfig(tmp_path, {'token': 'mine'})}"))
    assert await authorization(found) == "Bearer mine"


@pytest.mark.parametrize("text", ["", "[]", "{", "nothing", "kind: Config"])
async def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match="kubectl can use") as refusal:
        await of_kubeconfig(path)
    assert "object" not in str(refusal.value), "what Python says of it"


async def test_certificates_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("none")
    found = await of_kubeconfig(kubeconfig(tmp_path, {}, {"certificate-authority": "ca.crt"}))
    with pytest.raises(ConfigError, match=r"ca\.crt.*PEM"):
        async with ApiServer(found, name="test"):
            pass


async def test_a_kubeconfig_that_is_named_is_preferred_to_the_pods_account(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, {"token": "t"})))
    assert (await access()).configuration.host == "https://api.example:6443"
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(ConfigError, match="serviceaccount"):
        await access()


def test_a_service_account_without_its_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigError, match="run in a pod"):
        of_service_account(tmp_path)


def test_objects_lie_where_kubernetes_has_them() -> None:
    assert PODS.path(namespace="a", name="b", sub="eviction") == "/api/v1/namespaces/a/pods/b/eviction"
    assert NODE_METRICS.path(name="n") == "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n"
    assert CONFIGMAPS.path() == "/api/v1/configmaps"
    assert CONFIGMAPS.path(namespace="a", name="../../secrets/x").endswith("/configmaps/..%2F..%2Fsecrets%2Fx")


def test_an_error_says_what_the_server_said_and_how_long_to_wait() -> None:
    details = b'{"causes":[{"reason":"DisruptionBudget"}]}'
    body = b'{"kind":"Status","reason":"TooManyRequests","message":"later","details":' + details + b"}"
    error = refused("POST /x", 429, body, retry_after="7")
    assert (error.status, error.reason, error.retry_after_s) == (429, "TooManyRequests", 7)
    assert [cause.reason for cause in error.causes] == ["DisruptionBudget"]
    assert str(error) == "POST /x: 429 TooManyRequests: later"
    assert str(refused("GET /x", 502, b"<html>bad\n gateway")) == "GET /x: 502: <html>bad gateway"
