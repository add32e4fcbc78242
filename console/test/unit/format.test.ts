import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../src/format";

const plain = (text: string): string => text.replace(/[\u00a0\u202f]/g, " ");

test("bytes keep three digits and go up at 1024", () => {
  const cases: [number, string][] = [
    [0, "0 B"], [1, "1 B"], [1023, "1023 B"], [1024, "1 KiB"], [1536, "1.5 KiB"], [65_536, "64 KiB"], [1_048_575, "1 MiB"],
    [1.5 * 2 ** 30, "1.5 GiB"], [999 * 2 ** 30, "999 GiB"], [1023 * 2 ** 30, "1 023 GiB"], [2 ** 60, "1 EiB"],
  ];
  for (const [value, text] of cases) assert.equal(plain(format.bytes(value)), text);
});

test("times take the unit that reads best", () => {
  assert.equal(plain(format.microseconds(42)), "42 µs");
  assert.equal(plain(format.microseconds(1500)), "1.5 ms");
  assert.equal(plain(format.microseconds(2_500_000)), "2.5 s");
  assert.equal(plain(format.span(0.5)), "500 ms");
  assert.equal(plain(format.span(59.7)), "1 min");
  assert.equal(plain(format.span(90)), "1 min 30 s");
  assert.equal(plain(format.span(3600)), "1 h");
  assert.equal(plain(format.span(3599.9)), "1 h");
  assert.equal(plain(format.span(86_400 * 2 + 3600 * 5)), "2 d 5 h");
  assert.equal(plain(format.span(31_557_600 * 3)), "3 y");
});

test("parts near the ends do not round to them", () => {
  assert.equal(plain(format.percent(0)), "0 %");
  assert.equal(plain(format.percent(1)), "100 %");
  assert.equal(plain(format.percent(0.9995)), "> 99.9 %");
  assert.equal(plain(format.percent(0.0002)), "< 0.1 %");
  assert.equal(plain(format.percent(0.934)), "93.4 %");
});

test("counts", () => {
  assert.equal(plain(format.count(0.25)), "0.25");
  assert.equal(plain(format.count(1234)), "1 234");
  assert.equal(plain(format.count(12_340)), "12.3 k");
  assert.equal(plain(format.count(4_500_000)), "4.5 M");
  assert.equal(plain(format.counted(1, "volume")), "1 volume");
  assert.equal(plain(format.counted(0, "volume")), "0 volumes");
});
