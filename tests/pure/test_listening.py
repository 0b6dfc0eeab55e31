"""Servers listen on both families, and addresses of IPv6 are understood as manifests give them."""

import socket
import threading
import urllib.request

import pytest

from slacktide.agents.http import Access, HttpError, Https
from slacktide.agents.listening import ALL, listening, reachable
from slacktide.deploy.runtime.endpoints import Endpoints
from slacktide.schemas.health import Health


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_endpoints_on_all_addresses_answer_by_each_family(address: str) -> None:
    with Endpoints(ALL, 0, Health()) as endpoints:
        port = endpoints.url.rpartition(":")[2]
        with urllib.request.urlopen(f"http://{address}:{port}/live", timeout=60) as answer:
            assert answer.status == 200


def test_where_the_machine_lacks_ipv6_all_addresses_are_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listening(ALL, 0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "found"),
    [("0.0.0.0", "127.0.0.1"), (ALL, "127.0.0.1"), ("::1", "[::1]"), ("10.0.0.1", "10.0.0.1"), ("node", "node")],
)
def test_a_url_reaches_whoever_listens_there(host: str, found: str) -> None:
    assert reachable(host) == found


@pytest.mark.parametrize("address", ["::1", "[::1]", "127.0.0.1"])
def test_a_kubelet_is_reached_at_the_node_s_address_as_the_downward_api_gives_it(address: str) -> None:
    """``https://$(NODE_IP):10250``: no brackets stand around an IPv6 address there."""
    with listening(address.strip("[]"), 0) as listener:

        def accept() -> None:
            listener.accept()[0].close()

        called = threading.Thread(target=accept)
        called.start()
        access = Access(url=f"https://{address}:{listener.getsockname()[1]}", insecure=True)
        with pytest.raises(HttpError):
            Https(access, port=1, untrusted="").ask("/pods")
        called.join(60)
        assert not called.is_alive()
