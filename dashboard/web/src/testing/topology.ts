/** Small topologies, and what a node says of its cluster, for tests. */
import type { ClusterReport, Merge, Standing, Topology, TopologyLink } from "../api/types";

export function aLink(source: string, target: string, changes: Partial<TopologyLink> = {}): TopologyLink {
  return {
    source,
    target,
    kind: "ethernet",
    interface: "eth0",
    local_address: "10.0.0.1",
    remote_address: "10.0.0.2",
    latency_ms: 0.5,
    bandwidth: 100_000_000,
    age: 1,
    stale: false,
    ...changes,
  };
}

/** The nodes of these links, all online; `names` tells other names than the ids. */
export function aTopology(links: TopologyLink[], names: Record<string, string> = {}): Topology {
  const ids = [...new Set(links.flatMap((link) => [link.source, link.target]))].sort();
  const nodes = Object.fromEntries(ids.map((id) => [id, aTopologyNode(names[id] ?? id)]));
  return { nodes, links, findings: [] };
}

function aTopologyNode(name: string): Topology["nodes"][string] {
  return {
    name,
    online: true,
    since: 0,
    cause: "",
    hub: false,
    master: false,
    worker: true,
    draining: false,
    version: "0.1.0",
    machine: "",
    chip: "",
    cores: 8,
    operating_system: "Linux",
    os_version: "",
    os_build: "",
    memory_total: 16_000_000_000,
    memory_available: 8_000_000_000,
    memory_age: 1,
    memory_stale: false,
  };
}

/** An open cluster whose hub is node `a`, with nothing wrong. */
export function aStanding(changes: Partial<ClusterReport> = {}, merges: Merge[] = []): Standing {
  return { report: { cluster: "home", closed: false, hub: "a", why: "", findings: [], ...changes }, merges };
}
