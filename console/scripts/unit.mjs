// Logic without a browser: bundles test/unit and runs it with Node's own test runner.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { compile } from "./compile.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const directory = join(root, "test/unit");
const files = readdirSync(directory).filter((name) => name.endsWith(".test.ts")).map((name) => join(directory, name));
const { paths, remove } = await compile(files);
try {
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...paths], { stdio: "inherit", env: { ...process.env, CONSOLE_ROOT: root } });
  process.exitCode = status ?? 1;
} finally {
  remove();
}
