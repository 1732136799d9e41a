/** Server-sent events out of a fetch body. EventSource cannot POST, so a chat reads its stream here. */
import { createParser } from "eventsource-parser";

const END = "[DONE]";

/**
 * Gives the data of each event, decoded from JSON, until `[DONE]`. Gives true if that end was seen and
 * false if the stream just stopped: the caller must not show a cut answer as a whole one. `onComment`
 * gets what OpenAI's clients skip.
 */
export async function* readFrames(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  onComment: (text: string) => void,
): AsyncGenerator<unknown, boolean> {
  const waiting: string[] = [];
  const parser = createParser({ onEvent: (event) => waiting.push(event.data), onComment });
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return false;
      parser.feed(value);
      for (const data of waiting.splice(0)) {
        if (data === END) return true;
        yield JSON.parse(data);
      }
    }
  } finally {
    // Also when the reader of these frames stops early: closing the body cancels the request.
    await reader.cancel().catch(() => undefined);
  }
}
