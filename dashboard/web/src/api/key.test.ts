// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { json, serve } from "../testing/server";

const refusal = (): Response =>
  json({ error: { message: "An API key is required.", code: "unauthorized" } }, 401);
const bearer = (init: RequestInit): string | null => new Headers(init.headers).get("authorization");
const admitOnly = (key: string): string[] =>
  serve((_path, init) => (bearer(init) === `Bearer ${key}` ? json({}) : refusal()));

beforeEach(() => {
  localStorage.clear();
  vi.resetModules();
});
afterEach(() => vi.unstubAllGlobals());

it("wants a key after a refusal, keeps the one it is given, and sends it from then on", async () => {
  const { getState } = await import("./client");
  const { apiKey } = await import("./key.svelte");
  admitOnly("exo-secret");
  await expect(getState()).rejects.toMatchObject({ code: "unauthorized" });
  expect(apiKey.refusal).toBe("This node asks for an API key.");
  expect(apiKey.give(" exo-secret ")).toBe(true);
  await getState();
  expect(apiKey.refusal).toBe("");
  expect(localStorage.getItem("exo.key")).toBe("exo-secret");
});

it("says of a key that the node refuses, or that no header can carry, that it is wrong", async () => {
  const { getState } = await import("./client");
  const { apiKey } = await import("./key.svelte");
  admitOnly("exo-secret");
  apiKey.give("exo-other");
  await expect(getState()).rejects.toMatchObject({ code: "unauthorized" });
  expect(apiKey.refusal).toBe("An API key is required.");
  apiKey.give("exo-third");
  expect(apiKey.give("exo-schlüssel")).toBe(false);
  expect(apiKey.refusal).toContain("no API key");
  expect(apiKey.current).toBe("exo-third");
});

it("does not take what was said to an earlier key for an answer to this one", async () => {
  const { apiKey } = await import("./key.svelte");
  apiKey.give("exo-secret");
  apiKey.noteRefused("", "An API key is required.");
  expect(apiKey.refusal).toBe("");
});

it("wants another key for what this one may not see, not for what it may not do", async () => {
  const { getState, placeModel } = await import("./client");
  const { apiKey } = await import("./key.svelte");
  apiKey.give("exo-secret");
  serve(() => json({ error: { message: "This needs admin.", code: "insufficient_scope" } }, 403));
  await expect(placeModel("a/b")).rejects.toMatchObject({ status: 403 });
  expect(apiKey.refusal).toBe("");
  await expect(getState()).rejects.toMatchObject({ status: 403 });
  expect(apiKey.refusal).toBe("This needs admin.");
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
