"""What a node says is wrong with the cluster."""

from exo.broker.findings import find_other_versions
from exo.broker.hello import Hello, Position
from exo.streams.ids import BootId, NodeId


def member(version: str) -> Hello:
    return Hello(
        node=NodeId("b"),
        boot=BootId("1"),
        name="studio",
        version=version,
        started_at=0,
        role="following",
        position=Position(),
    )


def test_members_of_another_version_are_named() -> None:
    (finding,) = find_other_versions("0.2.0", [member("0.2.0"), member("0.1.0")])
    assert finding.code == "mixed_versions"
    assert "studio runs 0.1.0" in finding.message
    assert list(find_other_versions("0.2.0", [member("0.2.0")])) == []
