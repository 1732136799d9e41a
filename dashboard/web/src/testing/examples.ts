/** Small but whole pieces of State for tests. */
import type { ClusterState, Instance, ModelCard, RunnerRecord, RunnerStatus, TaskRecord } from "../api/types";

interface Example {
  instance: Instance;
  runners: RunnerRecord[];
}

/** An instance with one rank per status; rank N runs on `node-N`. */
export function anInstance(id: string, statuses: RunnerStatus[]): Example {
  const shards = statuses.map((_, rank) => ({
    runner: `${id}-runner-${rank}`,
    node: `node-${rank}`,
    rank,
    world_size: statuses.length,
    start_layer: rank * 10,
    end_layer: rank * 10 + 10,
    n_layers: statuses.length * 10,
    memory_bytes: 1_000_000,
  }));
  const runners = statuses.map((status, rank) => ({
    id: `${id}-runner-${rank}`,
    instance: id,
    node: `node-${rank}`,
    rank,
    status,
    since: 0,
  }));
  const instance: Instance = {
    id,
    model: aCard(`model-of-${id}`),
    sharding: "Pipeline",
    transport: "MlxRing",
    shards,
    context_length: 4096,
    placed_at: 0,
  };
  return { instance, runners };
}

function aCard(id: string): ModelCard {
  return {
    model_id: id,
    name: "",
    family: "",
    base_model: "",
    architecture: "",
    quantization: "",
    tasks: ["TextGeneration"],
    capabilities: ["text"],
    n_layers: 10,
    hidden_size: 0,
    attention_heads: 0,
    key_value_heads: 0,
    head_dim: 0,
    vocabulary_size: 0,
    context_length: 4096,
    parameters: 0,
    storage_bytes: 0,
    supports_tensor: false,
    reasoning_dialect: "none",
    backends: ["MlxCpu"],
    trust_remote_code: false,
    is_custom: false,
    sampling: {
      temperature: null,
      top_p: null,
      top_k: null,
      min_p: null,
      repetition_penalty: null,
      presence_penalty: null,
      frequency_penalty: null,
    },
    source: "builtin",
  };
}

export function aTask(id: string, instance: string): TaskRecord {
  return {
    id,
    command: `command-of-${id}`,
    model: `model-of-${instance}`,
    instance,
    node: "node-0",
    boot: "boot",
    gateway: "node-0",
    gateway_boot: "boot",
    attempt: 1,
    key: "",
    priority: 0,
    on_disconnect: "cancel",
    assigned_at: 0,
    time_limit: 0,
    resumed: false,
  };
}

function aNode(id: string, online: boolean): ClusterState["nodes"][string] {
  const facts = {
    name: `name of ${id}`,
    version: "0.1.0",
    operating_system: "Linux",
    os_version: "",
    os_build: "",
    machine: "",
    chip: "",
    cores: 8,
    memory_total: 16_000_000_000,
    worker: true,
    backends: ["MlxCpu"],
    addresses: [],
    api_port: 0,
  };
  const cause = online ? "" : "timed_out";
  return { id, boot: "boot", models: [], facts, online, since: 0, cause, draining: false, strays: [] };
}

/** A cluster of two nodes with these instances. */
export function aState({
  instances,
  online = true,
}: {
  instances: Example[];
  online?: boolean;
}): ClusterState {
  const byId = <Item extends { id: string }>(items: Item[]): Record<string, Item> =>
    Object.fromEntries(items.map((item) => [item.id, item]));
  return {
    session: "session",
    applied: 7,
    nodes: byId([aNode("node-0", true), aNode("node-1", online)]),
    instances: byId(instances.map((example) => example.instance)),
    runners: byId(instances.flatMap((example) => example.runners)),
    tasks: {},
    removed_instances: [],
  };
}
