/** One conversation, kept in this tab only. An exchange is a prompt and what came of it. */
import { type Failure, openChat, toFailure } from "../api/client";
import type { ChatFrame, ChatMessage } from "../api/types";
import {
  type Answer,
  emptyAnswer,
  foldFrame,
  hasOutput,
  type Prefill,
  readPrefill,
  type Timing,
} from "../lib/answer";
import { readFrames } from "../lib/sse";

export type Phase = "waiting" | "streaming" | "finished" | "stopped" | "failed";

export interface Exchange {
  id: number;
  model: string;
  prompt: string;
  answer: Answer;
  phase: Phase;
  prefill: Prefill | null;
  timing: Timing;
}

const CUT: Failure = {
  code: "stream_cut",
  message: "The connection ended before the answer did. What arrived is shown.",
};

class Chat {
  exchanges = $state<Exchange[]>([]);

  private running: AbortController | null = null;
  private nextId = 1;

  get busy(): boolean {
    const phase = this.exchanges.at(-1)?.phase;
    return phase === "waiting" || phase === "streaming";
  }

  /** Asks; returns when the answer has ended in whichever way. Errors land in the exchange. */
  async send(model: string, prompt: string): Promise<void> {
    const messages = [...this.history(), { role: "user" as const, content: prompt }];
    const exchange = this.begin(model, prompt);
    const abort = new AbortController();
    this.running = abort;
    try {
      await this.receive(exchange, messages, abort.signal);
    } catch (error) {
      if (abort.signal.aborted) exchange.phase = "stopped";
      else this.fail(exchange, toFailure(error));
    }
    if (this.running === abort) this.running = null;
  }

  /** Asks the last prompt again, in place of its failed or stopped answer. */
  async retry(model: string): Promise<void> {
    const last = this.exchanges.at(-1);
    if (!last || this.busy) return;
    this.exchanges.pop();
    await this.send(model, last.prompt);
  }

  /** Hangs up, which makes the server cancel the request. */
  stop(): void {
    this.running?.abort();
  }

  clear(): void {
    this.stop();
    this.exchanges = [];
  }

  private begin(model: string, prompt: string): Exchange {
    const timing: Timing = { sentAt: performance.now(), firstAt: null, lastAt: null };
    const phase: Phase = "waiting";
    this.exchanges.push({
      id: this.nextId++,
      model,
      prompt,
      answer: emptyAnswer(),
      phase,
      prefill: null,
      timing,
    });
    // Read back: only the array's own copy is reactive.
    return this.exchanges.at(-1) as Exchange;
  }

  private async receive(exchange: Exchange, messages: ChatMessage[], signal: AbortSignal): Promise<void> {
    const body = await openChat(
      { model: exchange.model, messages, stream_options: { include_usage: true } },
      signal,
    );
    const frames = readFrames(body, (comment) => {
      exchange.prefill = readPrefill(comment) ?? exchange.prefill;
    });
    for (;;) {
      const { done, value } = await frames.next();
      if (done) {
        if (exchange.answer.error) return this.fail(exchange, exchange.answer.error);
        if (!value) return this.fail(exchange, CUT);
        exchange.phase = "finished";
        return;
      }
      this.fold(exchange, value as ChatFrame);
    }
  }

  private fold(exchange: Exchange, frame: ChatFrame): void {
    exchange.answer = foldFrame(exchange.answer, frame);
    if (!frame.choices?.length || !hasOutput(exchange.answer)) return;
    const now = performance.now();
    exchange.phase = "streaming";
    exchange.timing.firstAt ??= now;
    exchange.timing.lastAt = now;
  }

  private fail(exchange: Exchange, error: Failure): void {
    exchange.answer = { ...exchange.answer, error };
    exchange.phase = "failed";
  }

  /** What the model is told of the past: only exchanges that have an answer, each with its prompt. */
  private history(): ChatMessage[] {
    return this.exchanges
      .filter((exchange) => exchange.answer.content !== "")
      .flatMap((exchange) => [
        { role: "user", content: exchange.prompt },
        { role: "assistant", content: exchange.answer.content },
      ]);
  }
}

export const chat = new Chat();
