import assert from "node:assert/strict";
import { test } from "node:test";
import { nameProblem, range, size, sizeOrOff, time } from "../../src/parse";

const GIB = 2 ** 30;

// The same cases as in crates/device/src/size.rs: console and command line take the same.
test("sizes are powers of 1024, or those that disks are sold by", () => {
  const cases = [
    ["4096", 4096], ["64KiB", 65_536], ["64k", 65_536], [" 1.5 GiB ", 1.5 * GIB], ["0", 0],
    ["11.8GiB", 12_670_153_523], ["0.5k", 512], ["1.5GB", 1_500_000_000], ["10GB", 10_000_000_000], ["4KB", 4000],
  ] as const;
  for (const [text, value] of cases) assert.equal(size(text).value, value, text);
  for (const text of ["", "KiB", "-1", "1e3", "1.5", "1.5B", "4iB", "10 Gi B", "ten"]) assert.ok(size(text).problem, text);
  assert.ok(size("9999999PiB").problem);
  assert.equal(sizeOrOff("off").value, null);
});

test("times", () => {
  for (const [text, value] of [["30s", 30_000], ["500 ms", 500], ["5m", 300_000], ["5min", 300_000], ["1h", 3_600_000]] as const) assert.equal(time(text).value, value);
  for (const text of ["", "30", "s", "1d"]) assert.ok(time(text).problem, text);
});

test("an offset is one block, a range ends before its end", () => {
  assert.deepEqual(range("10GiB", 100 * GIB).value, { start_bytes: 10 * GIB, end_bytes: 10 * GIB + 4096 });
  assert.deepEqual(range("1GiB-2GiB", 100 * GIB).value, { start_bytes: GIB, end_bytes: 2 * GIB });
  assert.deepEqual(range("1GiB – 200GiB", 100 * GIB).value, { start_bytes: GIB, end_bytes: 100 * GIB });
  for (const text of ["", "1GiB-", "2GiB-1GiB", "100GiB", "1-2-3", "here"]) assert.ok(range(text, 100 * GIB).problem, text);
});

test("names are those that the daemon takes", () => {
  for (const name of ["db", "vm-images_2.raw", "a".repeat(64)]) assert.equal(nameProblem(name), undefined);
  for (const name of ["", "-x", ".x", "a b", "ä", "a/b", "a".repeat(65)]) assert.ok(nameProblem(name), name);
});
