// The pages over a real daemon with real volumes: HEARTH names the binary. Needs fio, nbdcopy and Debian's Chromium. SHOTS: where screenshots go.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { compile } from "./compile.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const hearth = process.env.HEARTH ?? join(root, "../target/release/hearth");
if (!existsSync(hearth)) {
  console.error(`there is no ${hearth}: build it, or name it with HEARTH`);
  process.exit(1);
}
const { paths, remove } = await compile([join(root, "test/real/real.test.ts")], ["playwright-core", "axe-core"]);
try {
  const env = { ...process.env, HEARTH: hearth, CONSOLE_ROOT: root, SHOTS: process.env.SHOTS ?? join(root, "../target/console-shots") };
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...process.argv.slice(2), ...paths], { stdio: "inherit", env });
  process.exitCode = status ?? 1;
} finally {
  remove();
}
