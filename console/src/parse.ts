/** What people type: sizes, times and ranges. Each function gives a value or a sentence that says what to write instead. */

export type Parsed<T> = { value: T; problem?: undefined } | { value?: undefined; problem: string };

const POWERS: Record<string, number> = { "": 0, k: 1, m: 2, g: 3, t: 4, p: 5, e: 6 };

/** "64KiB", "1.5 GiB", "4096", "10g": bytes. Units are powers of 1024; only KB, MB, GB and so on are powers of 1000. */
export function size(text: string): Parsed<number> {
  const match = /^\s*(\d+)(\.\d+)?\s*([kmgtpe]?)(i?b)?\s*$/i.exec(text);
  const unit = match?.[3]!.toLowerCase() ?? "";
  const parts = (match?.[2] ?? "") !== "";
  const tail = match?.[4]?.toLowerCase();
  if (!match || (unit === "" && (parts || tail === "ib"))) {
    return { problem: `"${text.trim()}" is not a size; write for instance 64KiB or 11.8GiB` };
  }
  const base = tail === "b" ? 1000 : 1024;
  const value = Math.floor(Number(match[1] + (match[2] ?? "")) * base ** POWERS[unit]!);
  if (value > Number.MAX_SAFE_INTEGER) return { problem: "that size is beyond what can be counted; write a smaller one" };
  return { value };
}

/** A size, or "off" (null). */
export function sizeOrOff(text: string): Parsed<number | null> {
  return /^\s*off\s*$/i.test(text) ? { value: null } : size(text);
}

const TIMES: Record<string, number> = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000 };

/** "30s", "500 ms", "5m": milliseconds. */
export function time(text: string): Parsed<number> {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)\s*$/i.exec(text);
  if (!match) return { problem: `"${text.trim()}" is not a time; write for instance 30s, 500ms or 5m` };
  return { value: Math.round(Number(match[1]) * TIMES[match[2]!.toLowerCase()]!) };
}

export interface Range {
  start_bytes: number;
  end_bytes: number;
}

/** "10GiB" (one block there), "1GiB-2GiB" (end exclusive); within a volume of `limit` bytes. */
export function range(text: string, limit: number, point_bytes = 4096): Parsed<Range> {
  const parts = text.split(/[-–]/);
  if (parts.length > 2 || text.trim() === "") return { problem: "write an offset such as 10GiB, or a range such as 1GiB-2GiB" };
  const start = size(parts[0]!);
  if (start.problem !== undefined) return start;
  if (start.value >= limit) return { problem: "that is beyond the volume's end; write a smaller offset" };
  if (parts.length === 1) return { value: { start_bytes: start.value, end_bytes: Math.min(start.value + point_bytes, limit) } };
  const end = size(parts[1]!);
  if (end.problem !== undefined) return end;
  if (end.value <= start.value) return { problem: "the end must be behind the start; write for instance 1GiB-2GiB" };
  return { value: { start_bytes: start.value, end_bytes: Math.min(end.value, limit) } };
}

/** What is wrong with a pool's or volume's name, if something is. */
export function nameProblem(name: string): string | undefined {
  if (name === "") return "give it a name";
  if (name.length > 64) return "a name has at most 64 characters";
  if (/^[-.]/.test(name)) return "a name begins with neither - nor .";
  if (!/^[A-Za-z0-9._-]+$/.test(name)) return "a name has only letters, digits, dots, underscores and hyphens";
  return undefined;
}
