import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import typescript from "typescript-eslint";

import svelteConfig from "./svelte.config.js";

export default typescript.config(
  { ignores: ["node_modules/", "src/api/types.gen.ts"] },
  js.configs.recommended,
  ...typescript.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: { ...globals.browser } } },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: {
      parserOptions: {
        extraFileExtensions: [".svelte"],
        parser: typescript.parser,
        svelteConfig,
      },
    },
  },
  {
    rules: {
      eqeqeq: "error",
      "no-console": "error",
      // Answers of a model are text, never markup.
      "svelte/no-at-html-tags": "error",
      "max-lines": ["error", { max: 300 }],
    },
  },
  { files: ["**/*.svelte"], rules: { "max-lines": ["error", { max: 200 }] } },
  { files: ["*.ts", "*.js"], languageOptions: { globals: { ...globals.node } } },
);
