import pytest

from exo.broker.addresses import AddressError, list_own_addresses, list_usable, parse_address, plain_host


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10.0.0.7", "10.0.0.7:52414"),
        (" 10.0.0.7:9 ", "10.0.0.7:9"),
        ("Mac-Studio.local", "mac-studio.local:52414"),
        ("studio:52500", "studio:52500"),
        ("[fd00::1]:80", "[fd00::1]:80"),
        ("[fd00::1]", "[fd00::1]:52414"),
        ("fd00:0::1", "[fd00::1]:52414"),
        ("/ip4/10.0.0.7/tcp/4001", "10.0.0.7:4001"),
        ("/ip4/10.0.0.7", "10.0.0.7:52414"),
        ("/ip6/fd00::1/tcp/4001", "[fd00::1]:4001"),
        ("/dns/studio.lan/tcp/4001", "studio.lan:4001"),
        ("/dns4/studio.lan/tcp/4001/p2p/12D3Koo", "studio.lan:4001"),
    ],
)
def test_what_people_write_is_read(text: str, read: str) -> None:
    assert str(parse_address(text)) == read


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("10.0.0.999", "no IPv4 address"),
        ("1.2.3", "no IPv4 address"),
        ("host:", "a number from 1 to 65535"),
        ("host:0", "a number from 1 to 65535"),
        ("host:65536", "a number from 1 to 65535"),
        ("host:http", "a number from 1 to 65535"),
        ("http://host:80", "no IPv6 address"),
        ("two words", "neither an IP address nor a host name"),
        ("-host", "neither an IP address nor a host name"),
        ("[fd00::1", "a bracket that is not closed"),
        ("[fd00::1]80", "a bracket that is not closed"),
        ("[10.0.0.7]:80", "no IPv6 address"),
        ("/udp/1/2", "expected /ip4, /ip6 or /dns"),
        ("/ip4/studio/tcp/1", "no IPv4 address"),
        ("/ip4/10.0.0.7/udp/1", "expected /tcp/PORT"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, complaint: str) -> None:
    with pytest.raises(AddressError, match=complaint):
        parse_address(text)


def test_own_addresses_are_those_that_others_can_use() -> None:
    found = ["127.0.0.1", "::1", "fe80::1", "fd00::5", "169.254.3.4", "192.168.1.9", "10.0.0.2", "10.0.0.2"]
    assert list_usable(found) == ["10.0.0.2", "192.168.1.9", "fd00::5", "169.254.3.4"]
    assert list_own_addresses(7, host="127.0.0.1") == ("127.0.0.1:7",)


def test_one_machine_has_one_spelling() -> None:
    assert plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_host("fe80::1%eth0") == "fe80::1"
    assert plain_host("10.0.0.1") == "10.0.0.1"
