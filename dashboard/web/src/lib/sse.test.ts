import { expect, it } from "vitest";

import { readFrames } from "./sse";

/** A body that arrives in exactly these pieces. */
function bodyOf(pieces: Uint8Array<ArrayBuffer>[]): ReadableStream<Uint8Array<ArrayBuffer>> {
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(piece);
      controller.close();
    },
  });
}

interface Collected {
  frames: unknown[];
  comments: string[];
  ended: boolean;
}

async function collect(text: string, size: number): Promise<Collected> {
  const bytes = new TextEncoder().encode(text);
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for (let start = 0; start < bytes.length; start += size) pieces.push(bytes.slice(start, start + size));
  const comments: string[] = [];
  const reader = readFrames(bodyOf(pieces), (comment) => comments.push(comment));
  const frames: unknown[] = [];
  for (;;) {
    const { done, value } = await reader.next();
    if (done) return { frames, comments, ended: value };
    frames.push(value);
  }
}

const STREAM = ': keep-alive\r\n\r\nid: 0.0\r\ndata: {"a":"ö€🦕"}\r\n\r\nid: 0.1\r\ndata: {"a":2}\r\n\r\n';

it.each([1, 2, 3, 7, 1000])("reads the same frames in pieces of %d bytes", async (size) => {
  const { frames, comments, ended } = await collect(`${STREAM}data: [DONE]\r\n\r\n`, size);
  expect(comments).toEqual(["keep-alive"]);
  expect(frames).toEqual([{ a: "ö€🦕" }, { a: 2 }]);
  expect(ended).toBe(true);
});

it("tells a stream that was cut from one that ended", async () => {
  const { frames, ended } = await collect(STREAM, 1000);
  expect(frames).toHaveLength(2);
  expect(ended).toBe(false);
});

it("closes the body when the reader of the frames stops early", async () => {
  let cancelled = false;
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start: (controller) => controller.enqueue(new TextEncoder().encode(STREAM)),
    cancel: () => {
      cancelled = true;
    },
  });
  for await (const frame of readFrames(body, () => undefined)) {
    expect(frame).toEqual({ a: "ö€🦕" });
    break;
  }
  expect(cancelled).toBe(true);
});
