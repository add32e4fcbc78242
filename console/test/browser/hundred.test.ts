/** A hundred volumes: how soon they are seen, and what a second costs. Figures are told, and kept within wide bounds. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { live, MOCK_ONLY as skip, open, shot, stage, violations, type Stage } from "./harness";

let here: Stage;
before(async () => void (here = await stage({ volumes: 100 })));
after(() => here.close());

test("a hundred volumes are seen at once and cost little each second", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  await page.locator(".volumes tbody tr").nth(99).waitFor({ state: "attached" });
  const paint = (await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")) as number;
  await page.waitForTimeout(3000);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const measure = async (): Promise<Record<string, number>> => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map((metric) => [metric.name, metric.value]));
  const first = await measure();
  await page.waitForTimeout(10_000);
  const last = await measure();
  const each = (name: string): number => ((last[name]! - first[name]!) / 10) * 1000;
  console.log(`first paint after ${paint.toFixed(0)} ms; each second costs ${each("TaskDuration").toFixed(1)} ms of the page's thread (scripts ${each("ScriptDuration").toFixed(1)}, layout ${(each("LayoutDuration") + each("RecalcStyleDuration")).toFixed(1)}), heap ${(last["JSHeapUsedSize"]! / 2 ** 20).toFixed(1)} MiB`);
  assert.ok(each("TaskDuration") < 400, "the page must leave its thread mostly idle");
  await shot(page, "hundred", false);
  // All rows are told, also those that cannot be seen.
  const untold = (await page.locator(".volumes tbody td.c-dirty .num").allInnerTexts()).filter((text) => text === "–");
  assert.deepEqual(untold, []);
  await page.getByRole("searchbox").fill("vol-09");
  assert.equal(await page.locator(".volumes tbody tr").count(), 10);
  assert.deepEqual(await violations(page), []);
  await watched.done();
});
