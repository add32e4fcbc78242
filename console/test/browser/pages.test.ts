/** Every page: opens without complaint, is accessible in light and dark, and fits a phone. Screenshots of each. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { live, open, shot, stage, violations, type Stage } from "./harness";

let here: Stage;
const pages: [string, string][] = [["overview", "#/"], ["pools", "#/pools"], ["jobs", "#/jobs"], ["events", "#/events"], ["setup", "#/setup"], ["advice", "#/advice"], ["apps", "#/apps"], ["access", "#/access"]];

before(async () => {
  here = await stage();
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  const volume = page.locator(".volumes tbody th a").filter({ hasText: here.mock ? /^db$/ : /./ }).first();
  // An empty daemon has no volume and no pool to look at.
  if ((await volume.count()) > 0) {
    const address = (await volume.getAttribute("href"))!;
    pages.push(["volume", address], ["analysis", address.replace("volume", "analysis")]);
  }
  await page.goto(`${here.base}#/apps`);
  await page.getByRole("heading", { name: "Applications" }).waitFor();
  // The mock has some; of a daemon's volumes nothing may be known.
  const object = page.locator(".branch th a").first();
  if (here.mock) await object.waitFor();
  if ((await object.count()) > 0) pages.push(["object", (await object.getAttribute("href"))!]);
  await page.goto(`${here.base}#/pools`);
  await page.getByRole("heading", { name: "Pools" }).waitFor();
  const pool = page.locator(".cards h2 a").first();
  if ((await pool.count()) > 0) pages.push(["pool", (await pool.getAttribute("href"))!]);
  await watched.done();
});
after(() => here.close());

for (const scheme of ["light", "dark"] as const) {
  test(`every page opens, is accessible and is shot in ${scheme}`, async () => {
    assert.ok(!here.mock || pages.length === 12);
    for (const [name, hash] of pages) {
      const watched = await open(here, hash, { scheme });
      const { page } = watched;
      await live(page);
      // Two samples: charts and figures are there.
      await page.waitForTimeout(2200);
      assert.match(await page.title(), /· hearth$/);
      assert.equal(await page.locator("html").getAttribute("data-theme"), scheme);
      await shot(page, `${name}-${scheme}`);
      assert.deepEqual(await violations(page), [], `${name} in ${scheme}`);
      await watched.done();
    }
  });
}

test("every page fits a phone of 360 by 740", async () => {
  for (const [name, hash] of pages) {
    const watched = await open(here, hash, { width: 360, height: 740 });
    const { page } = watched;
    await live(page);
    await page.waitForTimeout(1500);
    await shot(page, `${name}-phone-top`, false);
    await shot(page, `${name}-phone`);
    const [wide, shown] = (await page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")) as [number, number];
    assert.ok(wide <= shown, `${name} is ${wide} wide on a screen of ${shown}`);
    assert.deepEqual(await violations(page), [], `${name} on a phone`);
    await watched.done();
  }
});

/** Headers that are larger than what is in them, or smaller, or beyond the screen, in words. Runs in the page. */
const MISSHAPEN = `(() => {
  const wrong = [];
  const screen = document.documentElement.clientWidth;
  for (const header of document.querySelectorAll(".side, .page-head, .panel-head, .job-head, .reason-head, .card h2, .heat-head, thead")) {
    const box = header.getBoundingClientRect();
    if (box.width === 0) continue;
    const name = header.className + " " + header.innerText.slice(0, 30);
    const style = getComputedStyle(header);
    const parts = [...header.children].filter((part) => getComputedStyle(part).position !== "fixed").map((part) => part.getBoundingClientRect()).filter((part) => part.height > 0);
    if (parts.length === 0) continue;
    const content = Math.max(...parts.map((part) => part.bottom)) - Math.min(...parts.map((part) => part.top));
    const edges = ["paddingTop", "paddingBottom", "borderTopWidth", "borderBottomWidth"].reduce((sum, edge) => sum + parseFloat(style[edge]), 0);
    const most = Math.max(content + edges, parseFloat(style.minHeight) || 0);
    if (box.height > most + 1) wrong.push(name + ": " + box.height + " high around " + content);
    if (box.left < 0 || box.right > screen) wrong.push(name + ": from " + box.left + " to " + box.right + " on a screen of " + screen);
    for (const part of parts) if (part.left < box.left - 1 || part.right > box.right + 1) wrong.push(name + ": a part from " + part.left + " to " + part.right);
  }
  // Words of the navigation do not run into each other.
  const words = [...document.querySelectorAll(".side nav a")].map((link) => [link, link.querySelector("span")]);
  for (const [link, word] of words) if (word.getBoundingClientRect().width > link.getBoundingClientRect().width + 0.5) wrong.push("navigation: " + word.innerText);
  // Only in dialogs and forms a button is as wide as what it is in.
  for (const button of document.querySelectorAll(".panel > .button")) {
    const text = document.createRange();
    text.selectNodeContents(button);
    if (button.getBoundingClientRect().width > text.getBoundingClientRect().width + 40) wrong.push("button: " + button.innerText);
  }
  return wrong;
})()`;

test("on a screen of 400 pixels headers are as large as what is in them, and nothing scrolls sideways", async () => {
  for (const [name, hash] of pages) {
    const watched = await open(here, hash, { width: 400, height: 800 });
    const { page } = watched;
    await live(page);
    const [wide, shown] = (await page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")) as [number, number];
    assert.ok(wide <= shown, `${name} is ${wide} wide on a screen of ${shown}`);
    assert.deepEqual(await page.evaluate(MISSHAPEN), [], name);
    await shot(page, `${name}-400`);
    await watched.done();
  }
});

test("the theme that is chosen is remembered, and an unknown page says so", async () => {
  const watched = await open(here);
  const { page } = watched;
  await page.getByRole("button", { name: "Dark" }).click();
  assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
  await page.reload();
  await page.locator("main h1").waitFor();
  assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
  await page.goto(`${here.base}#/nowhere`);
  await page.getByText("There is no such page").waitFor();
  await page.goto(`${here.base}#/volume/nobody`);
  await page.getByRole("heading", { name: "There is no volume nobody" }).waitFor();
  await watched.done();
});
