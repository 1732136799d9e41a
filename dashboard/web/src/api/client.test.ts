// @vitest-environment happy-dom
import { afterEach, expect, it, vi } from "vitest";

import { json, serve } from "../testing/server";
import { ApiError, getState, placeModel, removeInstance, serverNow, toFailure, Unreachable } from "./client";

afterEach(() => vi.unstubAllGlobals());

it("gives the server's own words and code for a refusal", async () => {
  serve(() => json({ error: { message: "Needs 41 GB", code: "insufficient_memory" } }, 400));
  const refusal = await placeModel("big").catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(ApiError);
  expect(toFailure(refusal)).toEqual({ code: "insufficient_memory", message: "Needs 41 GB" });
});

it.each(["<html>bad gateway</html>", "null", '{"detail":"x"}', ""])(
  "falls back to the status line for %j",
  async (body) => {
    serve(() => new Response(body, { status: 502, statusText: "Bad Gateway" }));
    const refusal = await getState().catch((error: unknown) => error);
    expect(toFailure(refusal)).toEqual({ code: "http_502", message: "The server answered 502 Bad Gateway" });
  },
);

it("tells silence from a refusal", async () => {
  serve(() => Promise.reject(new TypeError("Failed to fetch")));
  await expect(getState()).rejects.toBeInstanceOf(Unreachable);
});

it("escapes ids in paths", async () => {
  const asked = serve(() => json({}));
  await removeInstance("a/b?c");
  expect(asked).toEqual(["DELETE instance/a%2Fb%3Fc"]);
});

it("follows the server's clock when it differs by more than rounding", async () => {
  const inAnHour = new Date(Date.now() + 3_600_000).toUTCString();
  serve(() => new Response("{}", { headers: { date: inAnHour } }));
  await getState();
  expect(serverNow() - Date.now()).toBeGreaterThan(3_590_000);
  serve(() => new Response("{}", { headers: { date: new Date().toUTCString() } }));
  await getState();
  expect(Math.abs(serverNow() - Date.now())).toBeLessThan(50);
});
