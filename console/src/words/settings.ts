/** The settings of a volume: how each is shown, typed, and what a change of it means. */

import type { Limit, Options, OptionsPatch } from "../api";
import { bytes, bytesPerSecond, milliseconds } from "../format";
import * as parse from "../parse";
import type { Parsed } from "../parse";
import { exposure, modeMeaning, MODE_NAMES, MODES, type Situation } from "./modes";
import type { Mode } from "../api";

export interface Setting {
  key: keyof Options;
  word: string;
  about: string;
  /** As it stands. */
  shown: (options: Options) => string;
  /** As it would be typed, or the word chosen. */
  typed: (options: Options) => string;
  /** Words to choose from, each with what it means; absent: it is typed. */
  choices?: { word: string; about: string }[];
  /** How to write it. */
  hint?: string;
  patch: (text: string) => Parsed<OptionsPatch>;
  /** What a change to `text` means. `text` can be read. */
  meaning: (text: string, now: Situation) => string[];
}

const MIB = 2 ** 20;
const off = (value: number | null, format: (value: number) => string): string => (value === null ? "off" : format(value));

/** A size as it can be typed again. */
export function typedSize(value: number): string {
  for (const [power, unit] of [[4, "TiB"], [3, "GiB"], [2, "MiB"], [1, "KiB"]] as const) {
    if (value > 0 && value % 1024 ** power === 0) return `${value / 1024 ** power}${unit}`;
  }
  return String(value);
}

function typedTime(value_ms: number): string {
  if (value_ms % 60_000 === 0) return `${value_ms / 60_000}m`;
  return value_ms % 1000 === 0 ? `${value_ms / 1000}s` : `${value_ms}ms`;
}

function sized(text: string, least: number, most: number, then: (bytes: number) => OptionsPatch): Parsed<OptionsPatch> {
  const parsed = parse.size(text);
  if (parsed.problem !== undefined) return parsed;
  if (parsed.value < least || parsed.value > most) return { problem: `it must be between ${bytes(least)} and ${bytes(most)}` };
  return { value: then(parsed.value) };
}

function limited(text: string, least: number, then: (limit: Limit) => OptionsPatch): Parsed<OptionsPatch> {
  const parsed = parse.sizeOrOff(text);
  if (parsed.problem !== undefined) return { problem: `${parsed.problem}, or off` };
  if (parsed.value === null) return { value: then("off") };
  if (parsed.value < least) return { problem: `it must be at least ${bytes(least)}, or off` };
  return { value: then({ bytes: parsed.value }) };
}

const typedNames = (names: string[] | undefined): string => (names && names.length > 0 ? names.join(", ") : "all");

function named(text: string): Parsed<OptionsPatch> {
  const names = text.trim() === "all" ? [] : text.split(",").map((name) => name.trim());
  if (names.some((name) => name === "" || name.length > 253)) return { problem: "write names with commas between, or all" };
  return { value: { tls_names: names } };
}

function timed(text: string, most_ms: number, then: (ms: number) => OptionsPatch): Parsed<OptionsPatch> {
  const parsed = parse.time(text);
  if (parsed.problem !== undefined) return parsed;
  if (parsed.value < 1 || parsed.value > most_ms) return { problem: `it must be more than 0 and at most ${milliseconds(most_ms)}` };
  return { value: then(parsed.value) };
}

const bytesOf = (text: string): number | null => parse.sizeOrOff(text).value ?? null;
const onlyWriteBack = (now: Situation): string[] => (now.options.mode === "write-back" ? [] : [`The mode is ${now.options.mode}: this takes effect once it is write-back.`]);

export const SETTINGS: Setting[] = [
  {
    key: "mode",
    word: "Mode",
    about: "What an acknowledged write means.",
    shown: (options) => options.mode,
    typed: (options) => options.mode,
    choices: MODE_NAMES.map((word) => ({ word, about: MODES[word].short })),
    patch: (mode) => ({ value: { mode } }),
    meaning: (text, now) => modeMeaning(text as Mode, now),
  },
  {
    key: "admission",
    word: "Admission",
    about: "When a block that is read enters the SSD.",
    shown: (options) => options.admission,
    typed: (options) => options.admission,
    choices: [
      { word: "second-touch", about: "when it is used again, or if RAM is too small to wait for that: what is used but once gives way first" },
      { word: "always", about: "at its first use: the cache warms sooner, and the SSD is written more" },
    ],
    patch: (admission) => ({ value: { admission } }),
    meaning: (text) =>
      text === "always"
        ? ["Every block that may be cached enters the SSD when it leaves RAM.", "The cache warms sooner, blocks that are never used again push out others, and more is written to the SSD (it wears faster)."]
        : ["A block that was used but once enters the SSD if RAM is too small to hold it until it is judged, and is the first to go.", "What is read once does not push out what is used often, and less is written to the SSD. What is cached already stays."],
  },
  {
    key: "write_cache_depth_ms",
    word: "Write-cache depth",
    about: "Oldest a dirty block gets before its destage begins.",
    hint: "a time: 500ms, 30s, 5m; at most 24h",
    shown: (options) => milliseconds(options.write_cache_depth_ms),
    typed: (options) => typedTime(options.write_cache_depth_ms),
    patch: (text) => timed(text, 86_400_000, (write_cache_depth_ms) => ({ write_cache_depth_ms })),
    meaning: (text, now) => {
      const depth = parse.time(text).value ?? now.options.write_cache_depth_ms;
      return [
        `A dirty block begins its way home ${milliseconds(depth)} after it was written at the latest.`,
        `If the SSD dies, what was written since may be lost: ${exposure({ ...now, options: { ...now.options, write_cache_depth_ms: depth } })}.`,
        depth > now.options.write_cache_depth_ms ? "Longer: blocks that are overwritten often are destaged less often, which relieves the disk." : "Shorter: less can be lost, and the disk works more.",
        ...onlyWriteBack(now),
      ];
    },
  },
  {
    key: "dirty_limit_bytes",
    word: "Dirty limit",
    about: "Most dirty data; at the limit, writes wait for destage.",
    hint: "a size of at least 1MiB, or off",
    shown: (options) => off(options.dirty_limit_bytes, bytes),
    typed: (options) => off(options.dirty_limit_bytes, typedSize),
    patch: (text) => limited(text, MIB, (dirty_limit) => ({ dirty_limit })),
    meaning: (text, now) => {
      const limit = bytesOf(text);
      const above = limit !== null && now.dirty_bytes !== null && now.dirty_bytes > limit;
      return [
        limit === null ? "There is no limit but the pool's: up to all that the SSD allows can be dirty, and lost if the SSD dies." : `At most ${bytes(limit)} are dirty: no more than that can be lost if the SSD dies.`,
        limit === null ? "Bursts of writes are taken at the SSD's speed for longer." : "Writes that meet the limit wait for destage: they then take as long as the disk takes.",
        ...(above ? [`${bytes(now.dirty_bytes ?? 0)} are dirty now: writes wait until destage has come below the limit.`] : []),
        ...onlyWriteBack(now),
      ];
    },
  },
  {
    key: "max_io_bytes",
    word: "Max I/O size",
    about: "Longer requests bypass the cache.",
    hint: "a size from 512 to 32MiB",
    shown: (options) => bytes(options.max_io_bytes),
    typed: (options) => typedSize(options.max_io_bytes),
    patch: (text) => sized(text, 512, 32 * MIB, (max_io_bytes) => ({ max_io_bytes })),
    meaning: (text, now) => {
      const limit = bytesOf(text) ?? now.options.max_io_bytes;
      return [`Requests longer than ${bytes(limit)} go to the disk; those up to it may be cached.`, "A disk is good at long transfers: caching them gains little and takes room from small ones. What is cached already stays."];
    },
  },
  {
    key: "sequential_cutoff_bytes",
    word: "Sequential cutoff",
    about: "A sequential stream bypasses the cache after this length.",
    hint: "a size of at least 4KiB, or off",
    shown: (options) => off(options.sequential_cutoff_bytes, bytes),
    typed: (options) => off(options.sequential_cutoff_bytes, typedSize),
    patch: (text) => limited(text, 4096, (sequential_cutoff) => ({ sequential_cutoff })),
    meaning: (text) => {
      const limit = bytesOf(text);
      return limit === null
        ? ["Streams are cached however long they are: a backup or a scan of the whole volume can push out what is used often."]
        : [`Once a stream has read or written ${bytes(limit)} in order, the rest of it goes to the disk.`, "Backups and scans then leave the cache as it is."];
    },
  },
  {
    key: "log_burst_bytes",
    word: "Log burst",
    about: "Most of large writes that the SSD takes between two flushes, because somebody may wait for them.",
    hint: "a size of at least 4KiB, or off",
    shown: (options) => off(options.log_burst_bytes, bytes),
    typed: (options) => off(options.log_burst_bytes, typedSize),
    patch: (text) => limited(text, 4096, (log_burst) => ({ log_burst })),
    meaning: (text, now) => {
      const limit = bytesOf(text);
      return [
        limit === null ? "Large commits go to the SSD as far as the dirty limit allows." : `Of a commit, up to ${bytes(limit)} go to the SSD; the rest goes to the disk, and the commit waits for it.`,
        ...onlyWriteBack(now),
      ];
    },
  },
  {
    key: "latency_goal_ms",
    word: "Latency goal",
    about: "Destage keeps clients' reads of the backing device below this.",
    hint: "a time: 10ms, 50ms; at most 60s",
    shown: (options) => milliseconds(options.latency_goal_ms),
    typed: (options) => typedTime(options.latency_goal_ms),
    patch: (text) => timed(text, 60_000, (latency_goal_ms) => ({ latency_goal_ms })),
    meaning: (text, now) => {
      const goal = parse.time(text).value ?? now.options.latency_goal_ms;
      return [`Destage slows down when reads from the disk take longer than ${milliseconds(goal)}.`, goal < now.options.latency_goal_ms ? "Lower: clients feel destage less, dirty data is destaged more slowly." : "Higher: dirty data goes home faster, clients may feel it."];
    },
  },
  {
    key: "destage_rate_bytes",
    word: "Destage rate",
    about: "Maximum bytes destaged per second.",
    hint: "a size a second of at least 1MiB, or off",
    shown: (options) => off(options.destage_rate_bytes, bytesPerSecond),
    typed: (options) => off(options.destage_rate_bytes, typedSize),
    patch: (text) => limited(text, MIB, (destage_rate) => ({ destage_rate })),
    meaning: (text, now) => {
      const limit = bytesOf(text);
      if (limit === null) return ["Destage goes as fast as the latency goal allows."];
      const slow = now.written_bytes_s !== null && now.written_bytes_s > limit;
      return [`At most ${bytesPerSecond(limit)} are destaged.`, ...(slow ? ["That is less than is written just now: dirty data will grow up to its limit, and writes then wait."] : [])];
    },
  },
  {
    key: "read_only",
    word: "Read-only",
    about: "Whether all writes are refused.",
    shown: (options) => (options.read_only ? "yes: writes are refused" : "no"),
    typed: (options) => (options.read_only ? "yes" : "no"),
    choices: [
      { word: "no", about: "clients may write" },
      { word: "yes", about: "every write is refused" },
    ],
    patch: (text) => ({ value: { read_only: text === "yes" } }),
    meaning: (text, now) =>
      text === "yes"
        ? [
            "Every write is refused from now on. A file system that is mounted for writing will report errors.",
            ...(now.options.mode === "write-back" ? ["A read-only volume cannot be write-back: change the mode first."] : []),
          ]
        : ["Clients may write again."],
  },
  {
    key: "on_ssd_loss",
    word: "On loss of the SSD",
    about: "What writes do when the SSD is lost with dirty data of the volume.",
    shown: (options) => options.on_ssd_loss,
    typed: (options) => options.on_ssd_loss,
    choices: [
      { word: "stop", about: "they wait, and fail after a time: the dirty data on the SSD stays the newest" },
      { word: "continue", about: "they go to the backing device; what they write over is recorded" },
    ],
    patch: (what) => ({ value: { on_ssd_loss: what } }),
    meaning: (text) =>
      text === "continue"
        ? ["If the SSD is lost, writes go to the backing device, and which blocks they change is recorded.", "When the SSD is back, all other dirty data is served from it."]
        : ["If the SSD is lost, writes wait while dirty data goes home, and fail when none can.", "When the SSD is back, all dirty data on it is served."],
  },
  {
    key: "atomic_bytes",
    word: "Atomic writes",
    about: "Aligned units that are written as a whole or not at all, for databases without a doublewrite buffer. Write-back only.",
    shown: (options) => (options.atomic_bytes ? bytes(options.atomic_bytes) : "off"),
    typed: (options) => (options.atomic_bytes ? typedSize(options.atomic_bytes) : "off"),
    choices: [
      { word: "off", about: "the database protects its pages itself" },
      { word: "8KiB", about: "the pages of PostgreSQL" },
      { word: "16KiB", about: "the pages of MariaDB and MySQL" },
      { word: "4KiB", about: "blocks" },
      { word: "32KiB", about: "larger pages of InnoDB" },
      { word: "64KiB", about: "the largest pages of InnoDB" },
    ],
    patch: (text) => limited(text, 4096, (atomic) => ({ atomic })),
    meaning: (text, now) =>
      text === "off"
        ? ["A crash or a power cut can leave a part of a page old and a part new. Turn the database's own protection on first."]
        : [
            `An aligned write of ${text} is there as a whole, or not at all, after any crash and any power cut.`,
            "It holds where pages lie at multiples of it on the volume; see docs/atomic.md. Not while the SSD is lost.",
            ...(now.options.mode === "write-back" ? [] : ["The volume must be write-back: change the mode first."]),
          ],
  },
  {
    key: "tls_names",
    word: "TLS names",
    about: "Names of the certificates that may use the exports with TLS.",
    hint: "names as given to hearth pki issue, with commas between, or all",
    shown: (options) => typedNames(options.tls_names),
    typed: (options) => typedNames(options.tls_names),
    patch: named,
    meaning: (text) =>
      text.trim() === "all"
        ? ["Every client with a certificate of the server's authority may use the exports with TLS."]
        : [`Only the certificates named ${text.trim()} may use the exports with TLS.`, "Clients with others are disconnected. The volume must have an export with TLS."],
  },
];
