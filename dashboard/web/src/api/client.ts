/**
 * The only place that speaks HTTP to exo. Every failure is either an `ApiError`, which the server sent
 * with its stable code, or an `Unreachable`, when no server answered at all.
 */
import type { ChatRequest, ClusterState, ModelList, Placing, Standing, Telemetry, Topology } from "./types";
import type { StatePart } from "../lib/parts";
import { apiKey } from "./key.svelte";

/** The server's refusal, in its own words. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** What the page shows of anything that went wrong: words, and a code that does not change. */
export interface Failure {
  code: string;
  message: string;
}

export function toFailure(error: unknown): Failure {
  if (error instanceof ApiError) return { code: error.code, message: error.message };
  return { code: "unreachable", message: error instanceof Error ? error.message : String(error) };
}

/** Nothing answered: the node is down, restarting, or the network is gone. */
export class Unreachable extends Error {}

/** How far the server's clock is ahead of this browser's, in ms; from the last answer's Date header. */
let clockOffset = 0;

/** Unix time in ms by the server's clock, so that the ages it shows are true on any machine. */
export function serverNow(): number {
  return Date.now() + clockOffset;
}

function noteClock(response: Response): void {
  const served = Date.parse(response.headers.get("date") ?? "");
  if (Number.isNaN(served)) return;
  const offset = served - Date.now();
  // The header counts whole seconds: a smaller difference is rounding, not skew.
  clockOffset = Math.abs(offset) > 1500 ? offset : 0;
}

/** Reads `{error: {message, code}}` of a refusal; anything else becomes its status line. */
async function readRefusal(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    const error = (JSON.parse(text) as { error?: { message?: unknown; code?: unknown } }).error;
    if (typeof error?.message === "string") {
      return new ApiError(error.message, String(error.code ?? response.status), response.status);
    }
  } catch {
    // Not JSON: a proxy's page, for example. The status says more than its markup.
  }
  return new ApiError(fallback, `http_${response.status}`, response.status);
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  const used = apiKey.current;
  const headers = { ...(init.headers as Record<string, string> | undefined), ...apiKey.headers };
  try {
    response = await fetch(new URL(path, document.baseURI), { cache: "no-store", ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Unreachable("The exo node does not answer", { cause: error });
  }
  noteClock(response);
  if (!response.ok) {
    const refusal = await readRefusal(response);
    // What the key is not enough to do is no news about the page; what it is not enough to see is.
    const unseen = refusal.code === "insufficient_scope" && init.method === undefined;
    if (refusal.status === 401 || unseen) apiKey.noteRefused(used, refusal.message);
    throw refusal;
  }
  apiKey.noteAdmitted(used);
  return response;
}

async function getJson<Body>(path: string): Promise<Body> {
  const response = await request(path, { headers: { accept: "application/json" } });
  return (await response.json()) as Body;
}

function postJson(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return request(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
}

export function getState(): Promise<ClusterState> {
  return getJson("state");
}

/** One key of State, as State holds it. */
export function getPart<Key extends StatePart>(key: Key): Promise<ClusterState[Key]> {
  return getJson(`state/${key}`);
}

export function getTelemetry(): Promise<Telemetry> {
  return getJson("state/telemetry");
}

/** Nodes, what connects them, and what is wrong with either. */
export function getTopology(): Promise<Topology> {
  return getJson("state/topology");
}

/** The cluster as the asked node sees it, and what was dropped when clusters became one. */
export function getStanding(): Promise<Standing> {
  return getJson("v1/cluster");
}

/** The event log behind `after` as a stream of server-sent events. */
export async function openEvents(
  after: string,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  const response = await request(`events?after=${after}`, {
    headers: { accept: "text/event-stream" },
    signal,
  });
  if (!response.body) throw new Unreachable("The event log has no body");
  return response.body;
}

/** Ids of all models that the API knows, running or not, sorted. */
export async function listModels(): Promise<string[]> {
  const { data } = await getJson<ModelList>("v1/models");
  return data.map((model) => model.id).sort();
}

/** Asks for a model to be placed; a rejection arrives as an `ApiError` with the reason. */
export async function placeModel(modelId: string): Promise<void> {
  const placing: Placing = { model_id: modelId };
  await postJson("place_instance", placing);
}

export async function removeInstance(id: string): Promise<void> {
  await request(`instance/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Starts a streamed answer. The body is a stream of server-sent events. */
export async function openChat(
  chat: ChatRequest,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> {
  const response = await postJson("v1/chat/completions", { ...chat, stream: true }, signal);
  if (!response.body) throw new Unreachable("The answer has no body");
  return response.body;
}
