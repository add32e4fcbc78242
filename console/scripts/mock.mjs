// The console over a daemon that does not exist: `npm run mock`, with VOLUMES=100, AUTH=1, PORT=8080 if wanted.
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "./build.mjs";
import { compiled } from "./compile.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
await bundle();
const { Mock } = await compiled(join(root, "mock/server.ts"));
const mock = new Mock({
  dist: join(root, "dist"),
  volumes: Number(process.env.VOLUMES ?? 6),
  port: Number(process.env.PORT ?? 8080),
  auth: process.env.AUTH === "1",
});
console.log(`the console is at ${await mock.start()}${process.env.AUTH === "1" ? " (tokens: operate-token, view-token)" : ""}; Ctrl-C ends it`);
