// The pages in Debian's Chromium. Against the mock; or, with BASE_URL and TOKEN, against a daemon (then only what needs no mock).
// SHOTS: where screenshots go. CHROMIUM: another browser.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { bundle } from "./build.mjs";
import { compile } from "./compile.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
if (!process.env.BASE_URL) await bundle();
const directory = join(root, "test/browser");
const wanted = process.argv[2] ?? "";
const files = readdirSync(directory).filter((name) => name.endsWith(".test.ts") && name.includes(wanted)).map((name) => join(directory, name));
const { paths, remove } = await compile(files, ["playwright-core", "axe-core"]);
try {
  // One file after the other: two browsers at once would only measure each other.
  for (const path of paths) {
    const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", path], {
      stdio: "inherit",
      env: { ...process.env, CONSOLE_ROOT: root, SHOTS: process.env.SHOTS ?? join(root, "../target/console-shots") },
    });
    if (status !== 0) process.exitCode = status ?? 1;
  }
} finally {
  remove();
}
