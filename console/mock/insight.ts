/** What the mock has watched: its running volumes, and analyses that are started in it. */

import type {
  AdviceAsk,
  AdvicePoint,
  AdviceView,
  AnalysisStart,
  AnalysisView,
  StreamView,
  TargetView,
} from "../src/api";
import { brought } from "./objects";
import { GIB, MIB } from "./volume";
import type { World } from "./world";

/** The size at which a load hits half the time, and how much of it is told. */
const CHARACTERS: Record<string, { half_bytes: number; told: "all" | "some" | "ram" | "none" }> = {
  db: { half_bytes: 22 * GIB, told: "all" },
  mail: { half_bytes: 30 * GIB, told: "none" },
  archive: { half_bytes: GIB, told: "ram" },
  "vm-images": { half_bytes: 60 * GIB, told: "some" },
};

const streams = (of: string): StreamView[] => [
  {
    of,
    class: "application",
    evidence: "nothing known",
    requests: 1_204_331,
    read_bytes: 61 * GIB,
    written_bytes: 9 * GIB,
    idle_ms: 120,
  },
  {
    of,
    class: "backup",
    evidence: "read several objects in a row",
    requests: 98_112,
    read_bytes: 212 * GIB,
    written_bytes: 0,
    idle_ms: 840_000,
  },
  {
    of,
    class: "scan",
    evidence: "leaf pages in key order",
    requests: 20_418,
    read_bytes: 11 * GIB,
    written_bytes: 0,
    idle_ms: 7400,
  },
  {
    of,
    class: "log",
    evidence: "writes continue their tail",
    requests: 310_882,
    read_bytes: 2 * MIB,
    written_bytes: 14 * GIB,
    idle_ms: 400,
  },
];

const watch = (name: string, rest: Partial<AnalysisView>): AnalysisView => ({
  name,
  source: "volume",
  of: name,
  named: false,
  state: "watching",
  problem: null,
  tap: null,
  mode: "write-back",
  window_ms: 41 * 60_000,
  since_unix_s: Math.round(Date.now() / 1000) - 41 * 60,
  away_ms: 0,
  read_bytes: 61 * GIB,
  scanned_bytes: 223 * GIB,
  written_bytes: 23 * GIB,
  touched_bytes: 34 * GIB,
  sampled_share: 1 / 64,
  lost_requests: 0,
  memory_bytes: 2 * MIB,
  streams: streams(name),
  ...rest,
});

/** All that is watched. */
export function loads(world: World): AnalysisView[] {
  const volumes = [...world.volumes.values()]
    .map((volume) => volume.view)
    .filter((view) => view.health === "running");
  const of = (name: string): Partial<AnalysisView> =>
    name === "db"
      ? {}
      : {
          window_ms: 90_000,
          read_bytes: 300 * MIB,
          scanned_bytes: 0,
          written_bytes: 80 * MIB,
          streams: [],
        };
  return [
    ...volumes.map((view) => watch(view.name, { mode: view.options.mode, ...of(view.name) })),
    ...world.analyses.values(),
  ];
}

export function start(world: World, body: AnalysisStart): AnalysisView {
  const begun = watch(body.name, {
    source: "device",
    of: body.device ?? "",
    named: true,
    tap: "bpf",
    mode: "write-through",
    lost_requests: 12,
  });
  world.analyses.set(body.name, begun);
  return begun;
}

/** Hits at a size: half of them at `half_bytes`, never quite all. */
function point(ssd_bytes: number, half_bytes: number): AdvicePoint {
  const hits = 99.7 / (1 + (half_bytes / ssd_bytes) ** 1.6);
  const round = (value: number): number => Math.round(value * 10) / 10;
  return {
    ssd_bytes: Math.round(ssd_bytes),
    hits_percent: round(hits),
    hits_percent_low: round(hits - hits * (100 - hits) * 0.0012 - 0.3),
    hits_percent_high: round(Math.min(100, hits + hits * (100 - hits) * 0.0012 + 0.2)),
    read_us: 84 + (100 - hits) * 80,
    ssd_written_bytes_per_day: Math.round(70 * GIB * (1 - hits / 200)),
  };
}

const untold = (hits_percent: number, not_yet: string, more_ms: number | null): TargetView => ({
  hits_percent,
  ssd_bytes: null,
  ssd_bytes_low: null,
  ssd_bytes_high: null,
  read_us: null,
  ssd_written_bytes_per_day: null,
  not_yet,
  more_ms,
});

export function advise(world: World, load: AnalysisView, ask: AdviceAsk): AdviceView {
  const { half_bytes, told } = CHARACTERS[load.name] ?? {
    half_bytes: 8 * GIB,
    told: load.named ? "all" : "none",
  };
  const half = half_bytes * (ask.with_backups ? 2.4 : 1);
  const size = load.source === "volume" ? world.pools.get("fast")?.size_bytes : undefined;
  const none = told === "none";
  const targets = [50, 90, 99].map((percent): TargetView => {
    if (told === "ram")
      return {
        ...untold(percent, "", null),
        ssd_bytes: 0,
        ssd_bytes_low: 0,
        ssd_bytes_high: 0,
        read_us: 14,
        ssd_written_bytes_per_day: 0,
        not_yet: null,
      };
    if (none)
      return untold(percent, "1234 of 20000 reads of blocks that were used before", 22 * 60_000);
    if (told === "some" && percent === 99)
      return untold(
        99,
        "the working set still grows: 31 GiB after three quarters of the time, 44 GiB after all of it",
        30_000,
      );
    const ssd = half / (99.7 / percent - 1) ** (1 / 1.6);
    return {
      hits_percent: percent,
      ssd_bytes: Math.round(ssd),
      ssd_bytes_low: Math.round(ssd * 0.96),
      ssd_bytes_high: Math.round(ssd * 1.04),
      read_us: 8100 * (1 - percent / 100) + 90,
      ssd_written_bytes_per_day: Math.round(percent * 0.7e9),
      not_yet: null,
      more_ms: null,
    };
  });
  const curve =
    none || told === "ram"
      ? []
      : Array.from({ length: 12 }, (_, index) => point(half * 0.7 * 2 ** (index * 0.6), half));
  const now = curve.length === 0 || size === undefined ? null : point(size, half);
  const more = now ? [4, 100].map((gib) => point(now.ssd_bytes + gib * GIB, half)) : [];
  return {
    id: 7,
    name: load.name,
    pool: load.source === "volume" ? "fast" : null,
    window_ms: load.window_ms,
    with_backups: ask.with_backups ?? false,
    scanned_bytes: load.scanned_bytes,
    targets,
    curve,
    now,
    more,
    ram_bytes: now ? 2 * GIB : 0,
    stored_share: 1.36,
    content_factor: load.named ? null : 1.4,
    ram_us: load.named ? null : 12.1,
    ssd_us: load.named ? null : 84,
    backing_us: 8100,
    objects: none ? [] : brought(world, load.name),
    sentences: now
      ? [
          `You have ${now.ssd_bytes / GIB} GiB: ${now.hits_percent.toFixed(0)} % hits (band ${now.hits_percent_low.toFixed(0)} to ${now.hits_percent_high.toFixed(0)}).`,
        ]
      : none
        ? []
        : [
            "What content locality saves is not known here, and counted as nothing.",
            "No hits of an SSD were measured here: 100 µs is taken for one.",
          ],
  };
}
