"""A person looks at a cluster of several nodes: who is there, what connects them, and what is wrong.

The gateway and the page are real; the other nodes are told by the events that they would write.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Generator
from time import time_ns
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from exo.broker.cluster_report import ClusterReport
from exo.services.telemetry.gauges import Reading
from exo.streams.codec import encode
from exo.streams.events import (
    Envelope,
    Event,
    LinksMeasured,
    NodeDraining,
    NodeJoined,
    NodeTimedOut,
    SessionMerged,
    subject_of_event,
)
from exo.streams.findings import NodeFinding
from exo.streams.ids import BootId, NodeId, SessionId
from exo.streams.links import Link
from exo.streams.merges import Dropped
from exo.streams.nodes import NodeFacts
from exo.streams.telemetry import FindingsGauge, Gauge, LinksGauge, MemoryGauge, Sample
from support.browser import Opener, save_screenshot
from support.fake_cluster import NODE, FakeCluster
from support.gateway import open_client
from support.tracked import ROOT

AXE = ROOT / "dashboard" / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / ".build" / "screenshots"
STUDIO, ATTIC = NodeId("node-2"), NodeId("node-3")
ETHERNET = Link(
    peer=STUDIO,
    local_address="10.0.0.1",
    remote_address="10.0.0.2",
    latency=0.00021,
    interface="eth0",
    kind="ethernet",
    bandwidth=117e6,
)
WIFI = replace(ETHERNET, peer=ATTIC, kind="wifi", interface="wlan0", latency=0.0042, bandwidth=38e6)
CABLE = replace(ETHERNET, peer=ATTIC, kind="thunderbolt", interface="en3", latency=0.00008, bandwidth=3.9e9)

REPORT = ClusterReport(
    node=NODE,
    cluster="home",
    closed=False,
    role="hub",
    hub=NODE,
    session=SessionId("session-2"),
    why="",
    port=52414,
    members=(),
    methods=(),
    attempts=(),
    refusals=(),
    strangers=(),
    bad_addresses=(),
    counters={},
    findings=(NodeFinding(code="secret_mismatch", message="cellar has another secret", remedy="give it ours"),),
)


class ManyNodes(FakeCluster):
    """Gauges of three nodes; what `studio` reports of its memory is old."""

    def report(self) -> Any:
        return REPORT

    def samples(self) -> list[Reading]:
        fault = NodeFinding(code="macmon_missing", message="macmon is not installed", remedy="install it")
        return [
            *super().samples(),
            self._read(NODE, "links", LinksGauge(links=(ETHERNET, WIFI))),
            self._read(STUDIO, "links", LinksGauge(links=(CABLE,))),
            self._read(STUDIO, "memory", MemoryGauge(total=512_000_000_000, available=300_000_000_000)),
            self._read(STUDIO, "findings", FindingsGauge(findings=(fault,))),
        ]

    def _read(self, node: NodeId, name: str, gauge: Gauge) -> Reading:
        sample = Sample(taken_at=0, interval=60 if name in {"links", "findings"} else 2, gauge=gauge)
        return Reading(node=node, name=name, sample=sample, received=0)

    def age(self, reading: Reading) -> float:
        return 90 if (reading.node, reading.name) == (STUDIO, "memory") else 1

    async def tell(self, node: NodeId, *events: Event) -> None:
        """Write facts of another node."""
        for event in events:
            self._events += 1
            envelope = Envelope(
                id=f"{node}-{self._events}",
                at=time_ns() // 1_000_000,
                actor=node,
                boot=BootId(node),
                event=event,
            )
            await self.bus.append(subject_of_event(event), encode(envelope))


class Site:
    """The gateway in a loop of its own, beside the browser's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster: ManyNodes, url: str) -> None:
        self._loop = loop
        self.cluster = cluster
        self.url = url

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)


async def host(opened: Callable[[Site], None], closing: asyncio.Event) -> None:
    cluster = ManyNodes()
    async with cluster.running():
        studio = NodeFacts(name="studio", version="0", machine="Mac15,14", chip="Apple M3 Ultra")
        attic = NodeFacts(name="attic", version="0", chip="AMD Ryzen 9", worker=False)
        await cluster.record(LinksMeasured(node=NODE, links=(ETHERNET, WIFI)))
        await cluster.tell(STUDIO, NodeJoined(node=STUDIO, facts=studio), LinksMeasured(node=STUDIO, links=(CABLE,)))
        await cluster.tell(ATTIC, NodeJoined(node=ATTIC, facts=attic))
        await cluster.record(NodeDraining(node=STUDIO, draining=True))
        async with open_client(cluster) as client:
            opened(Site(asyncio.get_running_loop(), cluster, str(client.base_url).rstrip("/")))
            await closing.wait()


@pytest.fixture
def site(home: dict[str, str]) -> Generator[Site]:
    """Three nodes: `test` is hub and master, `studio` is draining, `attic` runs no models."""
    ready = threading.Event()
    found: list[Site] = []
    closing = asyncio.Event()

    def note(opened: Site) -> None:
        found.append(opened)
        ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(host(note, closing)))
    thread.start()
    assert ready.wait(20)
    yield found[0]
    found[0]._loop.call_soon_threadsafe(closing.set)
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def open_site(browser: Browser, site: Site) -> Generator[Opener]:
    opener = Opener(browser, url=site.url)
    yield opener
    opener.close()


def node_of(page: Page, name: str) -> Any:
    nodes = page.get_by_role("region", name="Nodes")
    return nodes.get_by_role("listitem").filter(has=page.get_by_role("heading", name=re.compile(name)))


def test_nodes_show_their_offices_their_state_and_how_old_their_numbers_are(open_site: Opener) -> None:
    page = open_site()
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("3 of 3 nodes online")
    offices = page.get_by_role("list", name="Offices of test").get_by_role("listitem")
    expect(offices).to_have_text(["hub", "master"])
    expect(page.get_by_role("list", name="Offices of studio")).to_contain_text("draining")
    expect(node_of(page, "studio")).to_contain_text("Apple M3 Ultra")
    expect(node_of(page, "studio")).to_contain_text("stale, read 1 min ago")
    expect(node_of(page, "attic")).to_contain_text("runs no models")
    expect(page.get_by_role("region", name="Hardware")).to_contain_text("studio: macmon is not installed")


def test_the_cluster_says_who_may_join_what_keeps_nodes_apart_and_what_a_merge_cost(
    open_site: Opener, site: Site
) -> None:
    page = open_site()
    cluster = page.get_by_role("region", name="Cluster")
    expect(cluster).to_contain_text("home, hub test, open: whoever reaches it may join")
    expect(cluster).to_contain_text("cellar has another secret secret_mismatch")
    expect(cluster).to_contain_text("give it ours")
    session = SessionId("session-1")
    lost = Dropped(kind="instance", id="instance-9", name="org/lost", reason="its node is gone")
    site.do(
        site.cluster.tell(ATTIC, SessionMerged(node=ATTIC, session=session, adopted=("instance-8",), dropped=(lost,)))
    )
    expect(cluster).to_contain_text("1 kept, 1 dropped")
    expect(cluster).to_contain_text("Dropped instance org/lost: its node is gone")


def test_links_are_listed_with_latency_and_bandwidth(open_site: Opener) -> None:
    page = open_site()
    links = page.get_by_role("region", name="Links")
    expect(links).to_contain_text("3 connected pairs")
    cable = links.get_by_role("listitem").filter(has_text="Thunderbolt").first
    expect(cable).to_contain_text("0.08 ms, 3.9 GB/s")
    cable.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(cable).to_contain_text("From studio: Thunderbolt (en3)")
    expect(cable).to_contain_text("10.0.0.1 to 10.0.0.2")
    drawing = page.get_by_role("img", name=re.compile("Map of 3 nodes with 3 connected pairs"))
    expect(drawing).to_be_visible()
    expect(drawing.locator("title").filter(has_text="attic and test: Wi-Fi, 4.20 ms, 38.0 MB/s")).to_have_count(1)


def test_a_node_that_is_gone_says_so_and_its_links_with_it(open_site: Opener, site: Site) -> None:
    page = open_site()
    expect(node_of(page, "attic")).to_contain_text("Online")
    site.do(site.cluster.record(NodeTimedOut(node=ATTIC)))
    expect(node_of(page, "attic")).to_contain_text("stopped answering")
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("2 of 3 nodes online")
    links = page.get_by_role("region", name="Links")
    expect(links.get_by_text("Not measured lately")).to_have_count(2)


def test_an_instance_on_a_node_that_is_gone_is_not_called_ready(open_site: Opener, site: Site) -> None:
    page = open_site()
    instances = page.get_by_role("region", name="Instances", exact=True)
    expect(instances).to_contain_text("1 of 1 instance ready")
    site.do(site.cluster.record(NodeTimedOut(node=NODE)))
    expect(instances).to_contain_text("0 of 1 instance ready")
    expect(instances.get_by_text("Node test is offline")).to_be_visible()
    expect(instances.get_by_text("Ready", exact=True)).to_be_hidden()


def test_many_nodes_scroll_in_their_column_and_not_the_page(open_site: Opener, site: Site) -> None:
    for number in range(20):
        node = NodeId(f"more-{number}")
        link = replace(ETHERNET, peer=NODE)
        joined = NodeJoined(node=node, facts=NodeFacts(name=f"more-{number}", version="0"))
        site.do(site.cluster.tell(node, joined, LinksMeasured(node=node, links=(link,))))
    page = open_site()
    expect(page.get_by_role("region", name="Links")).to_contain_text("connected pairs")
    heights = page.evaluate(
        "(({scrollHeight, clientHeight}) => [scrollHeight, clientHeight])(document.documentElement)"
    )
    assert heights == [900, 900]


def test_a_new_link_appears_by_itself(open_site: Opener, site: Site) -> None:
    page = open_site()
    far = replace(ETHERNET, local_address="10.9.0.1", remote_address="10.9.0.2", kind="thunderbolt", bandwidth=8e9)
    links = page.get_by_role("region", name="Links")
    expect(links).not_to_contain_text("10.9.0.2")
    site.do(site.cluster.record(LinksMeasured(node=NODE, links=(ETHERNET, WIFI, far))))
    expect(links).to_contain_text("10.9.0.2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_the_cluster_can_be_read_by_everybody(open_site: Opener, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `make dashboard`")
    page = open_site(width=width, scheme=scheme, bypass_csp=True)
    expect(page.get_by_role("region", name="Links")).to_be_visible()
    page.get_by_role("region", name="Links").locator("summary").first.click()
    save_screenshot(page, SCREENSHOTS, f"cluster-{scheme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run()).violations.map((one) => `${one.id}: ${one.nodes[0].html}`)")
    assert found == []
