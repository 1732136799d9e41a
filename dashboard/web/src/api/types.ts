/**
 * The names under which the page knows the API's types. They are generated from the OpenAPI document
 * (`npm run types`); only what that document leaves open is written here by hand: gauges, a node's
 * report of its cluster, and the frames of a streamed answer.
 */
import type { components } from "./types.gen";

type Schemas = components["schemas"];

export type ClusterState = Pick<
  Schemas["State"],
  "session" | "applied" | "nodes" | "instances" | "runners" | "tasks" | "removed_instances"
>;
export type Instance = Schemas["Instance"];
export type NodeRecord = Schemas["NodeRecord"];
export type RemovedInstance = Schemas["RemovedInstance"];
export type RunnerRecord = Schemas["RunnerRecord"];
export type TaskRecord = Schemas["TaskRecord"];
export type ModelCard = Schemas["ModelCard"];
export type RunnerStatus = RunnerRecord["status"];
export type ModelList = Schemas["ModelList"];
export type Topology = Schemas["Topology"];
export type TopologyLink = Schemas["TopologyLink"];
export type Finding = Omit<Topology["findings"][number], "node">;
export type Merge = Schemas["Merge"];
export type Placing = Pick<Schemas["PlaceBody"], "model_id">;

export type ChatMessage = Pick<Schemas["MessageIn"], "role"> & { content: string };

export type ChatRequest = Pick<Schemas["ChatRequest"], "model"> & {
  messages: ChatMessage[];
  stream_options: Pick<Schemas["StreamOptions"], "include_usage">;
};

/** The gauges that the page shows, as `exo.streams.telemetry` defines them; nodes send others too. */
export type Gauge =
  | { type: "memory"; total: number; available: number }
  | { type: "throughput"; generated_tokens_per_second: number };

/** One reading. Seconds: `age` since it reached the node that was asked, `interval` between readings. */
export interface Sample {
  age: number;
  interval: number;
  gauge: Gauge;
}

/** Last samples by node and kind of gauge. */
export type Telemetry = Record<string, Record<string, Sample>>;

/** What the page shows of how a node stands with the others, as `exo.broker.cluster_report` defines it. */
export interface ClusterReport {
  cluster: string;
  closed: boolean;
  hub: string;
  why: string;
  findings: Finding[];
}

/** The asked node's own report, and the merges that all nodes know of. */
export type Standing = Omit<Schemas["ClusterView"], "report"> & { report: ClusterReport };

/** One frame of a streamed answer: a chunk, or the one error that ends it. */
export interface ChatFrame {
  choices?: {
    delta: { content?: string | null; reasoning_content?: string | null };
    finish_reason?: string | null;
  }[];
  usage?: { completion_tokens: number } | null;
  error?: Pick<Schemas["ErrorDetail"], "message" | "code">;
}
