/** Outcomes of requests and reasons of being turned away, in words. */

import type { Options } from "../api";
import { bytes } from "../format";

export const OUTCOMES: Record<string, string> = {
  all: "all requests",
  read: "reads",
  write: "writes",
  ram_hit: "RAM hit",
  ssd_hit: "SSD hit",
  miss: "miss",
  bypass: "bypassed the cache",
  write_back: "write to the SSD",
  write_through: "write to the disk",
  other: "other",
};

export interface Reason {
  title: string;
  /** What it means. */
  why: string;
  /** What to do if it is unwanted. */
  remedy: string;
}

/** A reason in the light of the volume's options. */
export function reason(name: string, options: Options | null): Reason {
  const known = reasons(options)[name];
  return known ?? { title: name.replace(/_/g, " "), why: "Bypassed for another reason.", remedy: "See the events and the log." };
}

function reasons(options: Options | null): Record<string, Reason> {
  const longest = options ? ` (${bytes(options.max_io_bytes)})` : "";
  const cutoff = options?.sequential_cutoff_bytes ? ` (${bytes(options.sequential_cutoff_bytes)})` : "";
  return {
    size: {
      title: "Too large",
      why: `Requests longer than the max I/O size${longest} go to the disk, which is good at large transfers.`,
      remedy: "Raise the max I/O size if large requests should be cached.",
    },
    sequential: {
      title: "Sequential",
      why: `Streams bypass the cache once they are longer than the sequential cutoff${cutoff}: a disk is fast at them, and they would evict blocks in frequent use.`,
      remedy: "Raise the sequential cutoff, or switch it off, if such streams are read again and again.",
    },
    pass_through: {
      title: "Pass-through",
      why: "The volume's mode is pass-through: the cache is only watched.",
      remedy: "Change the mode to write-through or write-back.",
    },
    write_around: {
      title: "Write-around",
      why: "The volume's mode is write-around: writes do not occupy the cache.",
      remedy: "Change the mode to write-through if what is written is soon read.",
    },
    first_touch: {
      title: "First touch",
      why: "Blocks seen for the first time were noted and enter the SSD when they are used again. Most of them never are.",
      remedy: "Wait, or warm the range; the admission always takes them at once and wears the SSD more.",
    },
    dirty_limit: {
      title: "Dirty limit",
      why: "Writes met the limit of dirty data and had to wait, or went to the disk.",
      remedy: "Raise the dirty limit or the destage rate, or shorten the write-cache depth.",
    },
    no_space: {
      title: "No room on the SSD",
      why: "No page of the SSD was free at that moment.",
      remedy: "If it lasts: destage, or give the pool a larger SSD.",
    },
    degraded: {
      title: "SSD failed",
      why: "The pool's SSD failed; the volume runs on its backing device alone.",
      remedy: "Replace the pool's SSD.",
    },
    policy: {
      title: "Object policy",
      why: "The policy of an object (a table, an index, a log) keeps it out of the cache or sends its writes past it.",
      remedy: "Change the object's policy if its blocks should be cached.",
    },
    stream: {
      title: "Backup or scan",
      why: "Backups and scans pass over data once: they are served what is cached and put nothing into the cache.",
      remedy: "Set on-scan to normal for an object whose scans should fill the cache.",
    },
  };
}
