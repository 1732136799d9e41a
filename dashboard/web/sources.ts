/**
 * The fingerprint of everything the bundle is made from.
 *
 * The build writes it into `build.json`; `exo.dashboard.bundle` computes the same value in Python and
 * so tells a stale bundle from a fresh one. Both sides must list the same entries.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** Files and folders of `web/` that decide what comes out of a build. */
const SOURCE_ENTRIES = [
  "index.html",
  "package-lock.json",
  "package.json",
  "public",
  "sources.ts",
  "src",
  "svelte.config.js",
  "tsconfig.json",
  "vite.config.ts",
];

/** Test files stand beside the sources but never reach the bundle. */
const TEST_FILE = /\.test\.ts$/;

function listFiles(root: string, entry: string): string[] {
  const kind = statSync(join(root, entry), { throwIfNoEntry: false });
  if (!kind) return [];
  if (!kind.isDirectory()) return [entry];
  return readdirSync(join(root, entry)).flatMap((name) => listFiles(root, `${entry}/${name}`));
}

/** SHA-256 over the lines `<path> <sha256 of the file>\n`, sorted by the bytes of the path. */
export function hashSources(root: string): string {
  const digest = createHash("sha256");
  const files = SOURCE_ENTRIES.flatMap((entry) => listFiles(root, entry)).filter(
    (path) => !TEST_FILE.test(path),
  );
  for (const path of files.sort((left, right) => Buffer.compare(Buffer.from(left), Buffer.from(right)))) {
    const content = createHash("sha256")
      .update(readFileSync(join(root, path)))
      .digest("hex");
    digest.update(`${path} ${content}\n`);
  }
  return digest.digest("hex");
}
