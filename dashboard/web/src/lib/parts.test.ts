import { expect, it } from "vitest";

import { ALL_PARTS, partsChangedBy } from "./parts";

const event = (type: string): string => JSON.stringify({ id: "x", event: { type } });

it("fetches only the tasks again after a chat", () => {
  expect(partsChangedBy(event("task_assigned"))).toEqual(["tasks"]);
  expect(partsChangedBy(event("task_finished"))).toEqual(["tasks"]);
});

it("fetches only the topology again after a link has changed", () => {
  expect(partsChangedBy(event("links_measured"))).toEqual(["topology"]);
});

it("fetches nothing after an event that changes nothing shown", () => {
  expect(partsChangedBy(event("command_rejected"))).toEqual([]);
});

it.each([event("instance_placed"), event("of_a_newer_version"), event("constructor"), "{}", "not json"])(
  "fetches everything after %s",
  (data) => expect(partsChangedBy(data)).toEqual(ALL_PARTS),
);
