/** The event log as one stream. It reports and ends; whoever opened it decides when to try again. */
import { openEvents } from "./client";
import { apiKey } from "./key.svelte";
import { readFrames } from "../lib/sse";

interface Listener {
  onOpen: () => void;
  onEvent: (data: string) => void;
  onLost: () => void;
}

/** Follows the log behind `after` (`session.sequence`). Gives the function that stops it. */
export function followEvents(after: string, listener: Listener): () => void {
  return apiKey.current ? followWithKey(after, listener) : followOpenly(after, listener);
}

/** An EventSource cannot send the header that carries a key. */
function followWithKey(after: string, listener: Listener): () => void {
  const stopping = new AbortController();
  const follow = async (): Promise<void> => {
    try {
      const body = await openEvents(after, stopping.signal);
      listener.onOpen();
      for await (const event of readFrames(body, () => undefined)) listener.onEvent(JSON.stringify(event));
    } catch {
      // However it ended, whoever follows is told the same.
    }
    if (!stopping.signal.aborted) listener.onLost();
  };
  void follow();
  return () => stopping.abort();
}

function followOpenly(after: string, listener: Listener): () => void {
  const source = new EventSource(new URL(`events?after=${after}`, document.baseURI));
  source.onopen = listener.onOpen;
  source.onmessage = (message: MessageEvent<string>) => listener.onEvent(message.data);
  source.onerror = () => {
    // The browser's own retry would neither fetch State again nor survive an HTTP error.
    source.close();
    listener.onLost();
  };
  return () => source.close();
}
