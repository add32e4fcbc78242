/** From an empty daemon to a volume, and every way that can be refused. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { live, MOCK_ONLY as skip, open, shot, stage, violations, type Stage } from "./harness";

let here: Stage;
before(async () => void (here = await stage({ volumes: 0 })));
after(() => here.close());

test("an empty daemon leads to the setup; disks tell what they hold; destruction needs consent; errors leave the form", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  await page.getByRole("link", { name: "Set up the first volume" }).click();
  await page.getByRole("heading", { name: "Pick the SSD" }).waitFor();
  const next = page.getByRole("button", { name: "Next" });
  const path = page.getByLabel("Path", { exact: true });

  await next.click();
  await page.getByText("pick a disk, or name a file").waitFor();
  assert.equal(await page.locator(".device", { hasText: "mounted at /" }).getByRole("radio").isDisabled(), true);
  await page.getByText("KIOXIA").click();
  await page.getByText("\"old-data\" with 1.2 TiB in use").first().waitFor();
  await shot(page, "setup-ssd");
  assert.deepEqual(await violations(page), []);
  await next.click();

  await page.getByRole("heading", { name: "Pick the slow disk" }).waitFor();
  assert.equal(await page.locator(".device", { hasText: "chosen as the SSD" }).getByRole("radio").isDisabled(), true);
  await page.getByText("A file, or another path").click();
  await path.fill("/srv/missing.img");
  await next.click();
  await page.getByText("/srv/missing.img is not there.").waitFor();
  assert.equal(await path.inputValue(), "/srv/missing.img", "the form is as it was");
  await page.getByText("A disk or partition").click();
  await page.getByText("ST16000NM001G").click();
  await next.click();

  await page.getByRole("heading", { name: "Name it and choose how it works" }).waitFor();
  await page.getByLabel("Name of the volume").fill("refused");
  await page.getByText("write-back", { exact: true }).click();
  await shot(page, "setup-volume");
  await next.click();

  await page.getByRole("heading", { name: "Review" }).waitFor();
  await page.getByText("Destroyed:").waitFor();
  await page.getByRole("button", { name: "Do it" }).click();
  await page.getByText("agree to what is destroyed").waitFor();
  assert.equal(here.mock!.world.pools.size, 0, "nothing was done");
  await page.getByRole("checkbox").check();
  await shot(page, "setup-review");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Do it" }).click();
  await page.getByText(/is mounted at \/srv\/media\./).waitFor();
  await page.getByText("What to do: Unmount it first.").waitFor();
  await page.getByText("The pool was made and stays").waitFor();
  await shot(page, "setup-refused");

  await page.getByRole("button", { name: "Back", exact: true }).click();
  await page.getByLabel("Name of the volume").fill("media");
  await next.click();
  // The pool is there now: nothing is destroyed any more.
  await page.getByText("The pool fast caches the volume").waitFor();
  assert.equal(await page.getByRole("checkbox").count(), 0);
  await page.getByRole("button", { name: "Do it" }).click();
  await page.getByRole("heading", { name: "The volume media works" }).waitFor();
  await page.getByText("mount /dev/hearth/media /mnt").waitFor();
  await shot(page, "setup-done");
  assert.deepEqual(await violations(page), []);
  assert.equal(here.mock!.world.volumes.get("media")!.view.options.mode, "write-back");
  await page.getByRole("link", { name: "Look at media" }).click();
  await page.getByRole("heading", { name: /^media/ }).waitFor();
  await watched.done(/status of 40/);
});

test("a file that is not there is made, and a pool that is there is offered", { skip }, async () => {
  const watched = await open(here, "#/setup");
  const { page } = watched;
  const next = page.getByRole("button", { name: "Next" });
  const path = page.getByLabel("Path", { exact: true });
  await page.getByText("Use the pool fast").waitFor();
  await page.getByText("Make a new pool").click();
  await page.getByText("In a file, or another path").click();
  await path.fill("/srv/cache2.img");
  await page.getByLabel("Name of the pool").fill("second");
  await next.click();
  await page.getByText("Give its size, and a file of that size is made").waitFor();
  await page.getByLabel("Size", { exact: true }).fill("20GiB");
  await next.click();
  await page.getByText("A file, or another path").click();
  await path.fill("model:7k2:/srv/disk.img");
  await next.click();
  await page.getByLabel("Name of the volume").fill("again");
  await next.click();
  await page.getByText(/The file \/srv\/cache2\.img of 20\sGiB is made/).waitFor();
  await page.getByText("model:7k2:/srv/disk.img").first().waitFor();
  assert.equal(here.mock!.world.pools.has("second"), false, "nothing is done before the last word");
  await watched.done(/status of 404/);
});
