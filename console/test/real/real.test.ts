/** The console over a real daemon with real volumes under real load. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium, type Browser } from "playwright-core";
import { live, open, shot, violations, type Stage, type View, type Watched } from "../browser/harness";
import { Daemon } from "./daemon";

const MISSING = /status of 404/;
let daemon: Daemon;
let browser: Browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  daemon = await Daemon.start();
});
after(async () => {
  await browser.close();
  await daemon.remove();
});

/** A page that is logged in by a code from the command line. */
async function look(hash: string, view: View = {}): Promise<Watched> {
  const address = daemon.hearth("console");
  const stage: Stage = { browser, base: address, mock: null, close: async () => undefined };
  const watched = await open(stage, "", view);
  await watched.page.locator(".frame main h1").waitFor();
  assert.ok(!watched.page.url().includes("code="), "the code leaves the address bar");
  await watched.page.goto(daemon.base + hash);
  await watched.page.locator("main h1").waitFor();
  return watched;
}

test("the setup leads from an empty daemon to a device with the disk's data on it", async () => {
  const backing = daemon.file("disk.img", 64, true);
  const watched = await look("#/");
  const { page } = watched;
  await live(page);
  await page.getByRole("link", { name: "Set up the first volume" }).click();
  await page.getByRole("heading", { name: "Pick the SSD" }).waitFor();
  const next = page.getByRole("button", { name: "Next" });
  const path = page.getByLabel("Path", { exact: true });
  await page.getByText("In a file, or another path").click();
  await path.fill(join(daemon.directory, "ssd.img"));
  await page.getByLabel("Size", { exact: true }).fill("256MiB");
  await page.getByLabel("Name of the pool").fill("fast");
  await page.getByLabel("RAM in front of it").fill("16MiB");
  await shot(page, "real-setup-ssd");
  await next.click();
  await page.getByRole("heading", { name: "Pick the slow disk" }).waitFor();
  await page.getByText("A file, or another path").click();
  await path.fill(join(daemon.directory, "nothing.img"));
  await next.click();
  await page.getByText(/nothing\.img/).first().waitFor();
  await path.fill(backing);
  await next.click();
  await page.getByLabel("Name of the volume").fill("data");
  const nbd = page.getByRole("checkbox", { name: /NBD on a Unix socket/ });
  const loop = page.getByRole("checkbox", { name: /block device/i });
  if (await loop.isChecked()) await loop.uncheck();
  if (!(await nbd.isChecked())) await nbd.check();
  await next.click();
  await page.getByRole("heading", { name: "Review" }).waitFor();
  await shot(page, "real-setup-review");
  assert.deepEqual(await violations(page), []);
  assert.equal(daemon.hearth("pool", "list", "--json"), "[]", "nothing is done before the last word");
  await page.getByRole("button", { name: "Do it" }).click();
  await page.getByRole("heading", { name: "The volume data works" }).waitFor();
  await shot(page, "real-setup-done");
  const copy = join(daemon.directory, "copy.img");
  execFileSync("nbdcopy", [daemon.uri("data"), copy], { timeout: 120_000 });
  assert.ok(readFileSync(copy).equals(readFileSync(backing)), "what the volume gives is what is on the disk");
  await watched.done(MISSING);
});

test("every page over volumes under load: no complaint, accessible, shot in light and dark", async () => {
  daemon.hearth("volume", "add", "logs", "--backing", daemon.file("logs.img", 64), "--pool", "fast", "--export", "nbd", "--mode", "write-back");
  const settle = [await daemon.fio("data", "--rw=randread", "--rate_iops=400"), await daemon.fio("logs", "--rw=randwrite", "--rate_iops=200")];
  await sleep(4000);
  const pages: [string, string][] = [
    ["overview", "#/"], ["volume", "#/volume/data"], ["volume-write-back", "#/volume/logs"], ["pool", "#/pool/fast"], ["pools", "#/pools"],
    ["jobs", "#/jobs"], ["events", "#/events"], ["setup", "#/setup"],
  ];
  for (const scheme of ["light", "dark"] as const) {
    const watched = await look("#/", { scheme });
    const { page } = watched;
    for (const [name, hash] of pages) {
      await page.goto(daemon.base + hash);
      await page.locator("main h1").waitFor();
      await live(page);
      await page.waitForTimeout(2500);
      await shot(page, `real-${name}-${scheme}`);
      assert.deepEqual(await violations(page), [], `${name} in ${scheme}`);
    }
    await page.goto(`${daemon.base}#/`);
    const row = page.locator("tbody tr", { hasText: "data" }).first();
    await row.waitFor();
    assert.match(await row.innerText(), /[1-9]\d*\s?\/?s?/, "the row moves");
    await watched.done();
  }
  for (const stop of settle) await stop();
});

test("a cell of the map of a real volume says why, and a range never read says so", async () => {
  const settle = await daemon.fio("data", "--rw=randread", "--rate_iops=200", "--size=16m");
  const watched = await look("#/volume/data");
  const { page } = watched;
  await live(page);
  await page.locator(".heat-foot").waitFor();
  const map = page.getByRole("slider", { name: /Place in the volume/ });
  await map.scrollIntoViewIfNeeded();
  await map.click({ position: { x: 6, y: 6 } });
  await page.locator(".verdict li").first().waitFor();
  await page.getByLabel("Offset or range").fill("60MiB-61MiB");
  await page.getByRole("button", { name: "Why?", exact: true }).click();
  await page.locator(".why h3", { hasText: "60MiB to 61MiB" }).waitFor();
  await page.locator(".verdict li").first().waitFor();
  await shot(page, "real-why");
  assert.deepEqual(await violations(page), []);
  await watched.done();
  await settle();
});

test("the mode changes under load, there and back, and no request fails", async () => {
  const settle = await daemon.fio("data", "--rw=randrw", "--rate_iops=300");
  const watched = await look("#/volume/data");
  const { page } = watched;
  await live(page);
  for (const mode of ["write-back", "write-through"]) {
    await page.getByRole("button", { name: "Change mode", exact: true }).first().click();
    await page.getByRole("dialog").getByText(mode, { exact: true }).click();
    await page.getByRole("button", { name: `Change to ${mode}` }).click();
    await page.locator(".page-sub", { hasText: mode }).waitFor();
    await page.waitForTimeout(2000);
  }
  const view: unknown = JSON.parse(daemon.hearth("volume", "show", "data", "--json"));
  assert.match(JSON.stringify(view), /"mode":"write-through"/);
  await page.goto(`${daemon.base}#/events`);
  await page.getByText(/mode write-back \(was write-through\)/).first().waitFor();
  await watched.done();
  await settle();
});

test("the daemon is restarted while the page is open: it says so, and goes on by itself", async () => {
  const watched = await look("#/");
  const { page } = watched;
  await live(page);
  await daemon.end();
  await page.getByText("Connection to the daemon lost — trying again.").waitFor();
  assert.equal(await page.locator(".frame.stale").count(), 1, "nothing is shown as live");
  await daemon.begin();
  await page.getByText("The daemon was restarted").waitFor();
  await live(page);
  await page.locator("tbody tr", { hasText: "logs" }).first().waitFor();
  await watched.done(/Failed to load resource|net::ERR|status of/);
});

test("a hundred volumes", async () => {
  for (let number = 0; number < 98; number += 1) {
    const name = `v${String(number).padStart(2, "0")}`;
    daemon.hearth("volume", "add", name, "--backing", daemon.file(`${name}.img`, 16), "--pool", "fast", "--export", "nbd");
  }
  const settle = await daemon.fio("v42", "--rw=randread", "--rate_iops=200", "--size=16m");
  const watched = await look("#/");
  const { page } = watched;
  await live(page);
  await page.locator("tbody tr").nth(99).waitFor();
  await page.waitForTimeout(3000);
  await shot(page, "real-hundred", false);
  const begun = Date.now();
  await page.reload();
  await page.locator("tbody tr").nth(99).waitFor();
  const paint = (await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")) as number;
  console.log(`# a hundred volumes: first paint ${Math.round(paint)} ms, all rows ${Date.now() - begun} ms after a reload`);
  assert.deepEqual(await violations(page), []);
  await watched.done();
  await settle();
});
