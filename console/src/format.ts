/** Numbers as people read them: always with a unit that no line break parts from it, three significant digits, powers of 1024 for bytes. */

/** A space that does not break. */
export const NB = "\u00a0";

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Three significant digits, without an exponent. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 999.5) return Math.round(value).toLocaleString("en-US").replace(/,/g, "\u202f");
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return trim(value.toFixed(1));
  if (size >= 0.01) return trim(value.toFixed(2));
  return trim(value.toPrecision(1));
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** Bytes that may not be known: never shown as none. */
export function known(value: number | null): string {
  return value === null ? "unknown" : bytes(value);
}

export function bytes(value: number): string {
  let unit = 0;
  let rest = value;
  while (Math.abs(rest) >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? String(Math.round(rest)) : digits(rest)}${NB}${BYTE_UNITS[unit]}`;
}

export function bytesPerSecond(value: number): string {
  return `${bytes(value)}/s`;
}

/** A count that may be large: 1 234, 12.3 k, 4.5 M. */
export function count(value: number): string {
  if (value >= 999_500_000_000) return `${digits(value / 1e12)}${NB}T`;
  if (value >= 999_500_000) return `${digits(value / 1e9)}${NB}G`;
  if (value >= 999_500) return `${digits(value / 1e6)}${NB}M`;
  if (value >= 9_999.5) return `${digits(value / 1e3)}${NB}k`;
  return value < 100 && !Number.isInteger(value) ? digits(value) : Math.round(value).toLocaleString("en-US").replace(/,/g, "\u202f");
}

/** A part of one, as percent. */
export function percent(part: number): string {
  const value = part * 100;
  if (value > 0 && value < 0.1) return `<${NB}0.1${NB}%`;
  if (value > 99.9 && value < 100) return `>${NB}99.9${NB}%`;
  return `${value === 100 || value === 0 ? value : value.toFixed(1)}${NB}%`;
}

export function microseconds(value: number): string {
  if (value < 999.5) return `${digits(value)}${NB}µs`;
  if (value < 999_500) return `${digits(value / 1000)}${NB}ms`;
  return `${digits(value / 1_000_000)}${NB}s`;
}

/** A span of time in its two largest units. */
export function span(seconds: number): string {
  if (seconds < 0.9995) return `${digits(seconds * 1000)}${NB}ms`;
  if (seconds < 10) return `${digits(seconds)}${NB}s`;
  if (seconds < 59.5) return `${Math.round(seconds)}${NB}s`;
  const units: [number, string][] = [[31_557_600, "y"], [86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let first = 0;
  while (first < 3 && seconds < units[first]![0]) first += 1;
  const [large, word] = units[first]!;
  const [small, minor] = units[first + 1]!;
  let whole = Math.floor(seconds / large);
  let rest = Math.round((seconds - whole * large) / small);
  if (rest * small >= large) {
    whole += 1;
    rest = 0;
    // Rounding may have filled the next larger unit too.
    if (first > 0 && whole * large >= units[first - 1]![0]) return span(whole * large);
  }
  return rest === 0 ? `${whole}${NB}${word}` : `${whole}${NB}${word} ${rest}${NB}${minor}`;
}

/** Milliseconds as a person would type them: "30 s", "500 ms", "5 min". */
export function milliseconds(value: number): string {
  return span(value / 1000);
}

const pad = (value: number): string => String(value).padStart(2, "0");

/** Local time of day with seconds. */
export function timeOfDay(unix_s: number): string {
  const date = new Date(unix_s * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Local date and time. */
export function dateTime(unix_s: number): string {
  const date = new Date(unix_s * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${timeOfDay(unix_s)}`;
}

/** "1 volume", "3 volumes". */
export function counted(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
