"""What holds for every request: Host and Origin, CORS, request ids, JSON for whatever nobody serves."""

import pytest

from exo.gateway.auth import AccessPolicy, check_access
from exo.gateway.errors import GatewayError
from exo.gateway.listening import AddressInUseError, bind
from support.fake_cluster import FakeCluster
from support.gateway import BODY, Client

POLICY = AccessPolicy(hosts=frozenset({"box.lan"}), origins=frozenset({"https://chat.example"}))


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "localhost:52415", "127.0.0.1:1", "[::1]:5", "192.168.1.7:52415", "box.lan:1", "a.localhost"],
)
def test_own_names_and_plain_addresses_are_answered(host: str) -> None:
    check_access(POLICY, host=host, origin="")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:52415", "box.lan.evil.example", "[bad", "a:b:c", ":80"])
def test_names_of_others_are_refused(host: str) -> None:
    with pytest.raises(GatewayError) as refused:
        check_access(POLICY, host=host, origin="")
    assert (refused.value.status, refused.value.code, refused.value.param) == (403, "forbidden", "Host")


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:52415",
        "http://localhost:3000",
        "https://[::1]:8443",
        "https://chat.example",
        "http://192.168.1.7:52415",
    ],
)
def test_pages_of_this_machine_and_admitted_ones_may_call(origin: str) -> None:
    check_access(POLICY, host="192.168.1.7:52415", origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://chat.example",
        "http://192.168.1.8:52415",
        "http://localhost.evil.example",
        "x",
    ],
)
def test_pages_of_others_may_not(origin: str) -> None:
    with pytest.raises(GatewayError) as refused:
        check_access(POLICY, host="192.168.1.7:52415", origin=origin)
    assert (refused.value.status, refused.value.code, refused.value.param) == (403, "forbidden", "Origin")


def test_a_star_admits_every_page() -> None:
    check_access(AccessPolicy(origins=frozenset({"*"})), host="localhost", origin="https://evil.example")


async def test_a_foreign_page_is_told_nothing(cluster: FakeCluster, client: Client) -> None:
    answer = await client.post("/v1/chat/completions", json=BODY, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    assert cluster.commands == []
    rebound = await client.get("/state", headers={"Host": "evil.example"})
    assert rebound.status_code == 403


async def test_a_local_page_gets_cors_headers(client: Client) -> None:
    origin = {"Origin": "http://localhost:3000"}
    ask = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = await client.options("/v1/chat/completions", headers=ask)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin["Origin"]
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    answer = await client.get("/node_id", headers=origin)
    assert answer.headers["access-control-allow-origin"] == origin["Origin"]
    assert answer.headers["vary"] == "Origin"


async def test_every_answer_has_a_request_id(client: Client) -> None:
    first, second = (await client.get("/node_id"), await client.get("/nothing"))
    assert len({first.headers["x-request-id"], second.headers["x-request-id"]}) == 2
    given = await client.get("/node_id", headers={"X-Request-Id": "my-id.1"})
    assert given.headers["x-request-id"] == "my-id.1"
    odd = await client.get("/node_id", headers={"X-Request-Id": "a b;c"})
    assert odd.headers["x-request-id"] != "a b;c"


async def test_an_unknown_path_is_json_404(client: Client) -> None:
    for path in ("/v1/nothing", "/api/nothing", "/nothing", "/assets/../secret", "/v1/chat", "/.env"):
        for method in ("GET", "POST", "DELETE", "PUT"):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), (method, path)


async def test_a_wrong_method_is_json_405(client: Client) -> None:
    for method, path, allowed in (
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/models", "GET"),
        ("POST", "/state", "GET"),
    ):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed"), path
        assert allowed in answer.headers["allow"]


async def test_the_dashboard_and_the_reference_load_nothing_from_elsewhere(client: Client) -> None:
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    docs = await client.get("/docs")
    assert docs.status_code == 200
    assert "//" not in docs.text.replace("=> //", "")
    assert "script-src 'sha256-" in docs.headers["content-security-policy"]
    schema = (await client.get("/openapi.json")).json()
    assert schema == (await client.get("/schema")).json()
    assert "/v1/chat/completions" in schema["paths"]


async def test_an_unforeseen_fault_shows_nothing_of_itself(cluster: FakeCluster, client: Client) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("a secret path /srv/exo/x")

    cluster.previews = explode  # type: ignore[method-assign,assignment]
    answer = await client.get("/instance/previews", params={"model_id": "org/model"})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret" not in answer.text


@pytest.mark.parametrize("host", ["999.1.1.1", "a" * 70, "192.0.2.1"])
def test_an_address_that_is_not_ours_names_the_flag(host: str) -> None:
    with pytest.raises(AddressInUseError, match="--host"):
        bind(host, 0)


def test_a_port_in_use_names_the_flag() -> None:
    with bind("127.0.0.1", 0) as taken, pytest.raises(AddressInUseError, match="--port"):
        bind("127.0.0.1", taken.getsockname()[1])
