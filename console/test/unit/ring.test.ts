import assert from "node:assert/strict";
import { test } from "node:test";
import { Ring, RING_SECONDS } from "../../src/live/ring";

const T = 1_700_000_000;
const read = (ring: Ring, name = "x"): number[] => [...ring.series(name, new Float64Array(RING_SECONDS))];

test("the newest value stands last, seconds without a sample are unknown", () => {
  const ring = new Ring();
  ring.put(T, { x: 1 });
  ring.put(T + 3, { x: 4 });
  assert.deepEqual(read(ring).slice(-5), [NaN, 1, NaN, NaN, 4]);
});

test("what is older than five minutes is forgotten, also after a long gap", () => {
  const ring = new Ring();
  for (let second = 0; second < RING_SECONDS + 10; second += 1) ring.put(T + second, { x: second });
  assert.equal(read(ring)[0], 10);
  ring.put(T + 5000, { x: 7 });
  assert.deepEqual(read(ring).filter((value) => !Number.isNaN(value)), [7]);
});

test("the past fills what is unknown and never what was seen", () => {
  const ring = new Ring();
  ring.put(T, { x: 100 });
  ring.fill("x", T - 4, 1, [1, null, 3, 4, 5]);
  assert.deepEqual(read(ring).slice(-5), [1, NaN, 3, 4, 100]);
});

test("coarse history covers all its seconds, and the future is left alone", () => {
  const ring = new Ring();
  ring.put(T, { x: 9 });
  ring.fill("x", T - 3, 2, [5, 6, 7]);
  assert.deepEqual(read(ring).slice(-4), [5, 5, 6, 9]);
});

test("the past may come before the first sample", () => {
  const ring = new Ring();
  ring.fill("x", T, 1, [1, 2, 3]);
  ring.put(T + 3, { x: 4 });
  assert.deepEqual(read(ring).slice(-4), [1, 2, 3, 4]);
});

test("a late sample of a past second does not move the ring", () => {
  const ring = new Ring();
  ring.put(T + 1, { x: 2 });
  ring.put(T, { x: 1 });
  assert.deepEqual(read(ring).slice(-2), [1, 2]);
  ring.put(T - RING_SECONDS, { x: 50 });
  assert.ok(!read(ring).includes(50));
});
