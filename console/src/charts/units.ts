/** What charts measure: how a value is told, in a legend and at an axis, and which scale it has. */

import { bytes, bytesPerSecond, count, digits, microseconds, NB, percent } from "../format";
import type { Scale } from "./scale";

export type Unit = "ratio" | "us" | "per_second" | "bytes" | "bytes_s";

export const FORMATS: Record<Unit, (value: number) => string> = {
  ratio: percent,
  us: microseconds,
  per_second: (value) => `${count(value)}/s`,
  bytes,
  bytes_s: bytesPerSecond,
};

/** Beside a line of the axis, where a chart's title says what is counted in a second. */
export const AXIS: Record<Unit, (value: number) => string> = {
  ...FORMATS,
  ratio: (value) => `${digits(value * 100)}${NB}%`,
  per_second: count,
};

export const SCALES: Record<Unit, Scale> = {
  ratio: "share",
  us: "decades",
  per_second: "plain",
  bytes: "bytes",
  bytes_s: "bytes",
};
