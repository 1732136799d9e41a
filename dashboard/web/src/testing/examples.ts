/** Small but whole pieces of State for tests. */
import type { ClusterState, Instance, RunnerRecord, RunnerStatus } from "../api/types";

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
  const model = { model_id: `model-of-${id}`, name: "" };
  const rest = { sharding: "Pipeline", transport: "MlxRing", context_length: 4096, placed_at: 0 };
  return { instance: { id, model, shards, ...rest }, runners };
}

function aNode(id: string, online: boolean): ClusterState["nodes"][string] {
  const facts = {
    name: `name of ${id}`,
    version: "0.1.0",
    operating_system: "Linux",
    chip: "",
    cores: 8,
    memory_total: 16_000_000_000,
    worker: true,
  };
  return { id, facts, online, since: 0, cause: online ? "" : "timed_out" };
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
    epoch: 1,
    applied: 7,
    nodes: byId([aNode("node-0", true), aNode("node-1", online)]),
    instances: byId(instances.map((example) => example.instance)),
    runners: byId(instances.flatMap((example) => example.runners)),
    tasks: {},
    removed_instances: [],
  };
}
