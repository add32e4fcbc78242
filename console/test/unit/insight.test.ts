/** The arithmetic and the words of advice. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { AdvicePoint, AdviceView, TargetView } from "../../src/api";
import {
  axis,
  firstSize,
  moved,
  placeOf,
  pointAt,
  pointsOf,
  sizeAt,
  ticks,
  tried,
} from "../../src/charts/curve";
import { trialTime } from "../../src/insight/start-trial";
import { href, parse, title } from "../../src/route";
import {
  away,
  follows,
  gain,
  hits,
  nothingTold,
  notYet,
  restsOn,
  sample,
  share,
  toldAt,
  windowTold,
} from "../../src/words/insight";

const GIB = 2 ** 30;
const plain = (text: string): string => text.replace(/[\u00a0\u202f]/g, " ");
const point = (gib: number, hits_percent: number): AdvicePoint => ({
  ssd_bytes: gib * GIB,
  hits_percent,
  hits_percent_low: hits_percent - 2,
  hits_percent_high: hits_percent + 2,
  read_us: 8100 - 80 * hits_percent,
  ssd_written_bytes_per_day: gib * GIB,
});
const told = (hits_percent: number, gib: number): TargetView => ({
  hits_percent,
  ssd_bytes: gib * GIB,
  ssd_bytes_low: gib * GIB * 0.9,
  ssd_bytes_high: gib * GIB * 1.1,
  read_us: 900,
  ssd_written_bytes_per_day: GIB,
  not_yet: null,
  more_ms: null,
});
const untold = (hits_percent: number, not_yet: string, more_ms: number | null): TargetView => ({
  ...told(hits_percent, 1),
  ssd_bytes: null,
  ssd_bytes_low: null,
  ssd_bytes_high: null,
  not_yet,
  more_ms,
});
const curve = [point(1, 40), point(4, 60), point(16, 90), point(64, 97)];
const advice: AdviceView = {
  id: 1,
  name: "db",
  pool: "fast",
  window_ms: 41 * 60_000,
  with_backups: false,
  scanned_bytes: 308 * GIB,
  targets: [told(50, 2), told(90, 16), untold(99, "too few", 5000)],
  curve,
  now: point(8, 75),
  more: [point(12, 82.5), point(108, 97)],
  ram_bytes: 0,
  stored_share: 1.5,
  content_factor: 1.4,
  ram_us: 12,
  ssd_us: null,
  backing_us: 8100,
  objects: [],
  sentences: [],
};

test("time that nobody watched is told", () => {
  assert.equal(away({ away_ms: 0 }), "");
  const note = away({ away_ms: 2 * 3600 * 1000 });
  assert.ok(plain(note).startsWith("but for 2 h"), note);
  assert.ok(note.endsWith("did not watch; "), note);
});

test("hits between sizes that were tried lie between theirs, and never beyond the ends", () => {
  const half = pointAt(curve, 2 * GIB);
  assert.deepEqual(
    [half.hits_percent, half.hits_percent_low, half.hits_percent_high],
    [50, 48, 52],
  );
  assert.equal(plain(follows(half)), "reads take 4.1 ms, 2.5 GiB a day would be written to the SSD");
  const unknown = curve.map((one, index) => (index === 1 ? { ...one, read_us: null } : one));
  assert.match(plain(follows(pointAt(unknown, 2 * GIB))), /^[0-9.]+ GiB a day/);
  for (const one of curve)
    assert.equal(pointAt(curve, one.ssd_bytes).hits_percent, one.hits_percent);
  assert.deepEqual(pointAt(curve, 1), curve[0]);
  assert.deepEqual(pointAt(curve, 1e15), curve[3]);
  assert.equal(
    pointAt([point(4, 50), point(4, 60)], 4 * GIB).hits_percent,
    60,
    "two of one size are no division by zero",
  );
});

test("a size that is marked is told the same by the curve", () => {
  const points = pointsOf(advice);
  assert.deepEqual(
    points.map((one) => one.ssd_bytes / GIB),
    [1, 4, 8, 12, 16, 64],
  );
  assert.deepEqual(pointAt(points, 8 * GIB), advice.now);
  assert.deepEqual(pointsOf({ ...advice, now: point(4, 61), more: [] })[1], point(4, 61));
  assert.deepEqual(pointsOf({ ...advice, now: null, more: [] }), curve);
  const odd = { ...advice, curve: [point(0, 40), ...curve], now: null };
  assert.deepEqual(
    [pointsOf(odd), axis(odd)],
    [curve, tried(curve)],
    "no place for a size of nothing",
  );
  assert.deepEqual(pointsOf({ ...advice, curve: [] }), []);
});

test("the axis holds all that is marked, and ticks are powers of two", () => {
  const ends = axis(advice);
  assert.deepEqual(ends, { low: GIB, high: 108 * GIB });
  assert.deepEqual([placeOf(ends.low, ends), placeOf(ends.high, ends)], [0, 1]);
  assert.ok(Math.abs(sizeAt(placeOf(5 * GIB, ends), ends) - 5 * GIB) < 1);
  assert.equal(placeOf(GIB, { low: GIB, high: GIB }), 0.5);
  assert.deepEqual(
    ticks(ends, 9).map((tick) => tick / GIB),
    [1, 2, 4, 8, 16, 32, 64],
  );
  assert.deepEqual(
    ticks(ends, 4).map((tick) => tick / GIB),
    [1, 4, 16, 64],
  );
  for (const most of [1, 2, 3, 5])
    assert.ok(ticks({ low: 3 * 2 ** 20, high: 2 ** 44 }, most).length <= most, String(most));
});

test("keys move the size within what was tried, and other keys do nothing", () => {
  const ends = tried(curve);
  assert.equal(moved("PageUp", 8 * GIB, ends), 16 * GIB);
  assert.equal(moved("PageDown", 1.5 * GIB, ends), GIB);
  assert.deepEqual(
    [moved("Home", 8 * GIB, ends), moved("End", 8 * GIB, ends)],
    [ends.low, ends.high],
  );
  let size = 8 * GIB;
  for (let presses = 0; presses < 8; presses += 1) size = moved("ArrowRight", size, ends)!;
  assert.ok(Math.abs(size / (16 * GIB) - 1) < 1e-9);
  assert.equal(moved("Tab", GIB, ends), null);
  assert.equal(moved("toString", GIB, ends), null);
});

test("the marker begins on what there is, else on what 90 % take, else in the middle", () => {
  assert.equal(firstSize(advice), 8 * GIB);
  assert.equal(firstSize({ ...advice, now: null }), 16 * GIB);
  assert.equal(Math.round(firstSize({ ...advice, now: null, targets: [] }) / GIB), 8);
  assert.equal(
    firstSize({ ...advice, now: point(500, 99) }),
    64 * GIB,
    "what there is may be larger than all that was tried",
  );
});

test("a size is told with its hits and band, and against what there is", () => {
  assert.equal(plain(toldAt(point(12, 87))), "12 GiB: 87 % hits (band 85 to 89)");
  assert.deepEqual([99.46, 100, 0.4, 0, 98.6, 99].map(hits), [
    "99.5",
    "100",
    "0.4",
    "0",
    "99",
    "99",
  ]);
  assert.equal(plain(gain(point(108, 82), point(8, 75))), "+100 GiB = +7 %");
  assert.equal(plain(gain(point(4, 60), point(8, 75))), "−4 GiB = −15 %");
  assert.deepEqual(
    [90, 99.9].map((percent) => plain(share(told(percent, 1)))),
    ["90 %", "99.9 %"],
  );
});

test("what is not known yet is told once for each reason, with the longest wait", () => {
  const lines = notYet([
    told(50, 1),
    untold(90, "the time watched is too short", null),
    untold(99, "the time watched is too short", 9000),
    untold(99.9, "too few", null),
  ]);
  assert.deepEqual(
    lines.map((line) => ({ ...line, shares: plain(line.shares) })),
    [
      { shares: "90 %, 99 %", why: "the time watched is too short", more_ms: 9000 },
      { shares: "99.9 %", why: "too few", more_ms: null },
    ],
  );
  assert.deepEqual(notYet([told(50, 1)]), []);
  const nothing = { ...advice, curve: [], targets: [untold(50, "too few", null)] };
  assert.equal(nothingTold(nothing), true);
  assert.equal(nothingTold({ ...nothing, targets: [told(50, 0)] }), false, "RAM alone does it");
  assert.equal(nothingTold(advice), false);
});

test("the window, the sample and what figures rest on are in words", () => {
  assert.equal(plain(windowTold(advice)), "41 min watched, without scans and backups (308 GiB)");
  assert.equal(
    plain(windowTold({ ...advice, with_backups: true })),
    "41 min watched, scans and backups let in",
  );
  assert.equal(plain(windowTold({ ...advice, scanned_bytes: 0 })), "41 min watched");
  assert.equal(
    plain(windowTold({ ...advice, scanned_bytes: 0, ram_bytes: 4 * GIB })),
    "41 min watched, beside 4 GiB of RAM",
  );
  assert.deepEqual([1, 0.5, 1 / 64].map(sample), ["all", "1 in 2", "1 in 64"]);
  const rests = restsOn(advice, "write-back").map(plain);
  assert.deepEqual(rests.slice(2), [
    "Writes are taken as in write-back.",
    "1 GiB of SSD holds 1.5 GiB of data, 1.4 times as much by content as without.",
    "Measured here, reads are answered by RAM in 12 µs, the disk in 8.1 ms.",
  ]);
  assert.equal(
    restsOn({ ...advice, ram_us: null, backing_us: null, content_factor: null }, "write-back")
      .length,
    4,
  );
});

test("a trial's time may be left out, and keeps the daemon's bounds", () => {
  assert.equal(trialTime(" ").value, null);
  assert.equal(trialTime("24h").value, 86_400_000);
  for (const text of ["500ms", "745h", "soon"]) assert.ok(trialTime(text).problem, text);
});

test("advice has an address for each load", () => {
  for (const route of [
    { page: "advice" },
    { page: "advice", name: "a b" },
    { page: "analysis", name: "trial" },
  ] as const)
    assert.deepEqual(parse(href(route)), route);
  assert.equal(parse("#/analysis").page, "unknown");
  assert.equal(title({ page: "advice", name: "db" }), "Advice for db");
});
