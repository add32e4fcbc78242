/** Logging in, losing the daemon, and finding it again. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { live, MOCK_ONLY as skip, open, shot, stage, violations, type Stage } from "./harness";

/** What a browser says of calls that must fail here. */
const EXPECTED = /Failed to load resource|net::ERR|status of 40/;
let here: Stage;
before(async () => void (here = await stage({ auth: true })));
after(() => here.close());

test("a token logs in; a wrong one is refused with what to do", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  assert.match(await page.title(), /^Log in/);
  assert.deepEqual(await violations(page), []);
  await shot(page, "login");
  await page.getByLabel("Token").fill("nonsense");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("The token is not known.").waitFor();
  await page.getByLabel("Token").fill("operate-token");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in to hearth" }).waitFor();
  await watched.done(EXPECTED);
});

test("a code in the address logs in and leaves the address bar", { skip }, async () => {
  const watched = await open(here, "#code=good-code");
  const { page } = watched;
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.ok(!page.url().includes("code"), page.url());
  await page.goBack();
  assert.ok(!page.url().includes("code"), "nor is it behind the back button");
  await watched.done();
});

test("a used code says so and asks for a token", { skip }, async () => {
  const watched = await open(here, "#code=used");
  await watched.page.getByText("The login address did not work").waitFor();
  await watched.page.getByText("Run hearth console again.").waitFor();
  await watched.done(EXPECTED);
});

test("who may only look finds every control disabled, with the reason", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await page.getByLabel("Token").fill("view-token");
  await page.keyboard.press("Enter");
  await page.getByText("You are logged in with the role view").waitFor();
  await page.goto(`${here.base}#/volume/db`);
  await page.getByRole("heading", { name: /^db/ }).waitFor();
  for (const name of ["Destage", "Warm up", "Remove"]) assert.equal(await page.getByRole("button", { name, exact: true }).isDisabled(), true, name);
  const settings = await page.locator(".setting button").all();
  assert.ok(settings.length > 8 && settings.length === (await page.locator(".setting").count()), `${settings.length} settings`);
  for (const button of settings) assert.equal(await button.isDisabled(), true);
  assert.match((await page.getByRole("button", { name: "Destage", exact: true }).getAttribute("title"))!, /role view/);
  await shot(page, "view-only", false);
  assert.deepEqual(await violations(page), []);
  await watched.done(EXPECTED);
});

test("the daemon goes and comes back: the page says both, and fetches everything again", { skip }, async () => {
  const watched = await open(here, "#code=good-code");
  const { page } = watched;
  await live(page);
  await page.waitForTimeout(1200);
  here.mock!.goDown();
  await page.getByText("Connection to the daemon lost — trying again.").waitFor();
  assert.equal(await page.locator(".frame.stale").count(), 1, "nothing is shown as live");
  await shot(page, "lost");
  assert.deepEqual(await violations(page), [], "lost");
  here.mock!.comeBack(false);
  await page.getByText("Connected again.").waitFor();
  assert.equal(await page.locator(".frame.stale").count(), 0);

  here.mock!.goDown();
  await page.getByText("Connection to the daemon lost").waitFor();
  here.mock!.comeBack(true);
  here.mock!.world.volumes.get("mail")!.view.backing = "/dev/other";
  await page.getByText("The daemon was restarted.").waitFor();
  await shot(page, "restarted", false);
  await page.goto(`${here.base}#/volume/mail`);
  await page.getByText("/dev/other").first().waitFor();
  await page.goto(`${here.base}#/events`);
  // Its events count from one again.
  await page.getByText("Brought back.").waitFor();
  assert.equal(await page.locator(".events li").count(), 1);
  await watched.done(EXPECTED);
});

test("a session that ended elsewhere leads to the login", { skip }, async () => {
  const watched = await open(here, "#code=good-code");
  const { page } = watched;
  await live(page);
  await page.context().clearCookies();
  here.mock!.goDown();
  await page.waitForTimeout(300);
  here.mock!.comeBack(false);
  await page.getByRole("heading", { name: "Log in to hearth" }).waitFor();
  await watched.done(EXPECTED);
});
