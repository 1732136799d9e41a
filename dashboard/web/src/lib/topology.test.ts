import { expect, it } from "vitest";

import { aLink, aTopology } from "../testing/topology";
import { describeSpeed, formatRoundTrip, kindOf, layOut, nameIn, pairsOf } from "./topology";

it("joins both directions of all links between two nodes, the best one first", () => {
  const topology = aTopology([
    aLink("b", "a", { kind: "wifi", bandwidth: 5e7 }),
    aLink("a", "b", { kind: "ethernet", bandwidth: 1e8 }),
    aLink("a", "b", { kind: "thunderbolt", bandwidth: 4e9, stale: true }),
    aLink("c", "a", { bandwidth: 1e8 }),
  ]);
  const [first, second] = pairsOf(topology);
  expect(first).toMatchObject({ a: "a", b: "b", best: { kind: "ethernet" } });
  expect(first?.links.map((link) => link.kind)).toEqual(["ethernet", "wifi", "thunderbolt"]);
  expect(second).toMatchObject({ a: "a", b: "c" });
});

it("prefers the quicker of equally wide links", () => {
  const links = [aLink("a", "b", { latency_ms: 2 }), aLink("b", "a", { latency_ms: 1 })];
  expect(pairsOf(aTopology(links))[0]?.best.source).toBe("b");
});

it("orders pairs by the names of their nodes, not by their ids", () => {
  const topology = aTopology([aLink("a", "b")], { a: "zoe", b: "anna" });
  expect(pairsOf(topology)[0]).toMatchObject({ a: "b", b: "a" });
  expect(nameIn(topology, "unknown")).toBe("unknown");
});

it("says latency and bandwidth in words", () => {
  expect(describeSpeed(aLink("a", "b", { latency_ms: 0.214, bandwidth: 117_000_000 }))).toBe(
    "0.21 ms, 117 MB/s",
  );
  expect(describeSpeed(aLink("a", "b", { latency_ms: 34.4, bandwidth: 0 }))).toBe("34 ms");
  expect(formatRoundTrip(9.99)).toBe("9.99 ms");
});

it("names kinds as people do, also those of a newer node", () => {
  expect(kindOf(aLink("a", "b", { kind: "wifi" }))).toBe("Wi-Fi");
  expect(kindOf(aLink("a", "b", { kind: "laser" as "wifi" }))).toBe("laser");
});

it("puts two nodes side by side, one in the middle and more around it", () => {
  expect(layOut(["a"], 100, 100)).toEqual([{ node: "a", x: 50, y: 50 }]);
  const [left, right] = layOut(["a", "b"], 100, 100);
  expect([Math.round(left?.x ?? 0), Math.round(right?.x ?? 0)]).toEqual([14, 86]);
  expect(layOut(["a", "b", "c"], 100, 100)[0]?.y).toBeCloseTo(18);
});
