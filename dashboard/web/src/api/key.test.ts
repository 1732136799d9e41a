// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { json, serve } from "../testing/server";

const refusal = (): Response =>
  json({ error: { message: "An API key is required.", code: "unauthorized" } }, 401);
const bearer = (init: RequestInit): string | null => new Headers(init.headers).get("authorization");

beforeEach(() => {
  localStorage.clear();
  vi.resetModules();
});
afterEach(() => vi.unstubAllGlobals());

it("asks once for a key, keeps it, and sends it from then on", async () => {
  const { getState, getTelemetry } = await import("./client");
  const prompt = vi.fn(() => " exo-secret ");
  vi.stubGlobal("prompt", prompt);
  const sent: (string | null)[] = [];
  serve((_path, init) => {
    sent.push(bearer(init));
    return bearer(init) === "Bearer exo-secret" ? json({}) : refusal();
  });
  await Promise.all([getState(), getTelemetry()]);
  await getState();
  expect(prompt).toHaveBeenCalledTimes(1);
  expect(sent.filter((one) => one === null)).toHaveLength(2);
  expect(sent.at(-1)).toBe("Bearer exo-secret");
  expect(localStorage.getItem("exo.key")).toBe("exo-secret");
});

it("does not ask again when nobody answers", async () => {
  const { getState } = await import("./client");
  const prompt = vi.fn(() => null);
  vi.stubGlobal("prompt", prompt);
  serve(refusal);
  await expect(getState()).rejects.toMatchObject({ code: "unauthorized" });
  await expect(getState()).rejects.toMatchObject({ code: "unauthorized" });
  expect(prompt).toHaveBeenCalledTimes(1);
});

it("follows the event log with the key, which an EventSource cannot send", async () => {
  localStorage.setItem("exo.key", "exo-secret");
  const { followEvents } = await import("./events");
  serve((_path, init) =>
    bearer(init) === "Bearer exo-secret"
      ? new Response(': keep-alive\n\nid: s.1\ndata: {"sequence":1}\n\n')
      : refusal(),
  );
  const heard: string[] = [];
  await new Promise<void>((resolve) => {
    followEvents("s.0", {
      onOpen: () => heard.push("open"),
      onEvent: (data) => heard.push(data),
      onLost: resolve,
    });
  });
  expect(heard).toEqual(["open", '{"sequence":1}']);
});
