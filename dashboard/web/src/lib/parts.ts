/**
 * Which parts of State an event can change, so that a busy chat makes the page fetch a short list of
 * tasks again and not the whole of State.
 */

const STATE_PARTS = ["nodes", "instances", "runners", "tasks", "removed_instances"] as const;

export type StatePart = (typeof STATE_PARTS)[number];

/** A part of State, the list of models that the API offers, or what it says of links and of the cluster. */
export type Part = StatePart | "models" | "topology" | "standing";

export const ALL_PARTS: readonly Part[] = [...STATE_PARTS, "models", "topology", "standing"];

const TASKS: readonly Part[] = ["tasks"];
const MODELS: readonly Part[] = ["models"];
const TOPOLOGY: readonly Part[] = ["topology"];

const CHANGED_BY = new Map<string, readonly Part[]>([
  ["command_rejected", []],
  ["command_answered", []],
  ["task_assigned", TASKS],
  ["task_cancelled", TASKS],
  ["task_finished", TASKS],
  ["task_failed", TASKS],
  ["tasks_failed", TASKS],
  ["runner_status_changed", ["runners"]],
  ["model_card_added", MODELS],
  ["model_card_deleted", MODELS],
  ["models_reported", MODELS],
  ["links_measured", TOPOLOGY],
  ["thunderbolt_observed", TOPOLOGY],
]);

/** Reads the type out of an event's JSON; whatever is not in the table may have changed anything. */
export function partsChangedBy(data: string): readonly Part[] {
  try {
    const envelope = JSON.parse(data) as { event?: { type?: string } };
    return CHANGED_BY.get(envelope.event?.type ?? "") ?? ALL_PARTS;
  } catch {
    return ALL_PARTS;
  }
}
