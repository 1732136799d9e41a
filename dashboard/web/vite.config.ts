import { svelte } from "@sveltejs/vite-plugin-svelte";
import tailwindcss from "@tailwindcss/vite";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

import { hashSources } from "./sources.ts";

/** Where `npm run dev` finds a running `exo up`. */
const API = process.env["EXO_API"] ?? "http://127.0.0.1:52415";

/** Leaves `build.json` beside the bundle: which sources it was built from. */
function stampSources(): Plugin {
  return {
    name: "stamp-sources",
    apply: "build",
    generateBundle() {
      const stamp = { sources: hashSources(import.meta.dirname) };
      this.emitFile({ type: "asset", fileName: "build.json", source: `${JSON.stringify(stamp)}\n` });
    },
  };
}

export default defineConfig(({ mode }) => ({
  // Relative addresses: the page works behind a proxy that serves it under a prefix.
  base: "./",
  plugins: [tailwindcss(), svelte(), stampSources()],
  build: {
    outDir: "../exo/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    // The content security policy allows no data: scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // Without the browser condition, Vitest would load Svelte's server build.
  resolve: mode === "test" ? { conditions: ["browser"] } : {},
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/state", "/events", "/models", "/instance", "/place_instance"].map((path) => [path, API]),
    ),
  },
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"] },
}));
