import { svelte } from "@sveltejs/vite-plugin-svelte";
import tailwindcss from "@tailwindcss/vite";
import { defineConfig } from "vitest/config";

/** Where `npm run dev` finds a running `exo up`. */
const API = process.env["EXO_API"] ?? "http://127.0.0.1:52415";

export default defineConfig(({ mode }) => ({
  // Relative addresses: the page works behind a proxy that serves it under a prefix.
  base: "./",
  plugins: [tailwindcss(), svelte()],
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
  test: { include: ["src/**/*.test.ts"] },
}));
