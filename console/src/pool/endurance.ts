/** What the writes of a day mean for an SSD's rated life. */

import type { HistoryView } from "../api";
import type { FlashEstimate, WriteStreams } from "../api-space";
import { digits } from "../format";

export interface Rating {
  unit: "TBW" | "DWPD";
  value: number;
  /** Of "DWPD": over how many years it is promised. */
  years: number;
  /** Terabytes written before, as the disk's own counter tells; 0 if unknown. */
  written_tb: number;
}

/** Nothing was entered: value 0. */
export const RATING_DEFAULT: Rating = { unit: "TBW", value: 0, years: 5, written_tb: 0 };

const TERABYTE = 1e12;
const DAY_S = 86_400;

/** Bytes that may be written in all. Makers count terabytes of 10^12. */
export function ratedBytes(rating: Rating, ssd_bytes: number): number {
  return rating.unit === "TBW" ? rating.value * TERABYTE : rating.value * ssd_bytes * rating.years * 365;
}

/** From even overwrites to skewed ones, or the other way round: the lower figure first. */
export function flashRange(estimate: FlashEstimate): string {
  const [low, high] = [Math.min(estimate.even, estimate.skewed), Math.max(estimate.even, estimate.skewed)].map((figure) => digits(Math.round(figure * 10) / 10));
  return low === high ? low! : `${low} to ${high}`;
}

/** Which write streams are in use, in words. */
export function writeStreams(streams: WriteStreams): string {
  if (streams.refused !== null) return `Write streams: none, since the SSD refused a write that named one (${streams.refused}).`;
  return `Write streams: ${streams.uses.length} (${streams.uses.join(", ")}).`;
}

/** Years until the rating is used up, at so many bytes a day; null if nothing is written, or no rating was entered. */
export function yearsLeft(rating: Rating, ssd_bytes: number, bytes_a_day: number): number | null {
  if (bytes_a_day <= 0 || ratedBytes(rating, ssd_bytes) <= 0) return null;
  return Math.max(0, ratedBytes(rating, ssd_bytes) - rating.written_tb * TERABYTE) / bytes_a_day / 365.25;
}

/** Bytes a day from a rate that is known for part of the time, and for how much of it; null if it is known nowhere. */
export function perDay(history: HistoryView, series: string): { bytes: number; known_s: number } | null {
  const known = (history.series[series] ?? []).filter((value): value is number => value !== null);
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return { bytes: mean * DAY_S, known_s: known.length * history.step_s };
}

/** What was remembered, if it makes sense. */
export function readRating(text: string | null): Rating {
  try {
    const read = JSON.parse(text ?? "null") as Partial<Rating> | null;
    const positive = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value) && value >= 0;
    if (read && (read.unit === "TBW" || read.unit === "DWPD") && positive(read.value) && positive(read.years) && positive(read.written_tb)) {
      return { unit: read.unit, value: read.value, years: read.years, written_tb: read.written_tb };
    }
  } catch {
    // Something else wrote there: as if nothing were remembered.
  }
  return RATING_DEFAULT;
}
