// How a pool uses its SSD, as the API says it: savings by content, and its slots.

import type { Content } from "./api";

export interface ContentStep {
  step: string;
  open: boolean;
  open_shards: number;
  shards: number;
  saved_part: number;
  opens_from_part: number;
}

export interface ContentStats {
  level: Content;
  reference_blocks: number;
  associated_blocks: number;
  independent_blocks: number;
  zero_blocks: number;
  uncached_reference_blocks: number;
  cached_bytes: number;
  stored_bytes: number;
  effective_capacity: number | null;
  saved_bytes: number;
  encoded_blocks: number;
  encoding_cpu_us_per_block: number | null;
  bases_in_memory_blocks: number;
  index_bytes: number;
  hint_bytes: number;
  memory_bytes_per_block: number | null;
  steps: Record<string, ContentStep[]>;
}

/** One of the policies that decide what stays. */
export interface PolicyStats {
  policy: string;
  shards: number;
  miss_part: number | null;
}

/** How the SSD is used. */
export interface SlotStats {
  size_bytes: number;
  live_bytes: number;
  live_part: number;
  free_bytes: number;
  free_runs: number;
  packed_bytes: number;
  packed_blocks: number;
  packed_payload_bytes: number;
  ring_bytes: number;
  ring_used_bytes: number;
  policies: PolicyStats[];
  policy_changes: number;
  accesses_since_change: number;
}

/** How a pool uses the write streams of its SSD. */
export interface WriteStreams {
  announced: number;
  /** What each of those in use is for. */
  uses: string[];
  /** Why the SSD refused a write that named one; then none is named. */
  refused: string | null;
}

/** How much of a pool's SSD stays unused. */
export interface SpareView {
  percent: number;
  reason: string;
  not_discarded: string | null;
}

/** The estimate for drives that were made with so much spare. */
export interface FlashEstimate {
  own_spare_percent: number;
  even: number;
  skewed: number;
}

/** What an SSD writes to its flash for each byte that it is given, estimated by a model. */
export interface FlashView {
  kept_part: number;
  estimates: FlashEstimate[];
  note: string | null;
}
