import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

/** Read by Vite, svelte-check, ESLint and Prettier, so that all four see the same Svelte. */
export default {
  preprocess: vitePreprocess(),
  compilerOptions: { runes: true },
};
