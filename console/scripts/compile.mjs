// TypeScript for Node: bundled to a temporary file and imported. Node 18 reads no types itself.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

// Within node_modules: what is not bundled is found from there.
const CACHE = join(dirname(fileURLToPath(import.meta.url)), "../node_modules/.cache");

/** Bundles the files into a new directory; gives back the paths there, and how to remove it. */
export async function compile(files, outside = []) {
  mkdirSync(CACHE, { recursive: true });
  const directory = mkdtempSync(join(CACHE, "console-"));
  await build({
    entryPoints: files,
    bundle: true,
    platform: "node",
    target: "node18",
    format: "esm",
    outdir: directory,
    outbase: "/",
    entryNames: "[name]",
    outExtension: { ".js": ".mjs" },
    jsx: "automatic",
    jsxImportSource: "preact",
    external: outside,
    sourcemap: "inline",
    loader: { ".css": "empty" },
  });
  return {
    paths: files.map((file) => join(directory, basename(file).replace(/\.tsx?$/, ".mjs"))),
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

/** Imports one TypeScript file. */
export async function compiled(file) {
  const { paths, remove } = await compile([file]);
  try {
    return await import(pathToFileURL(paths[0]).href);
  } finally {
    remove();
  }
}
