// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { json, serve, StreamedAnswer } from "../testing/server";
import { chat } from "./chat.svelte";

const text = (content: string) => ({ choices: [{ delta: { content } }] });

beforeEach(() => chat.clear());
afterEach(() => vi.unstubAllGlobals());

it("streams an answer and sends the whole conversation the next time", async () => {
  const bodies: unknown[] = [];
  serve((_path, init) => {
    bodies.push(JSON.parse(String(init.body)));
    const answer = new StreamedAnswer();
    answer.send(text("Hello"));
    answer.send("[DONE]");
    return answer.response;
  });
  await chat.send("m", "one");
  await chat.send("m", "two");
  expect(chat.exchanges.map((exchange) => exchange.phase)).toEqual(["finished", "finished"]);
  expect(bodies[1]).toEqual({
    model: "m",
    stream: true,
    stream_options: { include_usage: true },
    messages: [
      { role: "user", content: "one" },
      { role: "assistant", content: "Hello" },
      { role: "user", content: "two" },
    ],
  });
});

it("shows each piece as it arrives", async () => {
  const answer = new StreamedAnswer();
  serve(() => answer.response);
  const sent = chat.send("m", "hi");
  expect(chat.exchanges[0]?.phase).toBe("waiting");
  answer.send(text("Hel"));
  await vi.waitFor(() => expect(chat.exchanges[0]?.answer.content).toBe("Hel"));
  expect(chat.busy).toBe(true);
  answer.send(text("lo"));
  answer.send("[DONE]");
  await sent;
  expect(chat.exchanges[0]?.answer.content).toBe("Hello");
  expect(chat.busy).toBe(false);
});

it("shows how far the prompt has been read", async () => {
  const answer = new StreamedAnswer();
  serve(() => answer.response);
  const sent = chat.send("m", "hi");
  const chunk = { PrefillProgressChunk: { processed_tokens: 1, total_tokens: 4 } };
  answer.write(`: prefill_progress ${JSON.stringify(chunk)}\n\n`);
  await vi.waitFor(() => expect(chat.exchanges[0]?.prefill).toEqual({ processed: 1, total: 4 }));
  expect(chat.exchanges[0]?.phase).toBe("waiting");
  answer.send("[DONE]");
  await sent;
});

it("puts a refusal in place, leaves it out of the history and asks again", async () => {
  let refuse = true;
  const bodies: string[] = [];
  serve((_path, init) => {
    bodies.push(String(init.body));
    if (refuse) return json({ error: { message: "Too many", code: "overloaded" } }, 429);
    const answer = new StreamedAnswer();
    answer.send(text("fine"));
    answer.send("[DONE]");
    return answer.response;
  });
  await chat.send("m", "hi");
  expect(chat.exchanges[0]?.phase).toBe("failed");
  expect(chat.exchanges[0]?.answer.error).toEqual({ code: "overloaded", message: "Too many" });
  refuse = false;
  await chat.retry("m");
  expect(chat.exchanges).toHaveLength(1);
  expect(chat.exchanges[0]?.answer.content).toBe("fine");
  expect(JSON.parse(bodies[1] ?? "").messages).toEqual([{ role: "user", content: "hi" }]);
});

it("keeps the text before an error frame", async () => {
  const answer = new StreamedAnswer();
  serve(() => answer.response);
  answer.send(text("half"));
  answer.send({ error: { message: "The runner died", code: "runner_failed" } });
  answer.close();
  await chat.send("m", "hi");
  expect(chat.exchanges[0]?.answer.content).toBe("half");
  expect(chat.exchanges[0]?.answer.error?.code).toBe("runner_failed");
});

it("does not show a cut answer as a whole one", async () => {
  const answer = new StreamedAnswer();
  serve(() => answer.response);
  answer.send(text("half"));
  answer.close();
  await chat.send("m", "hi");
  expect(chat.exchanges[0]?.phase).toBe("failed");
  expect(chat.exchanges[0]?.answer.error?.code).toBe("stream_cut");
});

it("stops by hanging up and keeps what arrived", async () => {
  const answer = new StreamedAnswer();
  serve((_path, init) => {
    answer.failOn(init.signal);
    return answer.response;
  });
  const sent = chat.send("m", "hi");
  answer.send(text("some"));
  await vi.waitFor(() => expect(chat.exchanges[0]?.phase).toBe("streaming"));
  chat.stop();
  await sent;
  expect(chat.exchanges[0]?.phase).toBe("stopped");
  expect(chat.exchanges[0]?.answer.content).toBe("some");
});

it("says when no server answers", async () => {
  serve(() => Promise.reject(new TypeError("Failed to fetch")));
  await chat.send("m", "hi");
  expect(chat.exchanges[0]?.answer.error?.code).toBe("unreachable");
});
