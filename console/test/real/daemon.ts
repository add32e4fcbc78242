/** A real daemon in a directory of its own, with files for disks, and real load. */

import assert from "node:assert/strict";
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { createServer } from "node:net";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const HEARTH = process.env["HEARTH"]!;

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => (address !== null && typeof address === "object" ? resolve(address.port) : reject(new Error("no port"))));
    });
  });
}

export class Daemon {
  private process: ChildProcess | null = null;
  private readonly load: ChildProcess[] = [];

  private constructor(readonly directory: string, private readonly port: number) {}

  static async start(): Promise<Daemon> {
    const daemon = new Daemon(mkdtempSync(join(tmpdir(), "hearth-console-")), await freePort());
    await daemon.begin();
    return daemon;
  }

  get base(): string {
    return `https://127.0.0.1:${this.port}/`;
  }

  private get environment(): NodeJS.ProcessEnv {
    return { ...process.env, HEARTH_STATE: join(this.directory, "state"), HEARTH_SOCKET: this.socket };
  }

  get socket(): string {
    return join(this.directory, "hearth.sock");
  }

  /** The start, the first or another one. */
  async begin(): Promise<void> {
    const log = openSync(join(this.directory, "log"), "a");
    const child = spawn(HEARTH, ["serve", "--listen", `127.0.0.1:${this.port}`], { env: this.environment, stdio: ["ignore", "pipe", log] });
    closeSync(log);
    this.process = child;
    await new Promise<void>((resolve, reject) => {
      child.stdout!.on("data", (text: Buffer) => text.includes("ready") && resolve());
      child.once("exit", () => reject(new Error(`the daemon ended: ${readFileSync(join(this.directory, "log"), "utf8").slice(-500)}`)));
    });
  }

  /** A stop in order. */
  async end(): Promise<void> {
    const child = this.process;
    if (child === null || child.exitCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    child.kill("SIGTERM");
    await ended;
    this.process = null;
  }

  hearth(...words: string[]): string {
    return execFileSync(HEARTH, words, { env: this.environment, encoding: "utf8", timeout: 120_000 }).trim();
  }

  /** A file of that many MiB; filled with bytes that differ by place, or sparse. */
  file(name: string, mib: number, filled = false): string {
    const path = join(this.directory, name);
    writeFileSync(path, "");
    if (filled) {
      const page = Buffer.alloc(1 << 20);
      for (let at = 0; at < mib; at += 1) {
        for (let word = 0; word < page.length; word += 4) page.writeUInt32LE((at * 262_144 + word * 2_654_435) >>> 0, word);
        writeFileSync(path, page, { flag: "a" });
      }
    }
    truncateSync(path, mib << 20);
    return path;
  }

  uri(volume: string): string {
    return `nbd+unix:///${volume}?socket=${join(this.directory, "nbd.sock")}`;
  }

  /** Load on a volume until `settle` is called; it fails if one request failed. */
  async fio(volume: string, ...more: string[]): Promise<() => Promise<void>> {
    const common = ["--name=load", "--ioengine=nbd", `--uri=${this.uri(volume)}`, "--bs=4k", "--iodepth=8", "--time_based", "--runtime=600", "--size=48m"];
    const child = spawn("fio", [...common, ...more], { cwd: this.directory, stdio: ["ignore", "ignore", "pipe"] });
    this.load.push(child);
    let complaints = "";
    child.stderr!.on("data", (text: Buffer) => (complaints += String(text)));
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    await sleep(1000);
    assert.equal(child.exitCode, null, `fio ended at once: ${complaints}`);
    return async () => {
      assert.equal(child.exitCode, null, `fio ended: ${complaints}`);
      child.kill("SIGINT");
      await ended;
      assert.doesNotMatch(complaints, /error/i);
    };
  }

  async remove(): Promise<void> {
    for (const child of this.load) if (child.exitCode === null) child.kill("SIGKILL");
    await this.end();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
