import { describe, expect, it } from "vitest";

import type { ClusterState, RunnerStatus, Sample } from "../api/types";
import { aState, aTask, anInstance } from "../testing/examples";
import {
  ageOf,
  gaugeOf,
  isReady,
  isStale,
  nodeName,
  ranksOf,
  readyModels,
  soleInstanceOn,
  tasksInFlight,
  viewStatus,
} from "./views";

describe("viewStatus", () => {
  it("measures loading by layers and never divides by zero", () => {
    const loading = (loaded: number, total: number): RunnerStatus => ({
      type: "loading",
      layers_loaded: loaded,
      total_layers: total,
    });
    expect(viewStatus(loading(3, 30))).toEqual({
      label: "Loading layer 3 of 30",
      tone: "busy",
      progress: 0.1,
    });
    expect(viewStatus(loading(0, 0)).progress).toBe(0);
  });

  it("names the attempt only while another one follows", () => {
    const failed = { type: "failed", code: "runner_failed", message: "", evidence: [], attempt: 2 } as const;
    expect(viewStatus({ ...failed, evidence: [], retry_at: 5 }).label).toBe("Failed on attempt 2");
    expect(viewStatus({ ...failed, evidence: [], retry_at: 0 }).label).toBe("Failed");
  });

  it("shows a runner that has not been started, and a status of a newer node", () => {
    expect(viewStatus(undefined).label).toBe("Waiting for its node");
    expect(viewStatus({ type: "sharding" } as unknown as RunnerStatus).label).toBe("sharding");
  });
});

describe("readiness", () => {
  const twoRanks = (second: RunnerStatus, online = true): ClusterState =>
    aState({ instances: [anInstance("one", [{ type: "ready" }, second])], online });

  it("needs every rank", () => {
    expect(readyModels(twoRanks({ type: "ready" }))).toEqual(["model-of-one"]);
    expect(readyModels(twoRanks({ type: "warming_up" }))).toEqual([]);
  });

  it("needs the node too", () => {
    expect(readyModels(twoRanks({ type: "ready" }, false))).toEqual([]);
  });

  it("needs State to know the runner", () => {
    const state = twoRanks({ type: "ready" });
    const instance = Object.values(state.instances)[0];
    expect(instance && isReady({ ...state, runners: {} }, instance)).toBe(false);
  });
});

it("puts ranks in order and finds their runners", () => {
  const state = aState({ instances: [anInstance("one", [{ type: "ready" }, { type: "starting" }])] });
  const instance = state.instances["one"];
  if (!instance) throw new Error("the example lost its instance");
  const ranks = ranksOf(state, { ...instance, shards: [...instance.shards].reverse() });
  expect(ranks.map((rank) => [rank.shard.rank, rank.status.label])).toEqual([
    [0, "Ready"],
    [1, "Starting"],
  ]);
});

it("says of a rank on an absent node that the node is offline, whatever its runner said last", () => {
  const state = aState({
    instances: [anInstance("one", [{ type: "ready" }, { type: "ready" }])],
    online: false,
  });
  const instance = state.instances["one"];
  if (!instance) throw new Error("the example lost its instance");
  const ranks = ranksOf(state, instance).map((rank) => [rank.status.label, rank.status.tone]);
  expect(ranks).toEqual([
    ["Ready", "good"],
    [`Node ${nodeName(state, "node-1")} is offline`, "bad"],
  ]);
  expect(isReady(state, instance)).toBe(false);
});

it("counts the tasks of one instance", () => {
  const state = aState({ instances: [anInstance("one", [{ type: "ready" }])] });
  const instance = state.instances["one"];
  if (!instance) throw new Error("the example lost its instance");
  const tasks = { a: aTask("a", "one"), b: aTask("b", "two") };
  expect(tasksInFlight({ ...state, tasks }, instance)).toBe(1);
});

it("gives a node's rate to an instance only where it leads alone", () => {
  const alone = aState({ instances: [anInstance("one", [{ type: "ready" }])] });
  const shared = aState({
    instances: [anInstance("one", [{ type: "ready" }]), anInstance("two", [{ type: "ready" }])],
  });
  const of = (state: ClusterState): string | null => {
    const instance = state.instances["one"];
    return instance ? soleInstanceOn(state, instance) : "missing";
  };
  expect(of(alone)).toBe("node-0");
  expect(of(shared)).toBeNull();
});

it("falls back to the id of a node it does not know", () => {
  expect(nodeName(aState({ instances: [] }), "gone")).toBe("gone");
  expect(nodeName(aState({ instances: [] }), "node-0")).toBe("name of node-0");
});

it("calls a gauge stale after it missed two readings, and narrows it by kind", () => {
  const sample: Sample = { age: 2, interval: 5, gauge: { type: "memory", total: 10, available: 4 } };
  const gauges = { samples: { n: { memory: sample } }, fetchedAt: 1000 };
  const reading = gaugeOf(gauges, "n", "memory");
  if (!reading) throw new Error("the gauge is missing");
  expect(reading.gauge.available).toBe(4);
  expect(ageOf(reading, 4000)).toBe(5000);
  expect(ageOf(reading, 0)).toBe(2000);
  expect(isStale(reading, 24_000)).toBe(false);
  expect(isStale(reading, 24_001)).toBe(true);
  expect(gaugeOf(gauges, "n", "throughput")).toBeNull();
  expect(gaugeOf(gauges, "other", "memory")).toBeNull();
});
