import { expect, it } from "vitest";

import type { Merge } from "../api/types";
import { aStanding } from "../testing/topology";
import { describeHub, listMerges } from "./standing";

function aMerge(session: string, at: number, lost: number, more = 0): Merge {
  const dropped = Array.from({ length: lost }, (_, index) => ({
    kind: "instance" as const,
    id: `${session}-${index}`,
    name: "org/model",
    reason: "its node is gone",
  }));
  return { session, at, adopted: ["kept"], dropped, more_dropped: more };
}

it("says why when there is no hub, and gives the id of a hub that has not joined yet", () => {
  expect(describeHub(aStanding({ hub: "", why: "waiting for the others" }).report, {})).toBe(
    "no hub: waiting for the others",
  );
  expect(describeHub(aStanding().report, {})).toBe("hub a");
});

it("lists the newest merges first and counts what it does not list", () => {
  const merges = [aMerge("old", 1, 0), aMerge("newest", 3, 4, 10), aMerge("newer", 2, 1)];
  const views = listMerges(merges, 2, 3);
  expect(views.map((view) => view.merge.session)).toEqual(["newest", "newer"]);
  expect(views[0]).toMatchObject({ kept: 1, lost: 14, unlisted: 11 });
  expect(views[0]?.listed).toHaveLength(3);
  expect(views[1]).toMatchObject({ lost: 1, unlisted: 0 });
});
