/**
 * The cluster as this page knows it: State, kept fresh by the event log, and the gauges beside it.
 *
 * State is fetched once; after that, each event makes the page fetch the parts it can have changed.
 * When the log is lost the whole cycle starts over, so that one path serves a first load, a restarted
 * node and a server that answers errors.
 */
import {
  type Failure,
  getPart,
  getStanding,
  getState,
  getTelemetry,
  getTopology,
  listModels,
  toFailure,
  Unreachable,
} from "../api/client";
import { followEvents } from "../api/events";
import type { ClusterState, Standing, Topology } from "../api/types";
import { type Part, partsChangedBy } from "../lib/parts";
import { type Gauges, TELEMETRY_MS } from "../lib/views";

export type Link = "connecting" | "live" | "lost";

/** Findings and the age of links change without an event. */
const WITHOUT_EVENTS: readonly Part[] = ["topology", "standing"];
const WITHOUT_EVENTS_MS = 60_000;
/** Events come in bursts; one fetch answers a burst. */
const SETTLE_MS = 150;
const SHORTEST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 10_000;

class Cluster {
  state = $state.raw<ClusterState | null>(null);
  gauges = $state.raw<Gauges>({ samples: {}, fetchedAt: 0 });
  models = $state.raw<string[]>([]);
  topology = $state.raw<Topology | null>(null);
  standing = $state.raw<Standing | null>(null);
  link = $state<Link>("connecting");
  /** Why the link is lost, in the server's words where it had any. */
  problem = $state.raw<Failure | null>(null);

  /** Counts connections: what an older one still has under way is dropped. */
  private cycle = 0;
  private stopFollowing: (() => void) | null = null;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private refreshTimer: ReturnType<typeof setTimeout> | undefined;
  private stale = new Set<Part>();
  private failures = 0;

  /** Runs until the function it gives is called. */
  start(): () => void {
    void this.connect();
    const refreshGauges = () => void this.refreshTelemetry();
    const gauges = setInterval(refreshGauges, TELEMETRY_MS);
    const links = setInterval(() => this.noteOld(), WITHOUT_EVENTS_MS);
    document.addEventListener("visibilitychange", refreshGauges);
    return () => {
      clearInterval(gauges);
      clearInterval(links);
      document.removeEventListener("visibilitychange", refreshGauges);
      this.disconnect();
    };
  }

  /** Tries again at once instead of waiting for the next turn. */
  retryNow(): void {
    void this.connect();
  }

  private disconnect(): void {
    this.cycle += 1;
    clearTimeout(this.retryTimer);
    clearTimeout(this.refreshTimer);
    this.refreshTimer = undefined;
    this.stale.clear();
    this.stopFollowing?.();
    this.stopFollowing = null;
  }

  private async connect(): Promise<void> {
    this.disconnect();
    const cycle = this.cycle;
    try {
      const state = await getState();
      const [models, topology, standing] = await Promise.all([listModels(), getTopology(), getStanding()]);
      if (cycle !== this.cycle) return;
      this.state = state;
      this.models = models;
      this.topology = topology;
      this.standing = standing;
      this.stopFollowing = followEvents(`${state.session}.${state.applied}`, {
        onOpen: () => this.noteLive(),
        onEvent: (data) => this.noteStale(partsChangedBy(data)),
        onLost: () => this.noteLost(new Unreachable("The event stream of the exo node ended")),
      });
      void this.refreshTelemetry();
    } catch (error) {
      if (cycle === this.cycle) this.noteLost(error);
    }
  }

  private noteLive(): void {
    this.link = "live";
    this.problem = null;
    this.failures = 0;
  }

  private noteLost(error: unknown): void {
    this.disconnect();
    this.link = "lost";
    this.problem = toFailure(error);
    const delay = Math.min(LONGEST_RETRY_MS, SHORTEST_RETRY_MS * 2 ** this.failures);
    this.failures += 1;
    this.retryTimer = setTimeout(() => void this.connect(), delay);
  }

  /** Has parts fetched again although no event said so, unless nobody looks. */
  private noteOld(): void {
    if (!document.hidden && this.link === "live") this.noteStale(WITHOUT_EVENTS);
  }

  private noteStale(parts: readonly Part[]): void {
    for (const part of parts) this.stale.add(part);
    if (this.stale.size > 0) this.refreshTimer ??= setTimeout(() => void this.refresh(), SETTLE_MS);
  }

  /** Fetches what is stale. The timer stays set meanwhile, so that only one refresh is under way. */
  private async refresh(): Promise<void> {
    const cycle = this.cycle;
    const parts = [...this.stale];
    this.stale.clear();
    try {
      const fetched = await Promise.all(parts.map(async (part) => [part, await readPart(part)] as const));
      if (cycle !== this.cycle) return;
      for (const [part, value] of fetched) this.setPart(part, value);
      this.refreshTimer = undefined;
      this.noteStale([]);
    } catch (error) {
      if (cycle === this.cycle) this.noteLost(error);
    }
  }

  private setPart(part: Part, value: unknown): void {
    if (part === "models") this.models = value as string[];
    else if (part === "topology") this.topology = value as Topology;
    else if (part === "standing") this.standing = value as Standing;
    else if (this.state) this.state = { ...this.state, [part]: value };
  }

  private async refreshTelemetry(): Promise<void> {
    if (document.hidden || this.link === "lost") return;
    try {
      this.gauges = { samples: await getTelemetry(), fetchedAt: performance.now() };
    } catch {
      // Gauges carry their age: without news they grey out, and the link reports the fault itself.
    }
  }
}

function readPart(part: Part): Promise<unknown> {
  if (part === "models") return listModels();
  if (part === "standing") return getStanding();
  return part === "topology" ? getTopology() : getPart(part);
}

export const cluster = new Cluster();
