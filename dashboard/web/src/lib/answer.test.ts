import { expect, it } from "vitest";

import type { ChatFrame } from "../api/types";
import { type Answer, decodeRate, emptyAnswer, foldFrame, hasOutput, readPrefill } from "./answer";

function fold(...frames: ChatFrame[]): Answer {
  return frames.reduce(foldFrame, emptyAnswer());
}

it("joins reasoning and text, and reads the end and the usage", () => {
  const answer = fold(
    { choices: [{ delta: { content: "" } }] },
    { choices: [{ delta: { reasoning_content: "hm" } }] },
    { choices: [{ delta: { content: "Hel" } }] },
    { choices: [{ delta: { content: "lo" } }] },
    { choices: [{ delta: {}, finish_reason: "stop" }], usage: null },
    { choices: [], usage: { completion_tokens: 7 } },
  );
  expect(answer).toEqual({
    content: "Hello",
    reasoning: "hm",
    finishReason: "stop",
    completionTokens: 7,
    error: null,
  });
});

it("keeps what came before an error", () => {
  const answer = fold(
    { choices: [{ delta: { content: "half" } }] },
    { error: { message: "The runner died", code: "runner_failed" } },
  );
  expect(answer.content).toBe("half");
  expect(answer.error).toEqual({ code: "runner_failed", message: "The runner died" });
});

it("does not take the opening frame for a first token", () => {
  expect(hasOutput(fold({ choices: [{ delta: { content: "" } }] }))).toBe(false);
  expect(hasOutput(fold({ choices: [{ delta: { reasoning_content: "x" } }] }))).toBe(true);
});

it("measures the rate over the tokens after the first", () => {
  const timing = { sentAt: 0, firstAt: 1000, lastAt: 3000 };
  const answer = { ...emptyAnswer(), completionTokens: 21 };
  expect(decodeRate(answer, timing)).toBe(10);
  expect(decodeRate({ ...answer, completionTokens: 1 }, timing)).toBeNull();
  expect(decodeRate(emptyAnswer(), timing)).toBeNull();
  expect(decodeRate(answer, { ...timing, lastAt: 1000 })).toBeNull();
});

it("reads the progress of the prompt out of comments, and nothing out of others", () => {
  const chunk = { PrefillProgressChunk: { model: "m", processed_tokens: 512, total_tokens: 2048 } };
  expect(readPrefill(`prefill_progress ${JSON.stringify(chunk)}`)).toEqual({ processed: 512, total: 2048 });
  expect(readPrefill("keep-alive")).toBeNull();
  expect(readPrefill("prefill_progress {}")).toBeNull();
  expect(readPrefill("prefill_progress soon")).toBeNull();
});
