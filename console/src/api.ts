/** The words of the REST API, one interface for each schema of `docs/openapi.json`; a test compares the fields. */

import type { ShareView } from "./api-access";
import type { PreloadView } from "./api-objects";
import type { ContentStats, FlashView, SlotStats, SpareView, WriteStreams } from "./api-space";

export type Mode = "write-through" | "write-back" | "write-around" | "pass-through";
export type Admission = "always" | "second-touch";
export type OnSsdLoss = "stop" | "continue";
export type Content = "off" | "fast" | "dense" | "auto";
export type Health = "running" | "starting" | "failing" | "degraded" | "failed" | "removing" | "stopped";
export type Role = "view" | "operate";
export type Severity = "info" | "warning" | "error";
export type JobKind = "destage" | "warm" | "preload" | "remove" | "mode_change" | "check" | "replace" | "disk_room" | "discover";
export type DeviceState = "free" | "foreign" | "in_use" | "pool" | "backing";
/** A limit that can be lifted. */
export type Limit = "off" | { bytes: number };

export interface DaemonView {
  version: string;
  pid: number;
  state_directory: string;
  insight_enabled: boolean;
}

export interface Hello {
  version: string;
  /** Differs for each start of the daemon. */
  instance: string;
  latest_event: number;
}

export interface SessionView {
  role: Role;
  by: string;
  name: string;
  csrf: string | null;
}

export interface Login {
  token?: string | null;
  code?: string | null;
}

export interface Cause {
  kind: string;
  detail: string;
  remedy?: string | null;
}

export interface JobView {
  id: number;
  kind: JobKind;
  /** A volume; of a check, the pool. */
  volume: string;
  state: "running" | "done" | "cancelled" | "failed";
  /** Only where the state is "failed". */
  error?: Cause;
  done_bytes: number;
  total_bytes: number;
  rate_bytes: number;
  left_s: number | null;
  elapsed_ms: number;
  /** What came of it, where that is not what was expected. */
  summary?: string | null;
  /** The former name of summary. */
  told?: string | null;
}

export interface EventView {
  number: number;
  unix_s: number;
  severity: Severity;
  object: string;
  message: string;
}

export interface DeviceView {
  path: string;
  stable_path: string | null;
  kind: string;
  parent: string | null;
  size_bytes: number;
  model: string | null;
  rotational: boolean | null;
  read_only: boolean;
  state: DeviceState;
  summary: string;
  /** The former name of summary. */
  told?: string;
  destroys: string | null;
  can_be_ssd: boolean;
  can_be_backing: boolean;
}

export interface DeviceExamine {
  path: string;
}

export interface PoolView {
  name: string;
  uuid: string;
  health: Health;
  problem: string | null;
  remedy: string | null;
  ssd: string;
  /** What becomes of it when its SSD is blank at a start: "stop" or "make". */
  on_blank_ssd: string;
  /** How much of the SSD stays unused; null where blocks lie in a log. */
  spare?: SpareView | null;
  /** Bytes written to the SSD for each byte stored; null before anything was. */
  write_amplification?: number | null;
  /** What the SSD is estimated to write to its flash; null while the pool does not run. */
  flash?: FlashView | null;
  /** How the write streams of the SSD are used; null where it announces none. */
  write_streams?: WriteStreams | null;
  size_bytes: number;
  ram_bytes: number;
  cached_bytes: number | null;
  dirty_bytes: number | null;
  index_bytes: number;
  content: Content;
  content_stats: ContentStats | null;
  slot_stats: SlotStats | null;
  volumes: string[];
  /** Names of the disks beside its cache. */
  disks?: string[];
  /** How much of the SSD is set aside for them. */
  disks_bytes?: number;
  recovery: string[];
}

export interface DiskPiece {
  offset_bytes: number;
  size_bytes: number;
}

/** A plain part of a pool's SSD. */
export interface DiskView {
  name: string;
  uuid: string;
  health: Health;
  problem: string | null;
  remedy: string | null;
  pool: string;
  ssd: string;
  pieces: DiskPiece[];
  size_bytes: number;
  /** Since its last change of size: who has the new one, and who gets it when. */
  size_reach?: string[];
  checksummed: boolean;
  /** Null until it was served. */
  sector_bytes?: number | null;
  exports: Record<string, string | null>;
  on_restart: Record<string, OnRestart>;
  export_notes?: Record<string, string>;
  stable_path: string | null;
  /** How it is offered to other machines. */
  shares?: ShareView[];
}

export interface DiskCreate {
  name: string;
  pool: string;
  size_bytes: number;
  exports?: string[];
}

export interface DiskSet {
  size_bytes?: number | null;
  lose_content?: boolean;
  exports?: string[] | null;
}

export interface PoolCreate {
  name: string;
  ssd: string;
  size_bytes?: number | null;
  ram_bytes?: number | null;
  content?: string | null;
  force?: boolean;
  on_blank_ssd?: string | null;
  spare_percent?: number | null;
}

export interface PoolSet {
  content?: string | null;
  on_blank_ssd?: string | null;
}

export interface PoolReplace {
  ssd: string;
  size_bytes?: number | null;
  force?: boolean;
  drop_dirty?: boolean;
}

export interface Options {
  mode: Mode;
  admission: Admission;
  write_cache_depth_ms: number;
  dirty_limit_bytes: number | null;
  max_io_bytes: number;
  sequential_cutoff_bytes: number | null;
  log_burst_bytes: number | null;
  latency_goal_ms: number;
  destage_rate_bytes: number | null;
  read_only: boolean;
  on_ssd_loss: OnSsdLoss;
  /** Absent: off. */
  atomic_bytes?: number | null;
  /** Absent: all. */
  tls_names?: string[];
}

export interface OptionsPatch {
  mode?: string | null;
  admission?: string | null;
  write_cache_depth_ms?: number | null;
  dirty_limit?: Limit | null;
  max_io_bytes?: number | null;
  sequential_cutoff?: Limit | null;
  log_burst?: Limit | null;
  latency_goal_ms?: number | null;
  destage_rate?: Limit | null;
  read_only?: boolean | null;
  on_ssd_loss?: string | null;
  atomic?: Limit | null;
  tls_names?: string[] | null;
}

export interface VolumeView {
  name: string;
  uuid: string;
  health: Health;
  problem: string | null;
  remedy: string | null;
  pool: string;
  backing: string;
  size_bytes: number;
  /** Of the backing device, if that is another than the volume's. */
  backing_size_bytes?: number | null;
  sector_bytes: number | null;
  options: Options;
  exports: Record<string, string | null>;
  /** By export: what its users see while the daemon restarts. */
  on_restart: Record<string, OnRestart>;
  export_notes?: Record<string, string>;
  stable_path: string | null;
  /** How it is offered to other machines. */
  shares?: ShareView[];
  /** The mapped device in use whose requests go through it. */
  attached_to: string | null;
  cached_bytes: number | null;
  dirty_bytes: number | null;
  job: JobView | null;
}

/** What users of an export see while the daemon is gone and comes back. */
export type OnRestart = "waits" | "waits_if_killed" | "writes_fail" | "waits_if_restarted" | "waits_if_reconnected" | "ends";

export interface VolumeAdd {
  name: string;
  pool: string;
  backing: string;
  exports?: string[];
  sector_bytes?: number | null;
  options?: OptionsPatch;
}

export interface VolumeSet {
  options?: OptionsPatch;
  accept_backing?: boolean;
  /** How it is exported from now on, and no other way. */
  exports?: string[] | null;
}

export interface VolumeWarm {
  start_bytes?: number;
  end_bytes?: number | null;
  /** At most; none: as fast as clients leave room for. */
  rate_bytes_s?: number | null;
}

export interface Done {
  done: boolean;
  /** What was done, where the request alone does not say it. */
  summary?: string | null;
  /** The former name of summary. */
  told?: string | null;
}

export interface Latency {
  count: number;
  mean_ns: number;
  p50_ns: number;
  p90_ns: number;
  p99_ns: number;
  p999_ns: number;
  max_ns: number;
}

export interface VolumeStats {
  reads: number;
  read_bytes: number;
  writes: number;
  written_bytes: number;
  flushes: number;
  /** Of them, those that had to wait for the backing device. */
  backing_flushes?: number;
  backing_flush_longest_ns?: number;
  discards: number;
  own_reads: number;
  own_read_bytes: number;
  read_hits_ram: number;
  read_hits_ssd: number;
  read_misses: number;
  bypassed: Record<string, number>;
  dirty_bytes: number | null;
  cached_bytes: number;
  ram_bytes?: number;
  ssd_written_bytes: number;
  admitted_bytes: number;
  write_amplification: number | null;
  backing_reads: number;
  backing_read_bytes: number;
  backing_writes: number;
  backing_written_bytes: number;
  backing_discards?: number;
  partial_unit_writes?: number;
  read_along_bytes?: number;
  read_along_used_bytes?: number;
  destaged_bytes: number;
  checksum_errors: number;
  errors: number;
  latency_ns: Record<string, Latency>;
}

export interface PoolStats {
  cached_bytes: number;
  dirty_bytes: number | null;
  ssd_written_bytes: number;
  admitted_bytes: number;
  write_amplification: number | null;
  reinserted_bytes: number;
  ram_used_bytes: number;
  index_bytes: number;
  checksum_errors: number;
  ssd_read_errors?: number;
  content: ContentStats | null;
  slots: SlotStats | null;
  write_streams?: WriteStreams | null;
}

export interface StatsView {
  pools: Record<string, PoolStats>;
  volumes: Record<string, VolumeStats>;
  disks?: Record<string, VolumeStats>;
}

export interface LatencyPoint {
  count: number;
  mean_us: number;
  p50_us: number;
  p99_us: number;
}

export interface Saved {
  backing_ios: number;
  backing_bytes: number;
  waiting_s: number;
}

export interface VolumeSample {
  health: Health;
  problem?: string | null;
  mode: Mode;
  pool: string;
  size_bytes: number;
  reads_s: number;
  writes_s: number;
  read_bytes_s: number;
  written_bytes_s: number;
  outcomes_s: Record<string, number>;
  hit_ratio: number | null;
  latency: Record<string, LatencyPoint>;
  baseline_us: number | null;
  dirty_bytes: number | null;
  cached_bytes: number;
  ram_bytes?: number;
  destaged_bytes_s: number;
  backing_ios_s: number;
  ssd_written_bytes_s: number;
  bypassed_s: Record<string, number>;
  errors_s: number;
  saved: Saved;
}

/** A disk beside a cache in one second. */
export interface DiskSample {
  health: Health;
  problem?: string | null;
  pool: string;
  size_bytes: number;
  reads_s: number;
  writes_s: number;
  read_bytes_s: number;
  written_bytes_s: number;
  latency: Record<string, LatencyPoint>;
  errors_s: number;
}

export interface PoolSample {
  health: Health;
  size_bytes: number;
  cached_bytes: number;
  dirty_bytes: number | null;
  ram_used_bytes: number;
  index_bytes: number;
  ssd_written_bytes_s: number;
  admitted_bytes_s: number;
  ssd_written_bytes: number;
  write_amplification: number | null;
}

export interface Sample {
  unix_ms: number;
  span_ms: number;
  volumes: Record<string, VolumeSample>;
  disks?: Record<string, DiskSample>;
  pools: Record<string, PoolSample>;
}

export interface HistoryView {
  step_s: number;
  from_unix_s: number;
  series: Record<string, (number | null)[]>;
}

export interface Run {
  start_bytes: number;
  length_bytes: number;
  place: string;
  encoding: string | null;
  dirty: boolean;
  dirty_since_s: number | null;
  hits: string | null;
}

export interface RecentRequest {
  ago_ms: number;
  op: string;
  start_bytes: number;
  length_bytes: number;
  outcome: string;
  reason: string | null;
  summary: string;
  /** The former name of summary. */
  told?: string;
}

export interface WhyView {
  volume: string;
  start_bytes: number;
  end_bytes: number;
  blocks: number;
  on_ssd_blocks: number;
  in_ram_blocks: number;
  dirty_blocks: number;
  dirty_since_s: number | null;
  encodings: Record<string, number>;
  heat: number;
  /** What the first byte belongs to, as a sentence. */
  object: string | null;
  /** Who passed there lately, as a sentence; none: the application alone. */
  stream: string | null;
  verdict: string[];
  runs: Run[];
  recent: RecentRequest[];
  truncated: boolean;
}

export interface MapView {
  volume: string;
  start_bytes: number;
  cell_bytes: number;
  heat: number[];
  cached_bytes: number[];
  dirty_bytes: number[];
  age_ms: number;
  counted_part: number;
  /** By cell: which of `objects` has the most of it. */
  object: (number | null)[];
  /** Those with most cells first. */
  objects: MapObject[];
}

/** An object on a map. */
export interface MapObject {
  id: number;
  name: string;
  kind: string;
  /** Of which it has the most. */
  cells: number;
}

/** Body of an analysis' start: exactly one of `volume`, `device` and `trace`. */
export interface AnalysisStart {
  name: string;
  volume?: string | null;
  /** Watched from outside; nothing is written to it. */
  device?: string | null;
  trace?: string | null;
  /** Absent: until it is stopped. */
  for_ms?: number | null;
  tap?: string | null;
  /** A device is not read for names. */
  no_read?: boolean;
  mode?: string | null;
}

/** An analysis, or a volume that is watched as long as it is there. */
export interface AnalysisView {
  name: string;
  source: "volume" | "device" | "trace";
  /** The volume's name, the device's or the file's path. */
  of: string;
  /** Begun by name; otherwise it is the watch that every volume has. */
  named: boolean;
  state: "watching" | "reading" | "ended" | "failed";
  problem: string | null;
  tap: string | null;
  mode: string;
  window_ms: number;
  /** When it began; absent: a trace. */
  since_unix_s: number | null;
  /** Time since then that is not in the window: the daemon did not run, or nothing was there. */
  away_ms: number;
  read_bytes: number;
  scanned_bytes: number;
  written_bytes: number;
  /** Of different blocks; estimated. */
  touched_bytes: number;
  sampled_share: number;
  lost_requests: number;
  memory_bytes: number;
  streams: StreamView[];
}

/** Requests of one kind. */
export interface StreamView {
  of: string;
  class: string;
  evidence: string;
  /** Who sends them, where that is visible. */
  who?: string | null;
  requests: number;
  read_bytes: number;
  written_bytes: number;
  idle_ms: number;
}

export interface AdviceAsk {
  name?: string | null;
  targets_percent?: number[];
  budget_bytes?: number | null;
  with_backups?: boolean;
}

/** Advice for one load. */
export interface AdviceView {
  id: number;
  name: string;
  pool: string | null;
  window_ms: number;
  with_backups: boolean;
  scanned_bytes: number;
  targets: TargetView[];
  /** Smallest first; empty while no forecast is possible. */
  curve: AdvicePoint[];
  now: AdvicePoint | null;
  more: AdvicePoint[];
  /** Beside that SSD. */
  ram_bytes: number;
  /** Bytes of clients that a byte of SSD holds. */
  stored_share: number;
  content_factor: number | null;
  ram_us: number | null;
  ssd_us: number | null;
  backing_us: number | null;
  /** Those that bring most of the hits first. */
  objects: AdviceObject[];
  sentences: string[];
}

/** What one object brings. */
export interface AdviceObject {
  /** In the advice for a pool; null: the volume that the advice is for. */
  volume: string | null;
  /** On its volume; null: all blocks of which nothing is known. */
  id: number | null;
  name: string;
  kind: string;
  hits_percent: number;
  reads_percent: number;
  ssd_bytes: number;
  /** "cache" or "never". */
  advice: string;
}

/** What an advice comes to when it is applied. */
export interface AdviceApplied {
  id: number;
  volume: string;
  dry_run: boolean;
  changes: string[];
  /** Left to people. */
  to_do: string[];
  /** What is read into the cache; none: nothing. */
  preload: PreloadView | null;
}

/** A forecast against what came. */
export interface AdviceVerified {
  id: number;
  volume: string;
  window_ms: number;
  forecast_percent: number | null;
  forecast_percent_low: number | null;
  forecast_percent_high: number | null;
  measured_percent: number | null;
  /** By how much the forecast was too high; negative: too low. */
  error_points: number | null;
  sentences: string[];
}

/** How much SSD a share of hits takes. */
export interface TargetView {
  hits_percent: number;
  /** Null: not known yet; 0: RAM alone does it. */
  ssd_bytes: number | null;
  ssd_bytes_low: number | null;
  ssd_bytes_high: number | null;
  read_us: number | null;
  ssd_written_bytes_per_day: number | null;
  not_yet: string | null;
  /** Null: unknown. */
  more_ms: number | null;
}

/** Hits at some size, in percent of the reads of blocks that were used before. */
export interface AdvicePoint {
  ssd_bytes: number;
  hits_percent: number;
  hits_percent_low: number;
  hits_percent_high: number;
  /** What a read takes then; null: unknown. */
  read_us: number | null;
  ssd_written_bytes_per_day: number | null;
}

/** The body of a failed call (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  remedy: string | null;
  kind: string;
  instance: string;
}

/** Longest range that `why` looks into at once. */
export const WHY_BYTES_MAX = 2 ** 30;
