/** What people do: ask why, zoom, change the mode, follow jobs, remove. Over the mock, whose numbers are known. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { live, MOCK_ONLY as skip, open, shot, stage, violations, type Stage } from "./harness";
import { World } from "../../mock/world";
import { LEFT, RIGHT } from "../../src/charts/paint";

let here: Stage;
before(async () => void (here = await stage()));
beforeEach(() => here.mock?.begin(new World(6)));
after(() => here.close());

test("by keyboard alone: find the volume, change its mode to write-back, read what that means, confirm", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  const focused = (text: string) => async (): Promise<boolean> => ((await page.evaluate("document.activeElement.textContent")) as string).trim() === text;
  const onRadio = async (): Promise<boolean> => (await page.evaluate("document.activeElement.type")) === "radio";
  const tabTo = async (wanted: () => Promise<boolean>): Promise<void> => {
    for (let presses = 0; presses < 120; presses += 1) {
      await page.keyboard.press("Tab");
      if (await wanted()) return;
    }
    assert.fail("the keyboard does not get there");
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused("Skip to the content")(), true);
  await page.keyboard.press("Enter");
  await tabTo(focused("vm-images"));
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^vm-images/ }).waitFor();
  await tabTo(focused("Change mode"));
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  assert.equal(await dialog.getByRole("button", { name: /^Change/ }).isDisabled(), true);
  if (!(await onRadio())) await tabTo(onRadio);
  await page.keyboard.press("ArrowDown");
  await dialog.getByText("If the SSD dies meanwhile, the dirty data is lost").waitFor();
  await shot(page, "mode-dialog", false);
  assert.deepEqual(await violations(page), []);
  await tabTo(focused("Change to write-back"));
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  await page.locator(".page-sub", { hasText: "write-back" }).waitFor();
  assert.equal(here.mock!.world.volumes.get("vm-images")!.view.options.mode, "write-back");
  assert.equal(await focused("Change mode")(), true, "the focus comes back");
  await watched.done();
});

test("leaving write-back is a job that can be followed, stopped and gone on with", { skip }, async () => {
  const watched = await open(here, "#/volume/db");
  const { page } = watched;
  await live(page);
  await page.getByRole("button", { name: "Change mode", exact: true }).first().click();
  await page.getByRole("dialog").getByText("write-through", { exact: true }).click();
  await page.getByText(/of dirty data are destaged to \/dev\/sdb first/).waitFor();
  await page.getByRole("button", { name: "Change to write-through" }).click();
  await page.getByRole("article", { name: "Mode change of db" }).first().getByText("running").waitFor();
  await page.goto(`${here.base}#/jobs`);
  await page.getByRole("progressbar").first().waitFor();
  await page.getByText("The backing device /dev/sdh does not answer. What to do: Connect it and go on with the job.").waitFor();
  await page.waitForTimeout(1500);
  await shot(page, "jobs-running");
  await page.getByRole("button", { name: "Stop the Mode change of db" }).click();
  await page.getByText("stopped").waitFor();
  await page.getByRole("button", { name: "Go on with the Mode change of db" }).click();
  await page.getByRole("article").getByText("running").first().waitFor();
  await page.getByText("done", { exact: true }).first().waitFor();
  await watched.done();
});

test("a refusal of the daemon is shown with its remedy, and the choice stays", { skip }, async () => {
  const watched = await open(here, "#/volume/db");
  const { page } = watched;
  await page.getByRole("button", { name: "Change read-only" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("yes", { exact: true }).click();
  await dialog.getByRole("button", { name: "Refuse all writes" }).click();
  await dialog.getByText("A read-only volume cannot be write-back.").waitFor();
  await dialog.getByText(/What to do: Leave out one of/).waitFor();
  assert.equal(await dialog.getByRole("radio").nth(1).isChecked(), true);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // A size that makes no sense is told before anything is sent.
  await page.getByRole("button", { name: "Change max i/o size" }).click();
  await dialog.getByRole("textbox").fill("64GiB");
  await dialog.getByText("it must be between").waitFor();
  assert.equal(await dialog.getByRole("button", { name: "Change the max i/o size" }).isDisabled(), true);
  await watched.done(/status of 400/);
});

test("dragging over a chart zooms all of them to finer history; a double click goes back", { skip }, async () => {
  const watched = await open(here, "#/volume/db");
  const { page } = watched;
  await live(page);
  await page.getByRole("button", { name: "24 h" }).click();
  await page.waitForTimeout(800);
  const asked: string[] = [];
  page.on("request", (request) => request.url().includes("/history") && asked.push(request.url()));
  const chart = page.locator(".chart-box canvas").first();
  await chart.scrollIntoViewIfNeeded();
  const box = (await chart.boundingBox())!;
  const at = (part: number): number => box.x + LEFT + (box.width - LEFT - RIGHT) * part;
  await page.mouse.move(at(0.5), box.y + 40);
  await page.mouse.down();
  await page.mouse.move(at(0.6), box.y + 40, { steps: 5 });
  await page.mouse.up();
  await page.getByRole("button", { name: "Back to now" }).waitFor();
  await page.waitForTimeout(500);
  const query = new URL(asked[asked.length - 1]!).searchParams;
  const length = Number(query.get("to_unix_s")) - Number(query.get("from_unix_s"));
  assert.ok(length > 8400 && length < 8900, `${length} seconds instead of a tenth of a day`);
  await shot(page, "volume-zoomed", false);
  await chart.dblclick();
  await page.getByRole("button", { name: "Back to now" }).waitFor({ state: "detached" });
  assert.equal(await page.getByRole("button", { name: "24 h" }).getAttribute("aria-pressed"), "true");
  await watched.done();
});

test("what happened is marked below the charts, and told where the pointer is", { skip }, async () => {
  const watched = await open(here, "#/volume/db");
  const { page } = watched;
  await live(page);
  here.mock!.world.tell("info", "db", "12 tables were rebuilt");
  const chart = page.locator(".chart-box canvas").first();
  await chart.scrollIntoViewIfNeeded();
  const box = (await chart.boundingBox())!;
  const told = page.locator(".chart-time", { hasText: /: 12 tables were rebuilt\.$/ });
  // The mark moves on with the seconds.
  let charts = 0;
  for (let step = 0; step < 400 && charts < 6; step += 1) {
    await page.mouse.move(box.x + box.width - RIGHT - 2 * (step % 20), box.y + 40);
    await page.waitForTimeout(50);
    charts = await told.count();
  }
  assert.equal(charts, 6, "all charts tell of the same moment");
  await shot(page, "volume-event", false);
  await page.mouse.move(5, 5);
  await told.first().waitFor({ state: "detached" });
  await watched.done();
});

test("a cell of the address space tells its range, and a click or Enter asks why", { skip }, async () => {
  const watched = await open(here, "#/volume/db");
  const { page } = watched;
  await live(page);
  const map = page.getByRole("slider", { name: /Place in the volume/ });
  await page.locator(".heat-foot", { hasText: "on the SSD" }).waitFor();
  await map.scrollIntoViewIfNeeded();
  await map.hover({ position: { x: 200, y: 50 } });
  assert.match(await page.locator(".heat-foot span").first().innerText(), /^[\d.]+\sGiB to [\d.]+\sGiB: /);
  await map.click({ position: { x: 200, y: 50 } });
  await page.locator(".verdict li").first().waitFor();
  const heading = await page.locator(".why h3").first().innerText();
  assert.match(heading, /MiB to /);
  await map.focus();
  for (const key of ["ArrowRight", "ArrowDown", "Enter"]) await page.keyboard.press(key);
  await page.locator(".why h3").filter({ hasNotText: heading }).first().waitFor();
  await page.getByLabel("Offset or range").fill("1GiB-1026MiB");
  await page.getByRole("button", { name: "Why?", exact: true }).click();
  await page.locator(".why h3", { hasText: "1GiB to 1026MiB" }).waitFor();
  await page.locator("#why").screenshot({ path: join(process.env["SHOTS"]!, "why.png") });
  assert.deepEqual(await violations(page), []);
  await page.getByLabel("Offset or range").fill("9999GiB");
  await page.getByRole("button", { name: "Why?", exact: true }).click();
  await page.getByText("beyond the volume's end").waitFor();
  await page.getByText("The same as a table").click();
  await page.locator(".heat-table tbody tr").nth(8).waitFor();
  await page.locator(".heat-table tbody tr", { hasText: "shop.orders" }).first().waitFor();
  await page.getByText("A scan passed here 12 s ago", { exact: false }).waitFor();
  // Whose the places are.
  await page.getByRole("button", { name: "Objects", exact: true }).click();
  await page.locator(".heat-legend li", { hasText: "shop.orders" }).waitFor();
  await page.locator(".heat-legend li", { hasText: "2 others" }).waitFor();
  await map.hover({ position: { x: 100, y: 10 } });
  await page.locator(".heat-foot", { hasText: "most of it shop." }).waitFor();
  await page.locator(".heat").screenshot({ path: join(process.env["SHOTS"]!, "map-objects.png") });
  assert.deepEqual(await violations(page), []);
  await watched.done();
});

/** What is written into canvases from now on: each label with the box that it takes. Runs in the page. */
const LABELS = `(() => {
  const of = CanvasRenderingContext2D.prototype;
  const { clearRect, fillText } = of;
  of.clearRect = function (...box) {
    this.canvas.labels = [];
    return clearRect.apply(this, box);
  };
  of.fillText = function (text, x, y) {
    const { width } = this.measureText(text);
    const left = this.textAlign === "right" ? x - width : x - width / 2;
    const top = this.textBaseline === "middle" ? y - 5 : y;
    this.canvas.labels.push({ text, left, right: left + width, top, bottom: top + 10 });
    this.canvas.dataset.labels = this.canvas.labels.length;
    return fillText.call(this, text, x, y);
  };
})()`;

interface Label {
  text: string;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

test("charts of the overview have axes with units, and tell of which time they are", { skip }, async () => {
  for (const width of [1400, 400]) {
    const watched = await open(here, "#/", { width, height: 800 });
    const { page } = watched;
    await live(page);
    await page.evaluate(LABELS);
    const row = page.getByRole("row", { name: /^archive / });
    await row.scrollIntoViewIfNeeded();
    const canvases = row.locator("canvas");
    for (let at = 0; at < 3; at += 1) await canvases.nth(at).and(page.locator("[data-labels]")).waitFor();
    const charts = (await page.evaluate("[...document.querySelectorAll('.volumes tbody tr:first-child canvas')].map((one) => ({ labels: one.labels, wide: one.clientWidth, high: one.clientHeight, foot: one.getBoundingClientRect().bottom }))")) as { labels: Label[]; wide: number; high: number; foot: number }[];
    const units = [/^[\d\s.]+(\sk)?$/, /^\d+\s%$/, /^\d+\s(µs|ms|s)$/];
    for (const [at, { labels, wide, high }] of charts.entries()) {
      const times = labels.filter(({ text }) => /^\d\d[:-]\d\d$/.test(text));
      const values = labels.filter((label) => !times.includes(label));
      assert.ok(times.length >= 1 && values.length >= 2, `${width}: ${labels.map(({ text }) => text).join(", ")}`);
      for (const { text } of values) assert.match(text, units[at]!);
      for (const label of labels) assert.ok(label.left >= 0 && label.right <= wide && label.top >= 0 && label.bottom <= high, `${width}: ${JSON.stringify(label)} in ${wide} by ${high}`);
      const meet = (a: Label, b: Label): boolean => a !== b && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      assert.deepEqual(labels.filter((one) => labels.some((other) => meet(one, other))), [], `labels over each other at ${width}`);
    }
    assert.ok(charts.every(({ foot }) => Math.abs(foot - charts[0]!.foot) < 1), "they stand in line");
    if (width === 1400) assert.deepEqual(await page.locator(".volumes thead th.c-spark").allInnerTexts().then((texts) => texts.map((text) => text.replace(/\s+/g, " "))), ["IOPS last 5 min", "Hit rate last 5 min", "Latency last 5 min"]);
    else assert.deepEqual(await page.evaluate("[...document.querySelectorAll('.volumes tbody tr:first-child td.c-spark')].map((one) => getComputedStyle(one, '::before').content)"), ['"IOPS, 5 min"', '"Hit rate, 5 min"', '"Latency, 5 min"']);
    await watched.done();
  }
});

test("the dirtiest volume is at the top after one click, and its name stands in the totals", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  await page.waitForTimeout(1500);
  await page.getByRole("button", { name: "Dirty" }).click();
  const first = await page.locator(".volumes tbody th a").first().innerText();
  await page.locator(".figure", { hasText: "Dirty" }).getByRole("link", { name: first }).waitFor();
  await page.getByRole("searchbox").fill("write-around");
  assert.deepEqual(await page.locator(".volumes tbody th a").allInnerTexts(), ["archive"]);
  await page.getByRole("searchbox").fill("zzz");
  await page.getByRole("button", { name: "Show all" }).click();
  assert.equal(await page.locator(".volumes tbody tr").count(), 6);
  await watched.done();
});

test("removal asks for the name and tells what happens", { skip }, async () => {
  const watched = await open(here, "#/volume/scratch");
  const { page } = watched;
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByRole("button", { name: "Remove it" }).isDisabled(), true);
  await dialog.getByRole("textbox").fill("scratch");
  await dialog.getByRole("button", { name: "Remove it" }).click();
  await page.getByRole("article", { name: "Removal of scratch" }).getByText("done").waitFor();
  await page.goto(`${here.base}#/`);
  await page.locator(".volumes").filter({ hasNotText: "scratch" }).waitFor();
  // On a slow machine a look at its counters may be under way when the volume goes.
  await watched.done(/status of 404/);
});

test("a warm-up says what it reads, refuses a range that makes no sense, and is a job", { skip }, async () => {
  const watched = await open(here, "#/volume/vm-images");
  const { page } = watched;
  await page.getByRole("button", { name: "Warm up", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("1 TiB are read from").waitFor();
  await dialog.getByRole("textbox").fill("10GiB-5GiB");
  assert.equal(await dialog.getByRole("button", { name: "Read it into the cache" }).isDisabled(), true);
  await dialog.getByRole("textbox").fill("0-5GiB");
  await dialog.getByText("5 GiB are read from").waitFor();
  await dialog.getByRole("button", { name: "Read it into the cache" }).click();
  await page.getByRole("article", { name: "Warm-up of vm-images" }).first().getByText("running").waitFor();
  await watched.done();
});

test("a disk that was changed is accepted only after it is said what that does", { skip }, async () => {
  const watched = await open(here, "#/volume/backup");
  const { page } = watched;
  await page.getByText("its backing device /dev/sdh is missing", { exact: false }).first().waitFor();
  await page.getByRole("button", { name: "Accept the disk" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("will be written over what is on the disk now", { exact: false }).waitFor();
  await dialog.getByRole("button", { name: "Accept the disk" }).click();
  await dialog.waitFor({ state: "detached" });
  await watched.done();
});

test("a pool: its check, what is made of content, another SSD", { skip }, async () => {
  const watched = await open(here, "#/pool/fast");
  const { page } = watched;
  await page.getByRole("button", { name: "Check", exact: true }).click();
  await page.getByRole("article", { name: "Check of fast" }).getByText("running").waitFor();
  await page.getByRole("button", { name: "Change content" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("dense", { exact: true }).click();
  await dialog.getByText("It applies to blocks stored from now on", { exact: false }).waitFor();
  await dialog.getByRole("button", { name: "Change to dense" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.locator("#content .chip", { hasText: "dense" }).waitFor();

  await page.getByRole("button", { name: "Replace the SSD" }).click();
  const replace = dialog.getByRole("button", { name: "Replace the SSD" });
  assert.equal(await replace.isDisabled(), true, "no SSD is named yet");
  await dialog.getByPlaceholder("/dev/nvme1n1").fill("/dev/nvme1n1");
  await replace.click();
  // The disk is not empty: refused until it is said that what is there may go.
  await dialog.getByText('ext4 file system "old-data"', { exact: false }).waitFor();
  await dialog.getByText("Destroy what is on the new SSD").click();
  await dialog.getByText("Everything on /dev/nvme1n1 is destroyed.").waitFor();
  assert.deepEqual(await violations(page), []);
  await shot(page, "pool-replace", false);
  await replace.click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("article", { name: "Replacement of the SSD of fast" }).getByText("done").waitFor();
  await page.locator(".page-sub code", { hasText: "/dev/nvme1n1" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Destroy", exact: true }).isDisabled(), true, "it has volumes");
  await watched.done(/409/);
});

test("how full the slots of a pool are, and which policy is followed", { skip }, async () => {
  const pool = here.mock!.world.pools.get("fast")!;
  const flash = pool.flash;
  pool.spare = { percent: 10, reason: "as asked for", not_discarded: null };
  pool.write_amplification = 1.08;
  pool.flash = { kept_part: 0.9, estimates: [{ own_spare_percent: 28, even: 1.86, skewed: 2.15 }, { own_spare_percent: 7, even: 3.29, skewed: 3.6 }], note: null };
  const watched = await open(here, "#/pool/fast");
  const { page } = watched;
  const slots = page.locator("#slots");
  await slots.getByText("95.8 %").waitFor();
  const wear = page.locator("#wear");
  await wear.getByText("as asked for").waitFor();
  await wear.getByText("1.9 to 2.2").waitFor();
  await wear.getByText("3.3 to 3.6").waitFor();
  assert.equal(await slots.getByRole("row").count(), 7, "six policies and their heads");
  await slots.getByRole("row", { name: "B in 3 of 4 shards 18.7 %" }).waitFor();
  await slots.getByText(/changed 3 times, last 8\.11.M accesses ago/).waitFor();
  await slots.getByRole("row", { name: "F – not known yet" }).waitFor();
  assert.deepEqual(await violations(page), []);
  await slots.scrollIntoViewIfNeeded();
  await shot(page, "pool-slots", false);
  Object.assign(pool, { spare: null, write_amplification: null, flash });
  await watched.done();
});

test("a disk beside the cache: made, shared, resized and removed with the words of the command line", { skip }, async () => {
  const watched = await open(here, "#/pool/fast");
  const { page } = watched;
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Make a disk" }).click();
  const make = dialog.getByRole("button", { name: "Make it" });
  assert.equal(await make.isDisabled(), true, "it has neither name nor size");
  await dialog.getByLabel("Name of the disk").fill("plain");
  await dialog.getByLabel("Size of the disk").fill("900GiB");
  await make.click();
  await dialog.getByText("more of disks at most", { exact: false }).waitFor();
  await dialog.getByLabel("Size of the disk").fill("20GiB");
  await dialog.getByText("Block device", { exact: true }).waitFor();
  await dialog.getByText("NBD on a Unix socket", { exact: true }).click();
  await dialog.getByText("the cache goes on in what is left", { exact: false }).waitFor();
  assert.deepEqual(await violations(page), []);
  await shot(page, "disk-make", false);
  await make.click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("article", { name: "Change of the room for disks of fast" }).getByText("done").waitFor();
  const disk = page.getByRole("region", { name: "Disk plain" });
  await disk.getByText("20 GiB", { exact: false }).waitFor();
  await disk.getByText("/dev/hearth/plain", { exact: true }).first().waitFor();
  await disk.getByText("nbd+unix:///plain", { exact: false }).first().waitFor();

  await disk.getByRole("button", { name: "Share it: plain" }).click();
  await dialog.getByRole("button", { name: "Share it" }).click();
  await dialog.waitFor({ state: "detached" });
  await disk.getByText("iqn.2003-01.org.linux-iscsi.hearth:22222222", { exact: false }).first().waitFor();

  await disk.getByRole("button", { name: "Resize plain" }).click();
  await dialog.getByLabel("New size", { exact: false }).fill("8GiB");
  const resize = dialog.getByRole("button", { name: "Resize it" });
  assert.equal(await resize.isDisabled(), true, "what lies behind the new end is lost");
  await dialog.getByText("Lose what lies behind the new end").click();
  await resize.click();
  await dialog.waitFor({ state: "detached" });
  await disk.getByRole("heading", { name: "8 GiB", exact: false }).waitFor();

  await disk.getByRole("button", { name: "Remove plain" }).click();
  await dialog.getByRole("textbox").fill("plain");
  await dialog.getByRole("button", { name: "Remove it" }).click();
  await dialog.getByText("it is shared by iSCSI", { exact: false }).waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await disk.getByRole("button", { name: "Remove the share by iSCSI" }).click();
  await dialog.getByRole("button", { name: "Remove the share" }).click();
  await dialog.waitFor({ state: "detached" });
  await disk.getByRole("button", { name: "Remove plain" }).click();
  await dialog.getByRole("textbox").fill("plain");
  await dialog.getByRole("button", { name: "Remove it" }).click();
  await disk.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Give room back to the cache" }).click();
  await page.getByRole("article", { name: "Change of the room for disks of fast" }).first().getByText("done").waitFor();
  await watched.done(/409/);
});
