import { describe, expect, it } from "vitest";

import { countOf, formatAge, formatBytes, formatLatency, formatRate } from "./format";

describe("formatBytes", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1500, "1.5 kB"],
    [999_600, "1.0 MB"],
    [137_438_953_472, "137 GB"],
    [5e15, "5000 TB"],
  ])("writes %d as %s", (bytes, text) => expect(formatBytes(bytes)).toBe(text));
});

describe("formatAge", () => {
  it.each([
    [-5000, "0 s"],
    [59_000, "59 s"],
    [60_000, "1 min"],
    [3_600_000, "1 h"],
    [172_800_000, "2 d"],
  ])("writes %d ms as %s", (age, text) => expect(formatAge(age)).toBe(text));
});

it("writes latencies and rates with the digits that matter", () => {
  expect(formatLatency(84.6)).toBe("85 ms");
  expect(formatLatency(1240)).toBe("1.24 s");
  expect(formatRate(42.54)).toBe("42.5 tokens/s");
  expect(formatRate(431.7)).toBe("432 tokens/s");
});

it("counts in the singular and the plural", () => {
  expect(countOf(1, "node")).toBe("1 node");
  expect(countOf(0, "node")).toBe("0 nodes");
});
