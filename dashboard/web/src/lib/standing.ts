/** How a node stands with the others, in words. */
import type { ClusterReport, ClusterState, Merge } from "../api/types";

/** "hub anna", or why there is none. */
export function describeHub(report: ClusterReport, nodes: ClusterState["nodes"]): string {
  if (!report.hub) return `no hub: ${report.why}`;
  return `hub ${nodes[report.hub]?.facts.name ?? report.hub}`;
}

export interface MergeView {
  merge: Merge;
  kept: number;
  lost: number;
  /** The first of what was dropped. */
  listed: Merge["dropped"];
  /** How many more were dropped than are listed. */
  unlisted: number;
}

/** The newest merges first, each with the first `most` things that it cost. */
export function listMerges(merges: readonly Merge[], count: number, most: number): MergeView[] {
  const newest = [...merges].sort((left, right) => right.at - left.at).slice(0, count);
  return newest.map((merge) => {
    const lost = merge.dropped.length + merge.more_dropped;
    const listed = merge.dropped.slice(0, most);
    return { merge, kept: merge.adopted.length, lost, listed, unlisted: lost - listed.length };
  });
}
