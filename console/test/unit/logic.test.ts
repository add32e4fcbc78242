import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeviceView, VolumeSample } from "../../src/api";
import { cellLength, cellsFor, grid, between, warmth } from "../../src/charts/heat-paint";
import { poolValue, volumeValue } from "../../src/charts/history";
import { ends, Window } from "../../src/charts/window";
import { flashRange, perDay, ratedBytes, readRating, RATING_DEFAULT, writeStreams, yearsLeft } from "../../src/pool/endurance";
import { href, loginCode, parse } from "../../src/route";
import { FRESH, poolBody, problems, review, shareBody, volumeBody, type Plan } from "../../src/setup/plan";
import { exportsOf, offerProblems } from "../../src/words/offer";
import { treeOf } from "../../src/setup/devices";
import { address } from "../../src/rest";
import { exact } from "../../src/volume/why";

test("routes are read as they are written", () => {
  for (const route of [{ page: "overview" }, { page: "volume", name: "a/b c" }, { page: "pool", name: "fast" }, { page: "jobs" }, { page: "access" }, { page: "setup" }] as const) assert.deepEqual(parse(href(route)), route);
  for (const hash of ["#/nowhere", "#/volume", "#/jobs/3", "#/volume/a/b"]) assert.equal(parse(hash).page, "unknown", hash);
  assert.equal(parse("#/volume/%E0%A4%A").page, "volume");
  assert.equal(loginCode("#code=abc-1"), "abc-1");
  assert.equal(parse("#code=abc-1").page, "overview");
  assert.equal(loginCode("#/jobs"), null);
});

test("addresses are encoded", () => assert.equal(address("/history", { name: "a&b", points: 5, none: undefined }), "/api/v1/history?name=a%26b&points=5"));

test("a zoomed window stays, is never shorter than ten seconds, and goes back to what moved", () => {
  const window = new Window(3600);
  window.zoom(1000, 1001);
  assert.deepEqual(ends(window.span.value), [995.5, 1005.5]);
  window.zoom(998, 1003);
  window.reset();
  assert.deepEqual(window.span.value, { kind: "last", seconds: 3600 });
  window.scale(0.5);
  const [from, to] = ends(window.span.value);
  assert.ok(Math.abs(to - from - 1800) < 1 && to <= Date.now() / 1000 + 1);
  window.move(1);
  assert.ok(ends(window.span.value)[1] <= Date.now() / 1000 + 1, "not into the future");
});

test("series of samples are found by the history's names", () => {
  const sample = { reads_s: 5, hit_ratio: null, outcomes_s: { ram_hit: 3 }, bypassed_s: { size: 1, sequential: 2 }, latency: { miss: { count: 2, mean_us: 1, p50_us: 2, p99_us: 3 } }, baseline_us: 9 } as unknown as VolumeSample;
  const read = (series: string): number | null => volumeValue(series, sample);
  assert.deepEqual(["reads_s", "hit_ratio", "ram_hit_s", "ssd_hit_s", "bypassed_s", "miss_p99_us", "miss_mean_us", "all_p50_us", "baseline_us"].map(read), [5, null, 3, 0, 3, 3, 1, null, 9]);
  assert.equal(poolValue("nothing", {} as never), null);
});

test("a range of estimated flash writes begins with the lower figure", () => {
  assert.equal(flashRange({ own_spare_percent: 28, even: 1.53, skewed: 1.77 }), "1.5 to 1.8");
  assert.equal(flashRange({ own_spare_percent: 7, even: 7.85, skewed: 7.47 }), "7.5 to 7.9");
  assert.equal(flashRange({ own_spare_percent: 7, even: 1, skewed: 1 }), "1");
});

test("write streams are those in use, or say why there are none", () => {
  assert.equal(writeStreams({ announced: 8, uses: ["ring", "fills"], refused: null }), "Write streams: 2 (ring, fills).");
  assert.match(writeStreams({ announced: 8, uses: [], refused: "Invalid argument" }), /none, .* \(Invalid argument\)/);
});

test("endurance by either measure", () => {
  assert.equal(ratedBytes({ ...RATING_DEFAULT, unit: "TBW", value: 600 }, 1), 600e12);
  assert.equal(ratedBytes({ unit: "DWPD", value: 1, years: 5, written_tb: 0 }, 1e12), 1825e12);
  assert.equal(Math.round(yearsLeft({ unit: "TBW", value: 600, years: 5, written_tb: 100 }, 1, 500e12 / 365.25)!), 1);
  assert.equal(yearsLeft(RATING_DEFAULT, 1, 0), null);
  assert.equal(yearsLeft({ ...RATING_DEFAULT, value: 600, written_tb: 900 }, 1, 1), 0);
  assert.equal(yearsLeft(RATING_DEFAULT, 1e12, 1e9), null, "nobody has entered a rating");
  assert.deepEqual(perDay({ step_s: 60, from_unix_s: 0, series: { x: [null, 10, 30, null] } }, "x"), { bytes: 20 * 86_400, known_s: 120 });
  assert.equal(perDay({ step_s: 60, from_unix_s: 0, series: { x: [null] } }, "x"), null);
  assert.deepEqual(readRating("{broken"), RATING_DEFAULT);
  assert.deepEqual(readRating('{"unit":"TBW","value":-1,"years":5,"written_tb":0}'), RATING_DEFAULT);
});

test("the heat map's cells fit and the last one is shorter", () => {
  for (const width of [320, 900, 1400]) {
    const shape = grid(width, cellsFor(width));
    assert.ok(shape.columns * shape.side <= width && shape.columns * shape.rows >= cellsFor(width) && cellsFor(width) <= 16_384);
  }
  const map = { volume: "v", start_bytes: 0, cell_bytes: 100, heat: [], cached_bytes: [], dirty_bytes: [], age_ms: 0, counted_part: 1, object: [], objects: [] };
  assert.deepEqual([cellLength(map, 0, 250), cellLength(map, 2, 250)], [100, 50]);
  assert.equal(between(["#000000", "#ffffff"], 0.5), "rgb(128,128,128)");
  assert.ok(warmth(10, 1000) > 0.3 && warmth(0, 1000) === 0 && warmth(1000, 1000) === 1);
});

test("offsets are written so that nothing is lost", () => assert.deepEqual([0, 4096, 2 ** 30, 2 ** 30 + 512, 3 * 2 ** 20].map(exact), ["0", "4KiB", "1GiB", "1073742336", "3MiB"]));

const disk = (rest: Partial<DeviceView>): DeviceView => ({ path: "/dev/sda", stable_path: null, kind: "disk", parent: null, size_bytes: 2 ** 40, model: null, rotational: true, read_only: false, state: "foreign", summary: "has ext4", destroys: "an ext4 file system is lost", can_be_ssd: true, can_be_backing: true, ...rest });

test("a new volume is shared as it was asked for, and not with everybody by accident", () => {
  const plan: Plan = { ...FRESH, name: "data", ssdDevice: disk({}), backingDevice: disk({ path: "/dev/sdb" }) };
  assert.equal(shareBody(plan), null);
  const shared: Plan = { ...plan, share: "iscsi", shareAddresses: "192.0.2.1", shareInitiators: "iqn.a:b, iqn.c:d" };
  assert.deepEqual(problems(shared, 2, [], []), {});
  assert.deepEqual(shareBody(shared), { protocol: "iscsi", addresses: ["192.0.2.1"], initiators: ["iqn.a:b", "iqn.c:d"] });
  assert.ok(review(shared).some((line) => line.text.includes("shared by iSCSI at 192.0.2.1 with iqn.a:b and iqn.c:d")));
  assert.deepEqual(Object.keys(problems({ ...shared, shareInitiators: "" }, 2, [], [])), ["shareInitiators"]);
  assert.deepEqual(problems({ ...shared, shareAddresses: "127.0.0.1 [::1]:3260", shareInitiators: "" }, 2, [], []), {});
  assert.deepEqual(Object.keys(problems({ ...shared, block: false, nbd: true }, 2, [], [])), ["share"]);
});

test("nothing is destroyed without consent, and the review names it", () => {
  const plan: Plan = { ...FRESH, ssdDevice: disk({}), backingDevice: disk({ path: "/dev/sdb" }), name: "data", nbdPort: "10809" };
  assert.ok(problems(plan, 3, [], [])["agreed"]);
  assert.equal(poolBody(plan)!.force, false);
  const agreed = { ...plan, agreed: true };
  assert.deepEqual(problems(agreed, 3, [], []), {});
  assert.equal(poolBody(agreed)!.force, true);
  assert.ok(review(agreed).some((line) => line.grave && line.text.includes("ext4")));
  assert.deepEqual(volumeBody(agreed), { name: "data", pool: "fast", backing: "/dev/sdb", exports: ["block", "nbd:127.0.0.1:10809"], options: { mode: "write-through" } });
  const existing = { ...agreed, pool: "old" };
  assert.equal(poolBody(existing), null);
  assert.ok(!review(existing).some((line) => line.grave));
});

test("each step says what it lacks", () => {
  assert.deepEqual(Object.keys(problems(FRESH, 0, [], [])), ["ssd"]);
  assert.deepEqual(Object.keys(problems({ ...FRESH, ssdBy: "file", ssdPath: "x", ssdSize: "much", ram: "", poolName: "" }, 0, [], [])), ["poolName", "ram", "ssd", "ssdSize"]);
  assert.deepEqual(Object.keys(problems(FRESH, 1, [], [])), ["backing"]);
  const same = { ...FRESH, ssdDevice: disk({}), backingDevice: disk({}) };
  assert.match(problems(same, 1, [], [])["backing"]!, /that is the SSD/);
  assert.deepEqual(Object.keys(problems({ ...FRESH, name: "data", block: false, nbdPort: "70000", tlsAddress: "0.0.0.0" }, 2, [], ["data"])), ["name", "nbdPort", "tlsAddress"]);
  assert.deepEqual(exportsOf({ ...FRESH, tlsAddress: "[::]:10809" }), ["block", "nbds:[::]:10809"]);
});

test("partitions stand below their disk", () => {
  const list = treeOf([disk({ path: "/dev/sda1", parent: "/dev/sda" }), disk({}), disk({ path: "/dev/loop1", parent: "/dev/gone" })]);
  assert.deepEqual(list.map(({ device, under }) => [device.path, under]), [["/dev/sda", false], ["/dev/sda1", true], ["/dev/loop1", false]]);
});

test("how something is offered becomes the words of the command line, and what is wrong is said", () => {
  const none = { block: false, vhostUser: false, nbd: false, nbdPort: "", tlsAddress: "" };
  assert.deepEqual(exportsOf(none), []);
  assert.deepEqual(exportsOf({ block: true, vhostUser: true, nbd: true, nbdPort: " 10809 ", tlsAddress: "0.0.0.0:10810" }), ["block", "vhost-user", "nbd", "nbd:127.0.0.1:10809", "nbds:0.0.0.0:10810"]);
  assert.deepEqual(offerProblems(none), {});
  assert.deepEqual(Object.keys(offerProblems({ ...none, nbdPort: "70000", tlsAddress: "store:1" })), ["nbdPort", "tlsAddress"]);
});
