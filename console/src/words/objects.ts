/** Applications and their objects, in words. */

import type { AdviceVerified } from "../api";
import type { Admit, ObjectView, ObjectWrites, OnScan, VolumeApplications } from "../api-objects";
import { bytes, NB } from "../format";
import type { Tone } from "./health";
import { hits } from "./insight";

/** What the look at a volume came to. */
export function stateOf(of: VolumeApplications): { tone: Tone; word: string } {
  switch (of.state) {
    case "waiting":
      return { tone: "busy", word: "waits for its turn" };
    case "looking":
      return { tone: "busy", word: "being looked at" };
    case "failed":
      return { tone: "bad", word: "failed" };
    case "found":
      return of.complete
        ? { tone: "good", word: "all understood" }
        : { tone: "busy", word: "partly understood" };
  }
}

/** How much of what is used has no name. */
export const unknownShare = (of: VolumeApplications): string =>
  of.unknown_percent === null ? "nothing used yet" : `${hits(of.unknown_percent)}${NB}%`;

/** What evidence there is, piece by piece. */
export const pieces = (evidence: string): string[] =>
  evidence.split(",").map((piece) => piece.trim()).filter((piece) => piece !== "");

/** A share that may not be known. */
export const shareOf = (percent: number | null): string =>
  percent === null ? "–" : `${hits(percent)}${NB}%`;

/** What an object brings: small shares with a digit more. */
export const brings = (percent: number): string =>
  percent > 0 && percent < 0.1 ? `<${NB}0.1${NB}%` : `${percent.toFixed(percent < 10 ? 1 : 0).replace(/\.0$/, "")}${NB}%`;

/** "index, in its table" */
export const kindOf = (object: ObjectView): string =>
  object.within !== null ? `${object.kind}, in its table` : object.being_built ? `${object.kind}, being rebuilt` : object.kind;

/** Bytes of its own; what lies in another's file has none. */
export const sizeOf = (object: ObjectView): string =>
  object.within !== null && object.bytes === 0 ? "–" : bytes(object.bytes);

/** Its policy, as short as it can be told. */
export function policyOf(object: ObjectView): string {
  const told = [
    object.admit,
    ...(object.writes === "inherit" ? [] : [`writes ${object.writes}`]),
    ...(object.on_scan === "hit-only" ? [] : [`scans ${object.on_scan}`]),
  ];
  return `${told.join(", ")}${object.policy === "default" ? " (default)" : ""}`;
}

/** A word of a policy, and what it means. */
type Meant<W extends string> = [word: W, means: string];

export const ADMIT: Meant<Admit>[] = [
  ["never", "Its blocks do not enter the cache."],
  ["normal", "Its blocks enter as the volume's admission says."],
  ["pinned", "Its blocks stay on the SSD once they are there, while others leave. A pool keeps at most 60 % of itself for them."],
];

export const WRITES: Meant<ObjectWrites>[] = [
  ["inherit", "As the volume's mode says."],
  ["around", "Writes go to the backing device, and not into the cache."],
  ["through", "Writes go to the backing device before they are answered, and into the cache."],
];

export const ON_SCAN: Meant<OnScan>[] = [
  ["hit-only", "Scans and backups use what is cached; what they read does not enter."],
  ["normal", "Scans and backups are treated as all other readers."],
];

/** By how much a forecast was off. */
export function errorTold({ error_points }: AdviceVerified): string {
  if (error_points === null) return "–";
  const size = Math.abs(error_points).toFixed(1);
  if (size === "0.0") return `0${NB}points`;
  return `${size}${NB}points too ${error_points > 0 ? "high" : "low"}`;
}
