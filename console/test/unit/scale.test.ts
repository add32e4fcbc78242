/** Axes of charts over time. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { paintAxes, type Axes } from "../../src/charts/axes";
import { nearest, nearestEvent, share, timeLabel, timeTicks, valueEnds, valueTicks } from "../../src/charts/scale";
import { AXIS, SCALES } from "../../src/charts/units";
import type { Colour } from "../../src/theme";

const unix = (...date: [number, number, number, number?, number?, number?]): number => new Date(date[0], date[1] - 1, ...(date.slice(2) as [number])).getTime() / 1000;
const labels = (from: number, to: number, most: number): string[] => {
  const { step, times } = timeTicks([from, to], most);
  return times.map((time) => timeLabel(time, step));
};

test("an axis of values shows all of them", () => {
  assert.deepEqual(valueEnds("share", [0.3]), [0, 1]);
  assert.deepEqual(valueEnds("plain", [3, 50, 7]), [0, 54]);
  assert.deepEqual([valueEnds("plain", []), valueEnds("bytes", [0])], [[0, 1], [0, 1]]);
  assert.deepEqual(valueEnds("decades", [36, 6310, 0]), [10, 10_000]);
  assert.deepEqual([valueEnds("decades", [100]), valueEnds("decades", [])], [[100, 1000], [10, 1000]]);
  assert.deepEqual([0, 25, 50].map((value) => share("plain", value, [0, 50])), [0, 0.5, 1]);
  assert.deepEqual([1, 10, 100, 1000].map((value) => Math.round(share("decades", value, [10, 1000]) * 100)), [0, 0, 50, 100], "none lies below the axis");
});

test("lines of values are round and few", () => {
  assert.deepEqual(valueTicks("share", [0, 1], 4.4), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(valueTicks("plain", [0, 5400], 4), [0, 2000, 4000]);
  assert.deepEqual(valueTicks("plain", [0, 1], 4), [0, 0.25, 0.5, 0.75, 1]);
  assert.deepEqual(valueTicks("bytes", [0, 1000], 4), [0, 256, 512, 768]);
  assert.deepEqual(valueTicks("decades", [10, 100_000], 5), [10, 100, 1000, 10_000, 100_000]);
  assert.deepEqual(valueTicks("decades", [10, 100_000], 3), [10, 1000, 100_000]);
  for (const high of [0.001, 0.7, 3, 17, 999, 123_456, 1e12]) {
    for (const scale of ["plain", "bytes"] as const) {
      const ticks = valueTicks(scale, [0, high], 4.4);
      assert.ok(ticks.length >= 1 && ticks.length <= 6 && ticks.at(-1)! <= high * 1.001, `${scale} ${high}: ${ticks.join(" ")}`);
    }
  }
});

test("lines of time are on round times of the clock here", () => {
  const noon = unix(2026, 3, 10, 12);
  assert.deepEqual(labels(noon - 10, noon + 300, 6), ["12:00", "12:01", "12:02", "12:03", "12:04", "12:05"]);
  assert.deepEqual(labels(noon + 3, noon + 33, 4), ["12:00:10", "12:00:20", "12:00:30"]);
  assert.deepEqual(labels(noon - 12 * 3600, noon + 12 * 3600, 8), ["03-10", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "03-11"]);
  assert.deepEqual(labels(noon, noon + 7 * 86_400, 8), ["03-11", "03-12", "03-13", "03-14", "03-15", "03-16", "03-17"]);
  assert.deepEqual(labels(unix(2026, 1, 20), unix(2026, 3, 20), 9), ["01-22", "02-01", "02-08", "02-15", "02-22", "03-01", "03-08", "03-15"]);
  assert.deepEqual(labels(unix(2025, 11, 15), unix(2026, 11, 14), 6), ["2026-01", "2026-03", "2026-05", "2026-07", "2026-09", "2026-11"]);
});

test("whatever the stretch, lines ascend, lie within it and do not crowd", () => {
  const from = unix(2026, 3, 28, 23, 17, 41);
  for (let length = 10; length < 370 * 86_400; length *= 1.37) {
    for (const most of [2.5, 5, 9, 20]) {
      const { times } = timeTicks([from, from + length], most);
      assert.ok(times.length <= most * 1.2 + 1, `${length} s: ${times.length} of ${most}`);
      assert.ok(times.every((time, index) => time >= from && time <= from + length && time > (times[index - 1] ?? 0)), `${length} s`);
    }
  }
});

test("the nearest time is found", () => {
  const times = [10, 20, 40];
  assert.deepEqual([0, 10, 14, 16, 29, 31, 99].map((time) => nearest(times, time)), [0, 0, 0, 1, 1, 2, 2]);
  assert.equal(nearest([], 5), -1);
});

test("of several events the nearest is told, and of those of one second the last", () => {
  const events = [100, 103, 103, 110].map((unix_s, number) => ({ number, unix_s }));
  const told = (time: number): number | undefined => nearestEvent(events, time, 4)?.number;
  assert.deepEqual([95, 96, 101, 102, 103, 107, 108].map(told), [undefined, 0, 0, 2, 2, 3, 3]);
  assert.equal(nearestEvent([...events].reverse(), 103, 4)?.number, 2);
});

/** What a canvas is told to write, and where. */
function written(times: [number, number], wide: number): { text: string; x: number; y: number }[] {
  const labels: { text: string; x: number; y: number }[] = [];
  const context = {
    beginPath() {}, setLineDash() {}, moveTo() {}, lineTo() {}, stroke() {},
    measureText: (text: string) => ({ width: text.length * 5 }),
    fillText: (text: string, x: number, y: number) => void labels.push({ text: text.replace(/[\u00a0\u202f]/g, " "), x, y }),
  } as unknown as CanvasRenderingContext2D;
  const axes: Axes = { scale: SCALES.us, values: [10, 10_000], times, told: AXIS.us, row: 15, label: 36, apart: [5, 4], inside: true };
  paintAxes(context, { left: 42, top: 6, wide, high: 32 }, axes, {} as Record<Colour, string>);
  return labels;
}

test("small charts have the axes of large ones: values with units at the left, times of the clock below, none beyond the plot", () => {
  const noon = unix(2026, 3, 10, 12);
  const labels = written([noon - 299, noon], 110);
  assert.deepEqual(labels.filter(({ y }) => y < 42).map(({ text, x }) => [text, x]), [["10 µs", 37], ["1 ms", 37]]);
  assert.deepEqual(labels.filter(({ y }) => y === 42).map(({ text }) => text), ["11:56", "11:58"], "12:00 would be cut off");
  // Whatever the second, times are told, and lie within the plot.
  for (let to = noon; to < noon + 300; to += 1) {
    for (const wide of [60, 69, 110, 150]) {
      const times = written([to - 299, to], wide).filter(({ y }) => y === 42).map(({ x }) => x);
      assert.ok(times.length > 0, `${wide} pixels, ${to - noon} s`);
      for (const [at, x] of times.entries()) assert.ok(x >= 42 + 12.5 && x <= 42 + wide - 12.5 && x - (times[at - 1] ?? 0) >= 25, `${wide} pixels, ${to - noon} s: ${x}`);
    }
  }
});
