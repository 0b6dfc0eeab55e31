"""The webhook's server by real TLS: whom it answers, and how much of a request it reads."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from slacktide.agents.cluster.certificates import Clients, Tls, in_folder
from slacktide.agents.cluster.watching import ConfigMapName
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.agents.cluster.webhook.cluster_cache import ClusterCache
from slacktide.agents.cluster.webhook.webhook import QUESTION_BYTES_MAX, ClientCheck, serving
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.schemas.text import OBJECT_BYTES_MAX
from testbed.cluster.pki import Pki

NAME = "kube-apiserver-webhook"
HEAD = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7f","namespace":"kube-system",'
PLAIN = HEAD + b'"object":{}}}'
Ask = Callable[..., Any]


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


@asynccontextmanager
async def asked(pki: Pki, check: ClientCheck) -> AsyncIterator[Ask]:
    """How a client with a certificate, or without one, is answered."""
    for path, name in zip(pki.certificate("server", "/CN=webhook", "IP:127.0.0.1"), ("crt", "key"), strict=True):
        (pki.folder / f"tls.{name}").write_bytes(path.read_bytes())
    cache = ClusterCache(cast("ApiServer", None), ConfigMapName(namespace="s", name="c"))
    left_out = {"kube-system"}
    answers = Answers(
        cast("ApiServer", None), cache, left_out, ConfigMapName(namespace="s", name="c"), lambda _: None, lambda: 0
    )
    tls = Tls(in_folder(pki.folder), lambda _: None, check.clients)

    async def ask(body: bytes = PLAIN, certificate: tuple[Path, Path] | None = None) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(pki.ca))
        if certificate is not None:
            context.load_cert_chain(*certificate)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as client,
            client.post(f"https://127.0.0.1:{port}/mutate-pods", data=io.BytesIO(body)) as answer,
        ):
            return answer.status, await answer.text()

    async with serving(answers, tls, check, "127.0.0.1", 0, leaving=asyncio.Event()) as port:
        yield ask


async def test_a_client_is_told_which_certificate_it_lacks_and_so_is_who_runs_the_webhook(pki: Pki) -> None:
    """Of an API server that presents none, everything else would be silent: pods would be created unchanged."""
    check = ClientCheck(Clients(ca=pki.ca, names=frozenset({NAME})))
    others = Pki(pki.folder / "others").certificate("other", f"/CN={NAME}")
    async with asked(pki, check) as ask:
        assert await ask() == (403, "a client certificate is required")
        assert "unless the API server presents one, it is not answered" in check.trouble
        kubelet = pki.certificate("kubelet", "/O=system:nodes/CN=system:node:a")
        assert await ask(certificate=kubelet) == (403, "the common name of the client certificate is not allowed")
        with pytest.raises(aiohttp.ClientError):
            await ask(certificate=others)
        assert (await ask(certificate=pki.certificate("server-of-api", f"/CN={NAME}")))[0] == 200
        assert check.trouble == ""
        assert (await ask())[0] == 403
        assert check.trouble == "", "somebody who only reaches the port makes no trouble"


async def test_by_default_every_client_is_answered_and_none_is_asked_for_a_certificate(pki: Pki) -> None:
    """One of an authority that the webhook does not know would end the handshake."""
    others = Pki(pki.folder / "others").certificate("other", f"/CN={NAME}")
    async with asked(pki, ClientCheck(None)) as ask:
        assert (await ask())[0] == 200
        assert (await ask(certificate=others))[0] == 200


@pytest.mark.parametrize("size_bytes", [OBJECT_BYTES_MAX + 1, QUESTION_BYTES_MAX - 1_000])
async def test_a_pod_beyond_what_is_read_is_refused_by_its_uid(pki: Pki, size_bytes: int) -> None:
    async with asked(pki, ClientCheck(None)) as ask:
        status, text = await ask(HEAD + b'"object":{"x":"' + b"x" * size_bytes + b'"}}}')
        response = json.loads(text)["response"]

    assert (status, response["uid"], response["allowed"]) == (200, "7f", False)
    assert response["status"]["code"] == 422
    assert "more than 2097152 bytes" in response["status"]["message"]


async def test_a_request_that_no_api_server_writes_is_not_read_to_its_end(pki: Pki) -> None:
    async with asked(pki, ClientCheck(None)) as ask:
        assert (await ask(HEAD + b"x" * QUESTION_BYTES_MAX))[0] == 413
        assert (await ask())[0] == 200
