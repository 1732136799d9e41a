/** Stands in for the browser's fetch and EventSource where a test must control each answer. */
import { vi } from "vitest";

type Handler = (path: string, init: RequestInit) => Response | Promise<Response>;

/** Replaces fetch; gives the list of what was asked, as "METHOD path". */
export function serve(handler: Handler): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: URL, init: RequestInit = {}) => {
    const path = url.pathname.slice(1);
    asked.push(`${init.method ?? "GET"} ${path}`);
    if (init.signal?.aborted) throw new DOMException("aborted", "AbortError");
    return handler(path, init);
  });
  return asked;
}

export function json(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
}

/** A streamed answer whose frames the test sends one by one. */
export class StreamedAnswer {
  private controller!: ReadableStreamDefaultController<Uint8Array>;
  readonly response = new Response(
    new ReadableStream<Uint8Array>({ start: (controller) => void (this.controller = controller) }),
  );

  send(data: unknown): void {
    const text = typeof data === "string" ? data : JSON.stringify(data);
    this.write(`data: ${text}\n\n`);
  }

  write(text: string): void {
    this.controller.enqueue(new TextEncoder().encode(text));
  }

  close(): void {
    this.controller.close();
  }

  /** What fetch does to a body when its request is aborted. */
  failOn(signal: AbortSignal | null | undefined): void {
    signal?.addEventListener("abort", () => this.controller.error(new DOMException("aborted", "AbortError")));
  }
}

/** The EventSources that the code under test opened, newest last. */
export class FakeEventSource {
  static opened: FakeEventSource[] = [];

  onopen: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  onerror: (() => void) | null = null;
  closed = false;

  constructor(readonly url: URL) {
    FakeEventSource.opened.push(this);
  }

  close(): void {
    this.closed = true;
  }
}
