/** Pure questions about State: what the page shows is decided here and drawn elsewhere. */
import type { ClusterState, Gauge, Instance, RunnerRecord, RunnerStatus, Telemetry } from "../api/types";

/** How often the page fetches gauges, and all gauges as they were fetched last. */
export const TELEMETRY_MS = 10_000;

export interface Gauges {
  samples: Telemetry;
  fetchedAt: number;
}

export type Tone = "good" | "busy" | "bad" | "idle";

export interface StatusView {
  label: string;
  tone: Tone;
  /** Share of the layers read so far, from 0 to 1; null when the status has no such measure. */
  progress: number | null;
}

const LABELS: Record<Exclude<RunnerStatus["type"], "loading" | "failed">, [string, Tone]> = {
  starting: ["Starting", "busy"],
  connecting: ["Connecting ranks", "busy"],
  warming_up: ["Warming up", "busy"],
  ready: ["Ready", "good"],
  stopping: ["Stopping", "idle"],
};

/** Puts the state of a rank in words: its node's absence before what its runner said last. */
function viewRank(state: ClusterState, shard: Instance["shards"][number]): StatusView {
  if (!state.nodes[shard.node]?.online) {
    return { label: `Node ${nodeName(state, shard.node)} is offline`, tone: "bad", progress: null };
  }
  return viewStatus(state.runners[shard.runner]?.status);
}

/** Puts a runner's status in words; a runner that State does not know yet has not been started. */
export function viewStatus(status: RunnerStatus | undefined): StatusView {
  if (!status) return { label: "Waiting for its node", tone: "busy", progress: null };
  if (status.type === "loading") {
    const { layers_loaded: loaded, total_layers: total } = status;
    const progress = total > 0 ? Math.min(1, loaded / total) : 0;
    return { label: `Loading layer ${loaded} of ${total}`, tone: "busy", progress };
  }
  if (status.type === "failed") {
    const label = status.retry_at > 0 ? `Failed on attempt ${status.attempt}` : "Failed";
    return { label, tone: "bad", progress: null };
  }
  // A newer node may know a status that this page does not.
  const [label, tone] = LABELS[status.type] ?? [status.type, "idle"];
  return { label, tone, progress: null };
}

export interface RankView {
  shard: Instance["shards"][number];
  runner: RunnerRecord | undefined;
  status: StatusView;
}

/** The ranks of an instance in order, each with its runner where State has one. */
export function ranksOf(state: ClusterState, instance: Instance): RankView[] {
  return [...instance.shards]
    .sort((left, right) => left.rank - right.rank)
    .map((shard) => {
      const runner = state.runners[shard.runner];
      return { shard, runner, status: viewRank(state, shard) };
    });
}

/** An instance serves when each of its ranks is ready on a node that is there. */
export function isReady(state: ClusterState, instance: Instance): boolean {
  return ranksOf(state, instance).every((rank) => rank.status.tone === "good");
}

/** Names of the models that answer now, sorted, each once. */
export function readyModels(state: ClusterState): string[] {
  const ready = Object.values(state.instances).filter((instance) => isReady(state, instance));
  return [...new Set(ready.map((instance) => instance.model.model_id))].sort();
}

export function tasksInFlight(state: ClusterState, instance: Instance): number {
  return Object.values(state.tasks).filter((task) => task.instance === instance.id).length;
}

export function nodeName(state: ClusterState, id: string): string {
  return state.nodes[id]?.facts.name ?? id;
}

/** A sample as this page got it: `fetchedAt` is when, in ms of `performance.now()`. */
export interface Reading<Kind extends Gauge = Gauge> {
  gauge: Kind;
  interval: number;
  age: number;
  fetchedAt: number;
}

/** How old a reading is by now, in ms. No clock of any node is involved, so clocks may differ. */
export function ageOf(reading: Reading, now: number): number {
  return reading.age * 1000 + Math.max(0, now - reading.fetchedAt);
}

/** A gauge that missed two readings tells about the past: it is shown, but greyed. */
export function isStale(reading: Reading, now: number): boolean {
  // The page itself fetches gauges every 10 s only, which is not the node's fault.
  return ageOf(reading, now) > reading.interval * 3000 + TELEMETRY_MS;
}

/** The last reading of one kind of gauge of a node, with the gauge narrowed to that kind. */
export function gaugeOf<Kind extends Gauge["type"]>(
  gauges: Gauges,
  node: string,
  kind: Kind,
): Reading<Extract<Gauge, { type: Kind }>> | null {
  const sample = gauges.samples[node]?.[kind];
  if (sample?.gauge.type !== kind) return null;
  const gauge = sample.gauge as Extract<Gauge, { type: Kind }>;
  return { gauge, interval: sample.interval, age: sample.age, fetchedAt: gauges.fetchedAt };
}

/**
 * The node of rank 0 if no other instance has its rank 0 there, else null. Rank 0 is where tokens are
 * counted, and the throughput gauge counts a node as a whole.
 */
export function soleInstanceOn(state: ClusterState, instance: Instance): string | null {
  const leads = (other: Instance): string | undefined => other.shards.find((shard) => shard.rank === 0)?.node;
  const node = leads(instance);
  const sharing = Object.values(state.instances).filter((other) => leads(other) === node);
  return node !== undefined && sharing.length === 1 ? node : null;
}
