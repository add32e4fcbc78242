/** Applications, objects and their policies, and advice that is applied. Over the mock, whose numbers are known. */

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { World } from "../../mock/world";
import { live, MOCK_ONLY as skip, open, openViewOnly, shot, stage, violations, type Stage } from "./harness";

let here: Stage;
before(async () => void (here = await stage()));
beforeEach(() => here.mock?.begin(new World(6)));
after(() => here.close());

test("applications by volume, with what has no name and why; one is looked at again", { skip }, async () => {
  const watched = await open(here);
  const { page } = watched;
  await live(page);
  await page.getByRole("link", { name: "Apps" }).click();
  const found = page.getByRole("region", { name: "Applications", exact: true });
  await found.getByRole("row", { name: /^MariaDB 10.11.6 db \/var\/lib\/mysql page content ?file map ?catalogue 2 11 / }).waitFor();
  await found.getByRole("row", { name: /^PostgreSQL vm-images in no known file system / }).waitFor();
  const looked = page.getByRole("region", { name: "Volumes that are looked at" });
  const row = (name: string) => looked.getByRole("row", { name: new RegExp(`^${name} `) });
  await row("vm-images").getByText("partly understood").waitFor();
  await row("vm-images").getByRole("cell", { name: /^23\s%$/ }).waitFor();
  await row("vm-images").getByText("2 regions").click();
  await row("vm-images").getByText("512GiB to 768GiB: an encrypted LUKS2 volume lies there").waitFor();
  await row("archive").getByText("8 reads of the backing device failed.").waitFor();
  await row("mail").getByText("waits for its turn").waitFor();
  assert.equal(await row("backup").count(), 0, "it does not run");
  await shot(page, "apps");
  assert.deepEqual(await violations(page), []);
  await page.getByRole("button", { name: "Look again at db" }).click();
  await row("db").getByText("being looked at").waitFor();
  assert.equal(await page.getByRole("button", { name: "Look again at db" }).isDisabled(), true);
  assert.equal([...here.mock!.world.jobs.values()].some((job) => job.kind === "discover" && job.volume === "db"), true);
  await row("db").getByText("all understood").waitFor({ timeout: 20_000 });
  await watched.done();
});

test("objects stand by database, below their tables, sorted and filtered", { skip }, async () => {
  const watched = await open(here, "#/apps/db/1");
  const { page } = watched;
  await live(page);
  const panel = page.getByRole("region", { name: "Objects of MariaDB 10.11.6 on db" });
  const names = async (): Promise<string[]> => panel.locator("tbody th").allInnerTexts();
  await panel.getByRole("row", { name: /^shop.orders\/PRIMARY index, in its table 30.5\sGiB 97\s% 4\sGiB – normal \(default\)$/ }).waitFor();
  assert.deepEqual((await names()).slice(0, 4), ["shop.orders", "shop.orders/PRIMARY", "shop.orders/ix_customer", "shop.items"]);
  await panel.getByRole("button", { name: "by size" }).click();
  await panel.locator("tbody tr").first().filter({ hasText: "shop.audit" }).waitFor();
  await panel.getByRole("button", { name: "by name" }).click();
  await panel.locator("summary").first().filter({ hasText: "mysql" }).waitFor();
  await panel.getByLabel("Filter").fill("orders");
  assert.deepEqual(await names(), ["shop.orders", "shop.orders/ix_customer", "shop.orders/PRIMARY"]);
  await panel.getByLabel("Filter").fill("nobody");
  await panel.getByText('Nothing here fits "nobody".').waitFor();
  await page.goto(`${here.base}#/apps/db/9`);
  await page.getByText("There is no application of the number 9 on db.").waitFor();
  await watched.done();
});

test("a policy is set, refused and taken back, with what the daemon says of it", { skip }, async () => {
  const watched = await open(here, "#/object/db/101");
  const { page } = watched;
  await live(page);
  const { policies, objects } = here.mock!.world;
  const set = page.getByRole("button", { name: "Set", exact: true });
  const back = page.getByRole("button", { name: "Back to the default" });
  await page.getByRole("heading", { name: "shop.orders/PRIMARY" }).waitFor();
  await page.getByText("/var/lib/mysql/shop/orders").waitFor();
  assert.deepEqual([await set.isDisabled(), await back.isDisabled()], [true, true], "nothing differs");
  await page.getByText("Writes go to the backing device, and not into the cache.").click();
  await set.click();
  await page.getByText("In force for 1 object, 0 B.").waitFor();
  await page.getByText("Writes to them wait for the backing device, whatever the volume's mode.").waitFor();
  await page.getByText("normal, writes around", { exact: true }).waitFor();
  assert.deepEqual(policies, [{ volume: "db", application: "1", objects: ["101"], writes: "around" }]);
  await shot(page, "object");
  assert.deepEqual(await violations(page), []);
  await back.click();
  await page.getByText("Rules taken away for 1 object").waitFor();
  await page.getByText("normal (default)", { exact: true }).waitFor();
  assert.deepEqual(policies[1], { volume: "db", application: "1", objects: ["101"], reset: true });
  await page.getByText("for all of the kind index of this application").click();
  await page.getByText("Its blocks do not enter the cache.").click();
  await set.click();
  await page.getByText("In force for 4 objects").waitFor();
  assert.deepEqual(objects.filter((one) => one.admit === "never" && one.volume === "db").map((one) => one.kind).sort(), ["doublewrite", "index", "index", "index", "index", "redo"]);
  await page.goto(`${here.base}#/object/db/105`);
  await page.getByRole("heading", { name: "shop.audit" }).waitFor();
  await page.getByText("Its blocks stay on the SSD once they are there", { exact: false }).click();
  await set.click();
  await page.getByText("the pool \"fast\" keeps at most 30 GiB of pinned objects", { exact: false }).waitFor();
  await page.getByText("What to do: Pin fewer or smaller objects, or give the pool a larger SSD.").waitFor();
  assert.equal(await page.getByRole("radio", { name: /^pinned/ }).isChecked(), true, "the answer stays as it was");
  assert.equal(objects.find((one) => one.id === 105)!.admit, "normal");
  // What it takes to read an object is told before; what its policy keeps out cannot be read.
  await page.getByRole("button", { name: "Preload" }).click();
  const preload = page.getByRole("dialog");
  await preload.getByText(/^45(\.0)?\sGiB in \d+\spieces of db enter the cache/).waitFor();
  await preload.getByLabel("At most (empty: all of it)").fill("some");
  await preload.getByRole("button", { name: "Read it into the cache", disabled: true }).waitFor();
  await preload.getByLabel("At most (empty: all of it)").fill("2GiB");
  await shot(page, "object-preload", false);
  await preload.getByText(/^2(\.00)?\sGiB in/).waitFor();
  assert.deepEqual(await violations(page), []);
  await preload.getByRole("button", { name: "Read it into the cache" }).click();
  await page.getByText("Preload of shop.audit has begun").waitFor();
  assert.ok([...here.mock!.world.jobs.values()].some((job) => job.kind === "preload" && job.volume === "db"));
  await page.goto(`${here.base}#/object/db/999`);
  await page.getByRole("heading", { name: "There is no object 999 on db" }).waitFor();
  // Browsers complain of every refused call.
  await watched.done(/status of 40[49]/);
});

test("advice tells what objects bring, is applied after its changes were shown, and verified", { skip }, async () => {
  const watched = await open(here, "#/advice/db");
  const { page } = watched;
  await live(page);
  const brought = page.getByRole("region", { name: "What objects bring" });
  await brought.getByRole("row", { name: /^shop.orders\/PRIMARY index 60\s% 54\s% 7.62\sGiB cache it$/ }).waitFor();
  await brought.getByRole("row", { name: /^shop.audit\/PRIMARY index .* keep it out$/ }).waitFor();
  await page.getByRole("button", { name: "Apply" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("shop.audit/PRIMARY is not let into the cache: 9.3 % of the reads, 0 % of the hits.").waitFor();
  await dialog.getByText("puts the pool on another SSD while clients go on", { exact: false }).waitFor();
  assert.equal(here.mock!.world.policies.length, 0, "a dry run changes nothing");
  await shot(page, "advice-apply", false);
  assert.deepEqual(await violations(page), []);
  await dialog.getByRole("button", { name: "Apply it" }).click();
  await page.getByText("Advice 7 is applied").waitFor();
  assert.equal(here.mock!.world.policies.length, 1);
  await page.getByRole("button", { name: "Verify" }).click();
  const outcome = page.getByRole("region", { name: "Forecast and outcome" });
  await outcome.getByText("The forecast holds.").waitFor();
  await outcome.getByText(/^band 93 to 95\s%$/).waitFor();
  await outcome.getByText(/^1.2\spoints too high$/).waitFor();
  await shot(page, "advice-verified");
  await brought.getByRole("link", { name: "shop.audit/PRIMARY" }).click();
  await page.getByText("never", { exact: true }).first().waitFor();
  await page.goto(`${here.base}#/volume/db`);
  await page.getByLabel("Offset or range").fill("1GiB");
  await page.getByRole("button", { name: "Why?" }).click();
  await page.getByText("Block 7039 of shop.orders/PRIMARY (index of InnoDB).").waitFor();
  await watched.done();
});

test("who may only look sees policies, and cannot change them", { skip }, async () => {
  const closed = await stage({ auth: true });
  const watched = await openViewOnly(closed);
  const { page } = watched;
  await page.getByRole("link", { name: "Apps" }).click();
  assert.equal(await page.getByRole("button", { name: "Look again at db" }).isDisabled(), true);
  await page.getByRole("link", { name: "shop.orders/PRIMARY" }).click();
  await page.getByRole("heading", { name: "Policy" }).waitFor();
  for (const name of ["Set", "Back to the default"]) assert.equal(await page.getByRole("button", { name, exact: true }).isDisabled(), true);
  assert.equal(await page.getByRole("radio", { name: /^never/ }).isDisabled(), true);
  await watched.done();
  await closed.close();
});
