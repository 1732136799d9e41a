/** Pure questions about what connects the nodes: what the map and the list of links show. */
import type { Topology, TopologyLink } from "../api/types";
import { formatBytes } from "./format";

/** Two nodes and everything between them, in both directions; `a` comes before `b` by name. */
export interface Pair {
  key: string;
  a: string;
  b: string;
  /** The link that counts: fresh before stale, then wide before narrow, then quick before slow. */
  best: TopologyLink;
  links: TopologyLink[];
}

const KINDS: Record<TopologyLink["kind"], string> = {
  thunderbolt: "Thunderbolt",
  ethernet: "Ethernet",
  wifi: "Wi-Fi",
  loopback: "this machine",
  other: "network",
};

export function kindOf(link: TopologyLink): string {
  // A newer node may know a kind that this page does not.
  return KINDS[link.kind] ?? link.kind;
}

export function nameIn(topology: Topology, node: string): string {
  return topology.nodes[node]?.name ?? node;
}

/** The pairs of nodes that have a link, sorted by name. */
export function pairsOf(topology: Topology): Pair[] {
  const pairs = new Map<string, TopologyLink[]>();
  for (const link of topology.links) {
    const key = inOrder(topology, link.source, link.target).join(" ");
    pairs.set(key, [...(pairs.get(key) ?? []), link]);
  }
  return [...pairs].map(([key, links]) => makePair(topology, key, links)).sort(byName(topology));
}

function makePair(topology: Topology, key: string, links: TopologyLink[]): Pair {
  const sorted = [...links].sort(
    (left, right) =>
      Number(left.stale) - Number(right.stale) ||
      right.bandwidth - left.bandwidth ||
      left.latency_ms - right.latency_ms,
  );
  const best = sorted[0] as TopologyLink;
  const [a, b] = inOrder(topology, best.source, best.target);
  return { key, a, b, best, links: sorted };
}

function inOrder(topology: Topology, one: string, other: string): [string, string] {
  const order = nameIn(topology, one).localeCompare(nameIn(topology, other)) || one.localeCompare(other);
  return order <= 0 ? [one, other] : [other, one];
}

function byName(topology: Topology): (left: Pair, right: Pair) => number {
  return (left, right) =>
    nameIn(topology, left.a).localeCompare(nameIn(topology, right.a)) ||
    nameIn(topology, left.b).localeCompare(nameIn(topology, right.b));
}

/** "0.21 ms" or "34 ms": what a cable takes and what a bad Wi-Fi takes both matter. */
export function formatRoundTrip(milliseconds: number): string {
  return milliseconds < 10 ? `${milliseconds.toFixed(2)} ms` : `${Math.round(milliseconds)} ms`;
}

/** Latency and bandwidth in words; a bandwidth that was not measured yet is left out. */
export function describeSpeed(link: TopologyLink): string {
  const latency = formatRoundTrip(link.latency_ms);
  return link.bandwidth > 0 ? `${latency}, ${formatBytes(link.bandwidth)}/s` : latency;
}

export interface Spot {
  node: string;
  x: number;
  y: number;
}

/** Puts nodes on an ellipse around the middle; two of them side by side, more of them from the top on. */
export function layOut(nodes: readonly string[], width: number, height: number): Spot[] {
  const start = nodes.length === 2 ? Math.PI : -Math.PI / 2;
  const radius = nodes.length === 1 ? 0 : 1;
  return nodes.map((node, index) => {
    const angle = start + (2 * Math.PI * index) / nodes.length;
    return {
      node,
      x: width / 2 + radius * Math.cos(angle) * width * 0.36,
      y: height / 2 + radius * Math.sin(angle) * height * 0.32,
    };
  });
}
