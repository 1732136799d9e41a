/** What has arrived of a streamed answer, and how each frame adds to it. Pure: no clock, no network. */
import type { Failure } from "../api/client";
import type { ChatFrame } from "../api/types";

export interface Answer {
  content: string;
  reasoning: string;
  finishReason: string | null;
  completionTokens: number | null;
  error: Failure | null;
}

export function emptyAnswer(): Answer {
  return {
    content: "",
    reasoning: "",
    finishReason: null,
    completionTokens: null,
    error: null,
  };
}

/** True once the model has said anything, which is what time to first token measures. */
export function hasOutput(answer: Answer): boolean {
  return answer.content !== "" || answer.reasoning !== "";
}

/** Folds one frame in. An error keeps what came before it: half an answer is still worth reading. */
export function foldFrame(answer: Answer, frame: ChatFrame): Answer {
  if (frame.error) {
    const error = { code: String(frame.error.code ?? "error"), message: frame.error.message };
    return { ...answer, error };
  }
  const choice = frame.choices?.[0];
  const delta = choice?.delta;
  return {
    ...answer,
    content: answer.content + (delta?.content ?? ""),
    reasoning: answer.reasoning + (delta?.reasoning_content ?? ""),
    finishReason: choice?.finish_reason ?? answer.finishReason,
    completionTokens: frame.usage?.completion_tokens ?? answer.completionTokens,
  };
}

export interface Prefill {
  processed: number;
  total: number;
}

const PREFILL = "prefill_progress ";

/** Reads how far the prompt has been processed out of a comment of the stream; null for other comments. */
export function readPrefill(comment: string): Prefill | null {
  if (!comment.startsWith(PREFILL)) return null;
  try {
    const { PrefillProgressChunk: chunk } = JSON.parse(comment.slice(PREFILL.length)) as {
      PrefillProgressChunk: { processed_tokens: number; total_tokens: number };
    };
    return { processed: chunk.processed_tokens, total: chunk.total_tokens };
  } catch {
    // Comments are a courtesy of the server: one of another shape is as good as none.
    return null;
  }
}

export interface Timing {
  sentAt: number;
  firstAt: number | null;
  lastAt: number | null;
}

/** Tokens after the first one over the time they took; null while that says nothing. */
export function decodeRate(answer: Answer, timing: Timing): number | null {
  if (answer.completionTokens === null || timing.firstAt === null || timing.lastAt === null) return null;
  const seconds = (timing.lastAt - timing.firstAt) / 1000;
  return answer.completionTokens > 1 && seconds > 0 ? (answer.completionTokens - 1) / seconds : null;
}
