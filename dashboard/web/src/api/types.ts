/** The parts of exo's JSON that the page reads, named as `exo.streams` names them. Times are Unix ms. */

export interface NodeRecord {
  id: string;
  facts: {
    name: string;
    version: string;
    operating_system: string;
    chip: string;
    cores: number;
    memory_total: number;
    worker: boolean;
  };
  online: boolean;
  since: number;
  cause: string;
}

export interface Shard {
  runner: string;
  node: string;
  rank: number;
  world_size: number;
  start_layer: number;
  end_layer: number;
  n_layers: number;
  memory_bytes: number;
}

export interface Instance {
  id: string;
  model: { model_id: string; name: string };
  sharding: string;
  transport: string;
  shards: Shard[];
  context_length: number;
  placed_at: number;
}

export type RunnerStatus =
  | { type: "starting" | "connecting" | "warming_up" | "ready" | "stopping" }
  | { type: "loading"; layers_loaded: number; total_layers: number }
  | { type: "failed"; code: string; message: string; evidence: string[]; attempt: number; retry_at: number };

export interface RunnerRecord {
  id: string;
  instance: string;
  node: string;
  rank: number;
  status: RunnerStatus;
  since: number;
}

export interface TaskRecord {
  id: string;
  model: string;
  instance: string;
}

export interface RemovedInstance {
  id: string;
  model_id: string;
  code: string;
  reason: string;
  evidence: string[];
  removed_at: number;
}

export interface ClusterState {
  session: string;
  epoch: number;
  applied: number;
  nodes: Record<string, NodeRecord>;
  instances: Record<string, Instance>;
  runners: Record<string, RunnerRecord>;
  tasks: Record<string, TaskRecord>;
  removed_instances: RemovedInstance[];
}

export type Gauge =
  | { type: "memory"; total: number; available: number }
  | { type: "processor"; utilization: number; cores: number }
  | { type: "disk"; total: number; available: number }
  | { type: "throughput"; generated_tokens_per_second: number; active_tasks: number };

/** One reading. Seconds: `age` since it reached the node that was asked, `interval` between readings. */
export interface Sample {
  age: number;
  interval: number;
  gauge: Gauge;
}

/** Last samples by node and kind of gauge. */
export type Telemetry = Record<string, Record<string, Sample>>;

export interface ModelEntry {
  id: string;
}

export interface ChatMessage {
  role: "user" | "assistant";
  content: string;
}

export interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  stream_options: { include_usage: boolean };
}

/** One frame of a streamed answer: a chunk, or the one error that ends it. */
export interface ChatFrame {
  choices?: {
    delta: {
      content?: string | null;
      reasoning_content?: string | null;
    };
    finish_reason?: string | null;
  }[];
  usage?: { prompt_tokens: number; completion_tokens: number } | null;
  error?: { message: string; code: string | number | null };
}
