/** Advice, trials and streams. Over the mock, whose numbers are known. */

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { World } from "../../mock/world";
import { live, MOCK_ONLY as skip, open, openViewOnly, shot, stage, violations, type Stage } from "./harness";

let here: Stage;
before(async () => void (here = await stage()));
beforeEach(() => here.mock?.begin(new World(6)));
after(() => here.close());

test(
  "the curve is moved by keys and by dragging, and tells hits with their band",
  { skip },
  async () => {
    const watched = await open(here, "#/advice/db");
    const { page } = watched;
    await live(page);
    const slider = page.getByRole("slider");
    await slider.waitFor();
    const told = page.locator(".curve-told strong");
    const tells = (text: RegExp): Promise<void> => told.filter({ hasText: text }).waitFor();
    await tells(/^128\sGiB: 94\s% hits \(band 93 to 95\)$/);
    await page.locator(".curve-mark", { hasText: /^now: 128\sGiB, 94\s%$/ }).waitFor();
    await page.locator(".curve-mark", { hasText: /^\+100\sGiB = \+\d\s%$/ }).waitFor();
    await slider.focus();
    await page.keyboard.press("PageDown");
    await tells(/^64\sGiB: /);
    assert.equal(await slider.getAttribute("aria-valuetext"), await told.innerText());
    await page.locator(".curve-told", { hasText: /against now: −64\sGiB = −\d+\s%/ }).waitFor();
    await page.keyboard.press("Home");
    await tells(/^15.4\sGiB: /);
    const box = (await slider.boundingBox())!;
    await page.mouse.move(box.x + box.width * 0.2, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.99, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    // Not beyond what was tried.
    await tells(/^1.46\sTiB: /);
    await page.mouse.move(box.x + box.width * 0.2, box.y + box.height / 2);
    assert.match(await told.innerText(), /^1.46\sTiB: /, "only while it is held");
    await page
      .getByRole("row", { name: /^90 %/ })
      .first()
      .getByText(/TB|GiB/)
      .first()
      .waitFor();
    await page.getByRole("switch").check();
    await page.getByText("scans and backups let in").waitFor();
    assert.deepEqual(here.mock!.world.asked, [
      { name: "db", with_backups: false },
      { name: "db", with_backups: true },
    ]);
    await shot(page, "advice-with-backups");
    assert.deepEqual(await violations(page), []);
    // What was told a moment ago is not asked for again.
    await page.getByRole("switch").uncheck();
    await page.getByText("without scans and backups (223").waitFor();
    assert.equal(here.mock!.world.asked.length, 2);
    await watched.done();
  },
);

test(
  "what cannot be told yet says what is missing, and is asked for again after 30 seconds",
  { skip },
  async () => {
    const watched = await open(here);
    const { page } = watched;
    await live(page);
    await page.clock.install();
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByRole("link", { name: "mail", exact: true }).click();
    await page.getByRole("heading", { name: "Nothing can be told yet" }).waitFor();
    await page
      .getByText("1234 of 20000 reads of blocks that were used before; about 22 min more.")
      .waitFor();
    const asked = (): number => here.mock!.world.asked.filter((ask) => ask.name === "mail").length;
    assert.equal(asked(), 1);
    // A daemon that says nothing for seconds is taken for lost: samples come between the steps.
    const pass = async (seconds: number): Promise<void> => {
      for (let gone = 0; gone < seconds; gone += 5) {
        await page.clock.runFor(5000);
        await new Promise((resolve) => setTimeout(resolve, 1100));
      }
    };
    await pass(20);
    assert.equal(asked(), 1);
    await pass(10);
    for (let tries = 0; asked() < 2 && tries < 2400; tries += 1)
      await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(asked(), 2);
    await shot(page, "advice-not-yet");
    assert.deepEqual(await violations(page), []);
    await page.getByRole("link", { name: "vm-images", exact: true }).click();
    await page.getByText("the working set still grows", { exact: false }).waitFor();
    assert.equal(
      await page.locator(".advice > .table-box:not(.tall) tbody tr").count(),
      2,
      "99 % is not known, 50 and 90 are",
    );
    await shot(page, "advice-partly");
    await page.getByRole("link", { name: "archive", exact: true }).click();
    await page.getByRole("row", { name: /^90 % none: RAM – 14 µs/ }).waitFor();
    assert.equal(await page.getByRole("slider").count(), 0);
    await watched.done();
  },
);

test(
  "a trial is started with what it means, printed, stopped and forgotten",
  { skip },
  async () => {
    const watched = await open(here, "#/advice");
    const { page } = watched;
    await live(page);
    await page.getByRole("button", { name: "Start a trial" }).click();
    const dialog = page.getByRole("dialog");
    const watch = dialog.getByRole("button", { name: "Watch it" });
    await dialog.getByLabel("Name of the trial").fill("db");
    await dialog.getByText("something is watched under this name").waitFor();
    await dialog.getByLabel("Name of the trial").fill("trial");
    assert.equal(await watch.isDisabled(), true, "no device is chosen");
    assert.equal(
      await dialog.locator(".device", { hasText: "/dev/sdb" }).getByRole("radio").isDisabled(),
      true,
      "hearth uses it",
    );
    await dialog.getByText("mounted at /").click();
    await dialog.getByLabel("For how long").fill("soon");
    assert.equal(await watch.isDisabled(), true);
    await dialog.getByLabel("For how long").fill("24h");
    await dialog
      .getByText("It ends by itself after 1 d, or when you stop it.", { exact: false })
      .waitFor();
    assert.deepEqual(await violations(page), []);
    await shot(page, "trial-dialog", false);
    await watch.click();
    await page.getByRole("heading", { name: /^trial/ }).waitFor();
    await page.getByText("watched from outside by bpf: nothing is written to it").waitFor();
    await page.getByRole("heading", { name: "What hearth would do here" }).waitFor();
    await page.getByRole("slider").waitFor();
    await page.getByRole("row", { name: /^backup read several objects in a row/ }).waitFor();
    await shot(page, "trial");
    await page.emulateMedia({ media: "print" });
    // The width of a sheet of A4 with its margins is a phone's, but paper has room for tables.
    await page.setViewportSize({ width: 718, height: 1000 });
    assert.equal(await page.locator(".side").isVisible(), false);
    assert.equal(await page.getByRole("columnheader", { name: "SSD needed" }).isVisible(), true);
    assert.equal(await page.getByRole("button", { name: "Print" }).isVisible(), false);
    await page.getByText(/^Printed \d{4}-/).waitFor();
    await shot(page, "trial-print");
    await page.emulateMedia({ media: "screen" });
    await page.setViewportSize({ width: 1400, height: 900 });
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await dialog.getByRole("button", { name: "Stop it" }).click();
    await page.locator("h1 .badge", { hasText: "ended" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Stop", exact: true }).count(), 0);
    await page.getByRole("button", { name: "Forget" }).click();
    await dialog.getByRole("button", { name: "Forget it" }).click();
    await page.getByRole("heading", { name: "What is watched" }).waitFor();
    assert.equal(await page.getByRole("link", { name: "trial", exact: true }).count(), 0);
    assert.equal(here.mock!.world.analyses.size, 0);
    await watched.done();
  },
);

test(
  "streams stand on the volume's page, and a volume that does not run has none",
  { skip },
  async () => {
    const watched = await open(here, "#/volume/db");
    const { page } = watched;
    await live(page);
    const panel = page.getByRole("region", { name: "Streams" });
    await panel
      .getByRole("row", {
        name: /^backup read several objects in a row – 98.1\sk 212\sGiB 0\sB 14\smin ago/,
      })
      .waitFor();
    await panel.screenshot({ path: `${process.env["SHOTS"]}/streams.png` });
    await panel.getByRole("link", { name: "how much SSD it needs" }).click();
    await page.getByRole("heading", { name: "How much SSD db needs" }).waitFor();
    await page.goto(`${here.base}#/volume/backup`);
    await page.getByText("It is not watched while it does not run.").waitFor();
    await watched.done();
  },
);

test(
  "who may only look sees what is watched, and why advice is not asked for",
  { skip },
  async () => {
    const closed = await stage({ auth: true });
    const watched = await openViewOnly(closed);
    const { page } = watched;
    await page.getByRole("link", { name: "Advice" }).click();
    await page.getByText("the role operate is needed to ask for it").waitFor();
    assert.equal(await page.getByRole("button", { name: "Start a trial" }).isDisabled(), true);
    assert.equal(closed.mock!.world.asked.length, 0);
    await watched.done();
    await closed.close();
  },
);
