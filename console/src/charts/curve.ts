/** The arithmetic of a curve of hits over SSD bytes: between its points, on a logarithmic axis. */

import type { AdvicePoint, AdviceView } from "../api";

export interface Ends {
  low: number;
  high: number;
}

/** What is marked: the SSD that there is, and more of it. */
export const marksOf = ({ now, more }: AdviceView): AdvicePoint[] => (now ? [now, ...more] : []);

/**
 * The points of the curve, and among them those that are marked: what is told of one size is the
 * same everywhere. A size of nothing has no place on the axis.
 */
export function pointsOf(advice: AdviceView): AdvicePoint[] {
  const curve = advice.curve.filter((point) => point.ssd_bytes > 0);
  if (curve.length === 0) return [];
  const { low, high } = tried(curve);
  const marked = marksOf(advice).filter(
    (point) => point.ssd_bytes >= low && point.ssd_bytes <= high,
  );
  const others = curve.filter(
    (point) => !marked.some((mark) => mark.ssd_bytes === point.ssd_bytes),
  );
  return [...others, ...marked].sort((a, b) => a.ssd_bytes - b.ssd_bytes);
}

/** A point of any curve over sizes. */
interface Sized {
  ssd_bytes: number;
}

/** The sizes that were tried: nothing is told outside of them. */
export const tried = (curve: Sized[]): Ends => ({
  low: curve[0]!.ssd_bytes,
  high: curve[curve.length - 1]!.ssd_bytes,
});

/** What the axis shows: the curve, and all that is marked on it. */
export function axis(advice: AdviceView): Ends {
  const sizes = [...pointsOf(advice), ...marksOf(advice)].map((point) => point.ssd_bytes);
  return { low: Math.min(...sizes), high: Math.max(...sizes) };
}

/** A figure at a size, between the points that were tried; at their ends for sizes beyond. */
export function between<P extends Sized>(curve: P[], ssd_bytes: number, of: (point: P) => number): number {
  const { low, high } = tried(curve);
  const size = Math.min(high, Math.max(low, ssd_bytes));
  const index = Math.max(
    1,
    curve.findIndex((point) => point.ssd_bytes >= size),
  );
  const before = curve[index - 1]!;
  const after = curve[index] ?? before;
  const width = Math.log(after.ssd_bytes / before.ssd_bytes);
  const part = width > 0 ? Math.log(size / before.ssd_bytes) / width : 1;
  return of(before) + (of(after) - of(before)) * part;
}

/** Hits at a size, with their band. */
export function pointAt(curve: AdvicePoint[], ssd_bytes: number): AdvicePoint {
  const { low, high } = tried(curve);
  return {
    ssd_bytes: Math.min(high, Math.max(low, ssd_bytes)),
    hits_percent: between(curve, ssd_bytes, (point) => point.hits_percent),
    hits_percent_low: between(curve, ssd_bytes, (point) => point.hits_percent_low),
    hits_percent_high: between(curve, ssd_bytes, (point) => point.hits_percent_high),
    read_us: known(curve, ssd_bytes, (point) => point.read_us),
    ssd_written_bytes_per_day: known(curve, ssd_bytes, (point) => point.ssd_written_bytes_per_day),
  };
}

/** The same for a figure that is null where it is unknown; one unknown point makes it unknown. */
function known(
  curve: AdvicePoint[],
  ssd_bytes: number,
  of: (point: AdvicePoint) => number | null,
): number | null {
  const value = between(curve, ssd_bytes, (point) => of(point) ?? NaN);
  return Number.isNaN(value) ? null : value;
}

/** Where a size lies on the axis, from 0 to 1. */
export function placeOf(ssd_bytes: number, { low, high }: Ends): number {
  return high > low ? Math.log(ssd_bytes / low) / Math.log(high / low) : 0.5;
}

/** The size at a place of the axis. */
export const sizeAt = (place: number, { low, high }: Ends): number => low * (high / low) ** place;

/** Powers of two on the axis, at most `most`. */
export function ticks({ low, high }: Ends, most: number): number[] {
  const first = Math.ceil(Math.log2(low));
  const last = Math.floor(Math.log2(high));
  const step = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, most)));
  const found = [];
  for (let power = Math.ceil(first / step) * step; power <= last; power += step)
    found.push(2 ** power);
  return found;
}

/** Arrow keys move by an eighth of a doubling, page keys by a doubling. */
const STEPS: Record<string, number> = {
  ArrowLeft: -1 / 8,
  ArrowDown: -1 / 8,
  ArrowRight: 1 / 8,
  ArrowUp: 1 / 8,
  PageDown: -1,
  PageUp: 1,
  Home: -Infinity,
  End: Infinity,
};

/** Where a key moves a size to, within the sizes that were tried; null: the key moves nothing. */
export function moved(key: string, ssd_bytes: number, { low, high }: Ends): number | null {
  const step = STEPS[key];
  return typeof step !== "number" ? null : Math.min(high, Math.max(low, ssd_bytes * 2 ** step));
}

/** Where the marker stands at first: on what there is, or on what 90 % take, or in the middle. */
export function firstSize(advice: AdviceView): number {
  const ends = tried(pointsOf(advice));
  const wanted =
    advice.now?.ssd_bytes ??
    advice.targets.find((target) => target.hits_percent === 90)?.ssd_bytes ??
    sizeAt(0.5, ends);
  return Math.min(ends.high, Math.max(ends.low, wanted));
}
