/** The arithmetic of charts over time: which values an axis shows, and where its lines are. */

export type Ends = [low: number, high: number];

export type Scale = "share" | "decades" | "bytes" | "plain";

/** What the value axis shows: all of the values; a logarithmic one whole powers of ten. */
export function valueEnds(scale: Scale, values: Iterable<number>): Ends {
  if (scale === "share") return [0, 1];
  let low = Infinity;
  let high = 0;
  for (const value of values) {
    if (value > high) high = value;
    if (value > 0 && value < low) low = value;
  }
  if (scale !== "decades") return [0, high > 0 ? high * 1.08 : 1];
  if (high === 0) return [10, 1000];
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.001))];
}

/** Where a value lies between the ends, from 0 to 1. */
export const share = (scale: Scale, value: number, [low, high]: Ends): number =>
  scale === "decades" ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);

/** Lines of the value axis, at most `most` of them: powers of ten, powers of two, or round decimals. */
export function valueTicks(scale: Scale, [low, high]: Ends, most: number): number[] {
  const found = [];
  if (scale === "decades") {
    const last = Math.round(Math.log10(high));
    const first = Math.round(Math.log10(low));
    const step = Math.ceil((last - first + 1) / Math.max(most, 1));
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found;
  }
  const least = (high - low) / Math.max(most, 1);
  const step = scale === "bytes" ? 2 ** Math.max(0, Math.ceil(Math.log2(least))) : round(least);
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at += 1) found.push(at * step);
  return found;
}

/** The smallest of 1, 2, 2.5 and 5 times a power of ten that is not less. */
function round(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 2.5, 5, 10].find((times) => times * power >= least * (1 - 1e-9))!;
}

const HOUR = 3600;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 3, 7, 14].map((days) => days * DAY),
];
/** From here on steps are months. */
const MONTH = 28 * DAY;

/** Lines of the axis of time, at most `most` of them: on round times of day, midnights and first days of months, as clocks here have them. */
export function timeTicks([from, to]: Ends, most: number): { step: number; times: number[] } {
  const least = (to - from) / Math.max(most, 1);
  const found = STEPS.find((one) => one >= least);
  const step = found ?? Math.ceil(least / (31 * DAY)) * MONTH;
  const date = new Date(from * 1000);
  if (step < HOUR) date.setMinutes(0, 0, 0);
  else date.setHours(0, 0, 0, 0);
  if (step > DAY) date.setDate(1);
  if (found === undefined) date.setMonth(date.getMonth() - (date.getMonth() % (step / MONTH)));
  const times = [];
  while (date.getTime() <= to * 1000) {
    if (date.getTime() >= from * 1000) times.push(date.getTime() / 1000);
    if (step < HOUR) date.setTime(date.getTime() + step * 1000);
    else if (step < DAY) date.setHours(date.getHours() + step / HOUR);
    else if (found === undefined) date.setMonth(date.getMonth() + step / MONTH);
    else nextDay(date, step / DAY);
  }
  return { step, times };
}

/** So many days on; each month begins anew, and has no line close to its end. */
function nextDay(date: Date, days: number): void {
  const month = date.getMonth();
  date.setDate(date.getDate() + days);
  const rest = new Date(date);
  rest.setDate(date.getDate() + Math.floor(days / 2));
  if (rest.getMonth() !== month && days > 1) {
    date.setMonth(month + 1, 1);
  }
}

const two = (value: number): string => String(value).padStart(2, "0");

/** Midnights and coarser steps as dates, the rest as times of day. */
export function timeLabel(unix_s: number, step_s: number): string {
  const date = new Date(unix_s * 1000);
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  if (step_s >= MONTH) return `${date.getFullYear()}-${two(date.getMonth() + 1)}`;
  if (step_s >= DAY) return day;
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (midnight && step_s >= 60) return day;
  return `${two(date.getHours())}:${two(date.getMinutes())}${step_s < 60 ? `:${two(date.getSeconds())}` : ""}`;
}

/** The index of the time that is nearest; -1 of none. Times ascend. */
export function nearest(times: number[], time: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < time) low = middle + 1;
    else high = middle;
  }
  const after = times[low];
  const before = times[low - 1];
  if (after === undefined) return low - 1;
  return before !== undefined && time - before < after - time ? low - 1 : low;
}

/** The event nearest to a time and at most `near` seconds from it; of several as near, the one told last. */
export function nearestEvent<T extends { number: number; unix_s: number }>(events: readonly T[], time: number, near: number): T | undefined {
  let found: T | undefined;
  let least = near;
  for (const event of events) {
    const distance = Math.abs(event.unix_s - time);
    if (distance < least || (distance === least && event.number > (found?.number ?? -1))) [found, least] = [event, distance];
  }
  return found;
}
