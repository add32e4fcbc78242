// Bundles the console into dist/: hashed names, no source of anything outside. Fails if it grows beyond its bounds.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..");
// What the page's scripts and styles may weigh together, compressed; and what we mean to stay below.
const BYTES_MAX = 300 * 1024;
const BYTES_AIM = 80 * 1024;

export async function bundle({ out = join(ROOT, "dist"), minify = true } = {}) {
  const result = await build({
    entryPoints: [join(ROOT, "src/main.tsx")],
    bundle: true,
    minify,
    write: false,
    outdir: out,
    format: "esm",
    target: ["es2021", "chrome100", "firefox102", "safari15.4"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  mkdirSync(out, { recursive: true });
  // The directory itself stays, with the file that keeps it: cargo watches it.
  for (const name of readdirSync(out)) if (name !== ".gitkeep") rmSync(join(out, name), { recursive: true });
  let page = readFileSync(join(ROOT, "static/index.html"), "utf8");
  let weight = 0;
  for (const file of result.outputFiles) {
    const kind = file.path.endsWith(".css") ? "css" : "js";
    const hash = createHash("sha256").update(file.contents).digest("hex").slice(0, 10);
    const name = `app-${hash}.${kind}`;
    write(out, name, file.contents);
    page = page.replace(kind === "css" ? "%CSS%" : "%JS%", name);
    weight += gzipSync(file.contents, { level: 9 }).length;
    if (/https?:\/\/(?!www\.w3\.org\/)/.test(file.text)) throw new Error(`${name} speaks of an address outside`);
  }
  write(out, "index.html", Buffer.from(page));
  write(out, "icon.svg", readFileSync(join(ROOT, "static/icon.svg")));
  if (weight > BYTES_MAX) throw new Error(`scripts and styles weigh ${weight} bytes compressed; at most ${BYTES_MAX} are allowed`);
  return { weight, files: readdirSync(out).filter((name) => /^[^.].*(?<!\.br)$/.test(name)) };
}

/** Writes a file, and the same compressed beside it: so that neither the daemon nor its build needs to know how. */
function write(out, name, contents) {
  writeFileSync(join(out, name), contents);
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: contents.length };
  writeFileSync(join(out, `${name}.br`), brotliCompressSync(contents, { params }));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { weight, files } = await bundle();
  const heavy = weight > BYTES_AIM ? ` (more than the ${BYTES_AIM / 1024} KiB aimed at)` : "";
  console.log(`console: ${files.length} files, scripts and styles ${(weight / 1024).toFixed(1)} KiB compressed${heavy}`);
}
