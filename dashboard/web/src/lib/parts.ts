/**
 * Which parts of State an event can change, so that a busy chat makes the page fetch a short list of
 * tasks again and not the whole of State.
 */

const STATE_PARTS = ["nodes", "instances", "runners", "tasks", "removed_instances"] as const;

export type StatePart = (typeof STATE_PARTS)[number];

/** A part of State, or the list of models that the API offers. */
export type Part = StatePart | "models";

export const ALL_PARTS: readonly Part[] = [...STATE_PARTS, "models"];

const CHANGED_BY: Record<string, readonly Part[]> = {
  command_rejected: [],
  command_answered: [],
  task_assigned: ["tasks"],
  task_cancelled: ["tasks"],
  task_finished: ["tasks"],
  task_failed: ["tasks"],
  tasks_failed: ["tasks"],
  runner_status_changed: ["runners"],
  model_card_added: ["models"],
  model_card_deleted: ["models"],
  models_reported: ["models"],
};

/** Reads the type out of an event's JSON; whatever is not in the table may have changed anything. */
export function partsChangedBy(data: string): readonly Part[] {
  try {
    const envelope = JSON.parse(data) as { event?: { type?: string } };
    return CHANGED_BY[envelope.event?.type ?? ""] ?? ALL_PARTS;
  } catch {
    return ALL_PARTS;
  }
}
