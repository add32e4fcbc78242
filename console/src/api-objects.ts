/** The words of the REST API for applications and their objects; see `api.ts`. */

import type { JobView } from "./api";

/** What was found on one volume. */
export interface VolumeApplications {
  volume: string;
  state: "waiting" | "looking" | "found" | "failed";
  problem: string | null;
  /** Since the look that found this. */
  age_ms: number | null;
  looked_at_bytes: number;
  /** Everything was read and understood. */
  complete: boolean;
  blind: BlindView[];
  /** Of the blocks used; null: nothing was used. */
  unknown_percent: number | null;
  applications: ApplicationView[];
}

/** A part of a volume where nothing has a name. */
export interface BlindView {
  start_bytes: number;
  end_bytes: number;
  reason: string;
}

/** A server of databases. */
export interface ApplicationView {
  id: number;
  engine: string;
  version: string | null;
  /** Its data directory; null: pages outside of any known one. */
  instance: string | null;
  evidence: string;
  objects: number;
  bytes: number;
  databases: DatabaseView[];
  /** To its server; null: it is not asked. */
  connection: ConnectionView | null;
}

/** How the connection to a server is. */
export interface ConnectionView {
  /** Null for those who may look only. */
  login: string | null;
  user: string | null;
  /** Null until it answered. */
  server: string | null;
  /** It tells which programs are connected. */
  programs: boolean;
  sessions: number;
  problem: string | null;
  remedy: string | null;
}

export interface DatabaseView {
  name: string;
  objects: number;
  bytes: number;
}

export type Admit = "never" | "normal" | "pinned";
export type ObjectWrites = "inherit" | "around" | "through";
export type OnScan = "hit-only" | "normal";

/** A table, an index, a log. */
export interface ObjectView {
  /** On its volume. */
  id: number;
  volume: string;
  application: number;
  engine: string;
  /** The application's data directory, from the root of its file system. */
  instance: string | null;
  database: string | null;
  kind: string;
  name: string;
  /** The object in whose file it lies, if it has none of its own. */
  within: string | null;
  /** Of its files; 0 for one that lies within another. */
  bytes: number;
  extents: number;
  path: string;
  encrypted: boolean;
  /** A copy of a table that is being rebuilt: it takes its place and name soon. */
  being_built: boolean;
  evidence: string;
  /** Since counting began, at most a day ago; estimated. */
  read_bytes: number;
  hits_percent: number | null;
  written_bytes: number;
  /** What it brings, by the size of the SSD, smallest first; empty: hardly anything, or not known. */
  curve: ObjectPoint[];
  admit: Admit;
  writes: ObjectWrites;
  on_scan: OnScan;
  /** Who says so. */
  policy: "rule" | "default";
}

/** What an object brings at some size. */
export interface ObjectPoint {
  ssd_bytes: number;
  /** Share of all reads of blocks used before, on the whole volume, that are hits on this object. */
  hits_percent: number;
}

/** A policy for objects: of those named, or of all of a kind or an application. */
export interface ObjectSet {
  objects?: string[];
  volume?: string | null;
  application?: string | null;
  kind?: string | null;
  admit?: Admit | null;
  writes?: ObjectWrites | null;
  on_scan?: OnScan | null;
  /** Takes rules away. */
  reset?: boolean;
}

/** What a policy became. */
export interface PolicyDone {
  objects: number;
  bytes: number;
  pinned_bytes: number;
  sentences: string[];
}

/** What is to be read into the cache. */
export interface ObjectPreload {
  objects?: string[];
  volume?: string | null;
  application?: string | null;
  kind?: string | null;
  /** At most so much: the parts that are read again most. */
  budget_bytes?: number | null;
  rate_bytes_s?: number | null;
  dry_run?: boolean;
}

/** A preload, or what one would do. */
export interface PreloadView {
  volume: string;
  what: string;
  /** That enter the cache: the most that is written to the SSD. */
  bytes: number;
  read_bytes: number;
  ranges: number;
  /** None: nothing was begun. */
  job: JobView | null;
}
