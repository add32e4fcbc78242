/** What loads need, in words: streams, states, and what advice says. */

import type { AdvicePoint, AdviceView, AnalysisView, TargetView } from "../api";
import { bytes, digits, microseconds, NB, span } from "../format";
import type { Tone } from "./health";

export const STATES: Record<AnalysisView["state"], { tone: Tone; word: string }> = {
  watching: { tone: "good", word: "watching" },
  reading: { tone: "busy", word: "reading" },
  ended: { tone: "busy", word: "ended" },
  failed: { tone: "bad", word: "failed" },
};

/** Whether more is still seen of it. */
export const goesOn = (analysis: AnalysisView): boolean =>
  analysis.state === "watching" || analysis.state === "reading";

/** What of the time is not in its window, as the beginning of a note; empty: nothing. */
export const away = (analysis: Pick<AnalysisView, "away_ms">): string =>
  analysis.away_ms < 1000
    ? ""
    : `but for ${span(Math.round(analysis.away_ms / 1000))} in which hearth did not watch; `;

/** What is watched: "volume db", "device /dev/sdb". */
export const watches = (analysis: AnalysisView): string =>
  analysis.named ? `${analysis.source} ${analysis.of}` : "the volume";

/** "all", "1 in 32". */
export const sample = (share: number): string =>
  share > 0.999 ? "all" : `1 in ${digits(Math.max(1, Math.round(1 / Math.max(share, 1e-12))))}`;

/** A share of hits without its unit: whole percent; a digit more where it would round to an end. */
export function hits(percent: number): string {
  const near = (percent > 99 && percent < 100) || (percent > 0 && percent < 1);
  return near ? percent.toFixed(1).replace(/\.0$/, "") : percent.toFixed(0);
}

/** "12.1 GiB: 87 % hits (band 85 to 89)". */
export function toldAt(point: AdvicePoint): string {
  const band = `${hits(point.hits_percent_low)} to ${hits(point.hits_percent_high)}`;
  return `${bytes(point.ssd_bytes)}: ${hits(point.hits_percent)}${NB}% hits (band ${band})`;
}

/** What follows from a size besides hits: "reads take 0.96 ms, 61 GiB a day would be written to the SSD". */
export function follows({ read_us, ssd_written_bytes_per_day }: AdvicePoint): string {
  const reads = read_us === null ? [] : [`reads take ${microseconds(read_us)}`];
  const written =
    ssd_written_bytes_per_day === null
      ? []
      : [`${bytes(ssd_written_bytes_per_day)} a day would be written to the SSD`];
  return [...reads, ...written].join(", ");
}

/** What another size brings against the present one: "+100 GiB = +7 %". */
export function gain(to: AdvicePoint, now: AdvicePoint): string {
  const more = to.ssd_bytes - now.ssd_bytes;
  const gained = Math.round(to.hits_percent - now.hits_percent);
  const sign = (value: number): string => (value < 0 ? "−" : "+");
  return `${sign(more)}${bytes(Math.abs(more))} = ${sign(gained)}${Math.abs(gained)}${NB}%`;
}

/** The share that a target asks for: "90 %", "99.9 %". */
export const share = (target: TargetView): string =>
  `${Number(target.hits_percent.toFixed(3))}${NB}%`;

/** Whether nothing can be told of a load so far: no size, and no share that RAM alone reaches. */
export const nothingTold = (advice: AdviceView): boolean =>
  advice.curve.length === 0 && advice.targets.every((target) => target.ssd_bytes === null);

/** Targets that are not known yet: the same reason is told once. */
export function notYet(
  targets: TargetView[],
): { shares: string; why: string; more_ms: number | null }[] {
  const found: { shares: string; why: string; more_ms: number | null }[] = [];
  for (const target of targets) {
    if (target.ssd_bytes !== null) continue;
    const why = target.not_yet ?? "the reason is not known";
    const same = found.find((line) => line.why === why);
    if (!same) found.push({ shares: share(target), why, more_ms: target.more_ms });
    else {
      same.shares += `, ${share(target)}`;
      if (target.more_ms !== null) same.more_ms = Math.max(same.more_ms ?? 0, target.more_ms);
    }
  }
  return found;
}

/** What was watched, and what was left out. */
export function windowTold(advice: AdviceView): string {
  const scans = advice.with_backups
    ? ", scans and backups let in"
    : advice.scanned_bytes > 0
      ? `, without scans and backups (${bytes(advice.scanned_bytes)})`
      : "";
  const ram = advice.ram_bytes > 0 ? `, beside ${bytes(advice.ram_bytes)} of RAM` : "";
  return `${span(advice.window_ms / 1000)} watched${scans}${ram}`;
}

/** What the figures rest on, a sentence each. */
export function restsOn(advice: AdviceView, mode: string): string[] {
  const speeds: [string, number | null][] = [
    ["RAM", advice.ram_us],
    ["the SSD", advice.ssd_us],
    ["the disk", advice.backing_us],
  ];
  const known = speeds
    .filter(([, us]) => us !== null)
    .map(([what, us]) => `${what} in ${microseconds(us!)}`);
  const content =
    advice.content_factor === null
      ? ""
      : `, ${digits(advice.content_factor)} times as much by content as without`;
  return [
    "Hits are told in percent of the reads of blocks that were used before.",
    "The truth lies within the band 19 times of 20.",
    `Writes are taken as in ${mode}.`,
    `1${NB}GiB of SSD holds ${bytes(advice.stored_share * 2 ** 30)} of data${content}.`,
    ...(known.length > 0 ? [`Measured here, reads are answered by ${known.join(", ")}.`] : []),
  ];
}
