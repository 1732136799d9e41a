// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { aState, anInstance } from "../testing/examples";
import { aLink, aStanding, aTopology } from "../testing/topology";
import { FakeEventSource, json, serve } from "../testing/server";
import { cluster } from "./cluster.svelte";

let stop: () => void;

function answer(path: string): Response {
  if (path === "v1/models") return json({ data: [{ id: "b" }, { id: "a" }] });
  if (path === "state/telemetry") return json({});
  if (path === "state/topology") return json(aTopology([aLink("a", "b")]));
  if (path === "v1/cluster") return json(aStanding());
  if (path === "state/tasks") return json({ t: { id: "t", model: "m", instance: "one" } });
  return json(aState({ instances: [anInstance("one", [{ type: "ready" }])] }));
}

async function settle(milliseconds = 0): Promise<void> {
  await vi.advanceTimersByTimeAsync(milliseconds);
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", FakeEventSource);
  FakeEventSource.opened = [];
});

afterEach(() => {
  stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const source = (): FakeEventSource => {
  const newest = FakeEventSource.opened.at(-1);
  if (!newest) throw new Error("no EventSource was opened");
  return newest;
};

it("loads State and follows the log behind it", async () => {
  serve(answer);
  stop = cluster.start();
  await settle();
  expect(cluster.state?.applied).toBe(7);
  expect(cluster.models).toEqual(["a", "b"]);
  expect(cluster.topology?.links).toHaveLength(1);
  expect(cluster.standing?.report.cluster).toBe("home");
  expect(source().url.search).toBe("?after=session.7");
  source().onopen?.();
  expect(cluster.link).toBe("live");
});

it("answers a burst of events with one fetch of the parts they change", async () => {
  const asked = serve(answer);
  stop = cluster.start();
  await settle();
  source().onopen?.();
  asked.length = 0;
  for (let count = 0; count < 20; count += 1) {
    source().onmessage?.({ data: JSON.stringify({ event: { type: "task_assigned" } }) });
  }
  await settle(1000);
  expect(asked).toEqual(["GET state/tasks"]);
  expect(Object.keys(cluster.state?.tasks ?? {})).toEqual(["t"]);
  expect(Object.keys(cluster.state?.instances ?? {})).toEqual(["one"]);
});

it("does not poll: an idle minute costs the gauges, and links and cluster once", async () => {
  const asked = serve(answer);
  stop = cluster.start();
  await settle();
  source().onopen?.();
  asked.length = 0;
  await settle(60_000);
  await settle(500);
  expect(new Set(asked)).toEqual(new Set(["GET state/telemetry", "GET state/topology", "GET v1/cluster"]));
  expect(asked.filter((one) => one === "GET state/telemetry")).toHaveLength(6);
  expect(asked).toHaveLength(8);
});

it("says why the link is lost, keeps the last State and comes back by itself", async () => {
  let down = false;
  serve((path) => {
    if (down) return json({ error: { message: "The broker is away", code: "broker_unavailable" } }, 503);
    return answer(path);
  });
  stop = cluster.start();
  await settle();
  source().onopen?.();
  down = true;
  source().onerror?.();
  expect(cluster.link).toBe("lost");
  expect(source().closed).toBe(true);
  await settle(1000);
  expect(cluster.problem).toEqual({ code: "broker_unavailable", message: "The broker is away" });
  expect(cluster.state).not.toBeNull();
  down = false;
  await settle(10_000);
  source().onopen?.();
  expect(cluster.link).toBe("live");
  expect(cluster.problem).toBeNull();
  expect(FakeEventSource.opened.filter((item) => !item.closed)).toHaveLength(1);
});

it("opens one log only, however often it is told to try", async () => {
  serve(() => Promise.reject(new TypeError("Failed to fetch")));
  stop = cluster.start();
  await settle();
  expect(cluster.problem?.code).toBe("unreachable");
  serve(answer);
  cluster.retryNow();
  cluster.retryNow();
  cluster.retryNow();
  await settle(30_000);
  expect(FakeEventSource.opened).toHaveLength(1);
});
