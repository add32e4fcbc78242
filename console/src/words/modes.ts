/** Modes in words: what they are, and what a change means. */

import type { Content, Mode, Options } from "../api";
import { bytes, bytesPerSecond, milliseconds } from "../format";

export const MODES: Record<Mode, { short: string; about: string; loss: string }> = {
  "write-through": {
    short: "safe; reads get faster",
    about: "A write is acknowledged when it is on the backing device; cached blocks are updated.",
    loss: "If the SSD dies, nothing is lost.",
  },
  "write-back": {
    short: "reads and writes get faster; the SSD holds the only copy of new data for a while",
    about: "A write is acknowledged when it is on the SSD; destage brings it home later.",
    loss: "If the SSD dies, the dirty data of that moment is lost.",
  },
  "write-around": {
    short: "safe; writes do not occupy the cache",
    about: "A write goes to the backing device and does not occupy the cache: for data that is written once and seldom read again.",
    loss: "If the SSD dies, nothing is lost.",
  },
  "pass-through": {
    short: "nothing is cached; the cache is only watched",
    about: "All requests go to the backing device; the cache is only watched. Nothing gets faster.",
    loss: "If the SSD dies, nothing is lost.",
  },
};

export const MODE_NAMES = Object.keys(MODES) as Mode[];

/** What is known where a change of mode is considered. */
export interface Situation {
  volume: string;
  backing: string;
  options: Options;
  /** Null if unknown. */
  dirty_bytes: number | null;
  /** Bytes that clients write each second just now; null if unknown. */
  written_bytes_s: number | null;
}

/** What a change of mode means, sentence by sentence. */
export function modeMeaning(to: Mode, now: Situation): string[] {
  const from = now.options.mode;
  if (to === from) return [`It is ${to} already. ${MODES[to].about}`];
  const leaving =
    from === "write-back"
      ? [
          now.dirty_bytes === null
            ? `Leaving write-back: dirty data, an unknown amount, is destaged to ${now.backing} first, as a job with progress.`
            : now.dirty_bytes > 0
            ? `Leaving write-back: ${bytes(now.dirty_bytes)} of dirty data are destaged to ${now.backing} first, as a job with progress.`
            : "Leaving write-back: nothing is dirty just now, so there is nothing to bring home first.",
          "You can stop that job; what is still dirty then stays on the SSD until you destage it.",
        ]
      : [];
  if (to !== "write-back") return [...leaving, MODES[to].about, MODES[to].loss];
  const depth = milliseconds(now.options.write_cache_depth_ms);
  return [
    `Write-back: an acknowledged write is on the SSD only until destage brings it home to ${now.backing}. That begins ${depth} after it was written at the latest (the write-cache depth).`,
    `If the SSD dies meanwhile, the dirty data is lost: ${exposure(now)}.`,
    "A crash of the daemon loses no acknowledged write; a power cut loses nothing that was flushed.",
  ];
}

/** How much could be lost with the SSD. */
export function exposure(now: Situation): string {
  const limit = now.options.dirty_limit_bytes;
  const cap = limit === null ? "there is no dirty limit, so up to what the pool allows" : `up to ${bytes(limit)} (the dirty limit)`;
  const rate = now.written_bytes_s;
  if (rate === null || rate < 1) return cap;
  const expected = (rate * now.options.write_cache_depth_ms) / 1000;
  const shown = limit === null ? expected : Math.min(expected, limit);
  return `${cap}; at the ${bytesPerSecond(rate)} written just now, about ${bytes(shown)}`;
}

export const CONTENTS: Record<Content, string> = {
  off: "Every block is stored as it is.",
  fast: "Zeroes and equal blocks are stored once; differences to what the address held before and to near copies; LZ4 for the rest. A few microseconds of CPU time a block.",
  dense: "As fast, and differences to similar blocks, and zstd where it is smaller than LZ4. Some tens of microseconds of CPU time a block.",
  auto: "Begins as fast; on each volume, each step is opened where it saves enough for its CPU time, and closed where it does not.",
};

export const CONTENT_NAMES = Object.keys(CONTENTS) as Content[];
