/** Applications that the mock has found, and the policies of their objects. */

import type { AdviceApplied, AdviceObject, AdviceVerified, AdviceView } from "../src/api";
import type { ObjectPoint, ObjectPreload, ObjectSet, ObjectView, PolicyDone, PreloadView, VolumeApplications } from "../src/api-objects";
import { GIB, MIB } from "./volume";
import type { World } from "./world";

/** Database, name, kind, MiB of its file (0: lies in its table's), MiB read, percent of hits, MiB written. */
type Line = [string | null, string, string, number, number, number | null, number];

const MARIADB: Line[] = [
  ["shop", "shop.orders", "table", 9216, 0, null, 0],
  ["shop", "shop.orders/PRIMARY", "index", 0, 31_200, 97.2, 4100],
  ["shop", "shop.orders/ix_customer", "index", 0, 8400, 94.6, 900],
  ["shop", "shop.items", "table", 4096, 0, null, 0],
  ["shop", "shop.items/PRIMARY", "index", 0, 12_900, 96.1, 40],
  ["shop", "shop.audit", "table", 46_080, 0, null, 0],
  ["shop", "shop.audit/PRIMARY", "index", 0, 5400, 0.4, 2200],
  ["mysql", "mysql.innodb_table_stats", "table", 1, 3, 88, 1],
  ["mysql", "mysql.innodb_index_stats", "table", 1, 0, null, 1],
  [null, "system tablespace", "dictionary", 76, 0, null, 3],
  [null, "redo", "redo", 2048, 0, null, 9800],
  [null, "doublewrite", "doublewrite", 4, 0, null, 4200],
  [null, "undo_001", "undo", 512, 210, 99.9, 1300],
];
const POSTGRES: Line[] = [
  ["postgres", "postgres/public.pgbench_accounts", "table", 7400, 2100, 71.3, 600],
  ["postgres", "postgres/public.pgbench_accounts_pkey", "index", 1100, 900, 93.8, 20],
  ["postgres", "postgres/pg_toast.pgbench_accounts", "toast", 300, 40, 62, 1],
  ["postgres", "postgres/pg_catalog.pg_class", "dictionary", 1, 9, 99.9, 1],
  ["postgres", "postgres/pg_catalog.pg_class/pg_class_oid_index", "dictionary", 1, 12, 99.9, 0],
  ["postgres", "postgres/pg_toast.pg_proc", "dictionary", 1, 0, null, 0],
  ["postgres", "postgres/information_schema.sql_features", "dictionary", 1, 0, null, 0],
  [null, "wal", "wal", 1024, 0, null, 5200],
];

const isLog = (kind: string): boolean => kind === "redo" || kind === "wal" || kind === "doublewrite";

const objects = (volume: string, application: number, engine: string, directory: string, lines: Line[]): ObjectView[] =>
  lines.map(([database, name, kind, size, read, hits_percent, written], index) => {
    const table = size === 0 && kind === "index" ? name.split("/")[0]! : null;
    return {
      id: application * 100 + index,
      volume,
      application,
      engine,
      instance: directory,
      database,
      kind,
      name,
      within: table,
      bytes: size * MIB,
      extents: table === null ? Math.ceil(size / 128) : 0,
      path: `${directory}/${(table ?? name).replace(".", "/")}`.slice(1),
      encrypted: name === "shop.audit",
      being_built: false,
      evidence: "page content, file map, catalogue",
      read_bytes: read * MIB,
      hits_percent,
      written_bytes: written * MIB,
      curve: curveOf(lines, read, hits_percent),
      ...byDefault(kind),
    };
  });

/** Twelve doublings up to 512 GiB; what is read more has its hits with less. */
function curveOf(lines: Line[], read: number, hits_percent: number | null): ObjectPoint[] {
  const all = lines.reduce((sum, line) => sum + line[4], 0);
  const most = ((read * (hits_percent ?? 0)) / all) * 0.99;
  if (most < 0.05) return [];
  return Array.from({ length: 12 }, (_, at) => {
    const ssd_bytes = GIB * 2 ** (at - 2);
    const hits = most * (1 - Math.exp(-(((ssd_bytes / MIB) * 2.5) / read)));
    return { ssd_bytes, hits_percent: Math.round(hits * 100) / 100 };
  });
}

const byDefault = (kind: string): Pick<ObjectView, "admit" | "writes" | "on_scan" | "policy"> => ({
  admit: isLog(kind) ? "never" : "normal",
  writes: "inherit",
  on_scan: "hit-only",
  policy: "default",
});

export const firstObjects = (): ObjectView[] => [
  ...objects("db", 1, "InnoDB", "/var/lib/mysql", MARIADB),
  ...objects("vm-images", 2, "PostgreSQL", "/postgresql/15/main", POSTGRES),
];

export function applications(world: World): VolumeApplications[] {
  const found = (volume: string, version: string | null): VolumeApplications["applications"] => {
    const of = world.objects.filter((object) => object.volume === volume);
    if (of.length === 0) return [];
    const sum = (some: ObjectView[]): number => some.reduce((all, { bytes }) => all + bytes, 0);
    const databases = [...new Set(of.flatMap(({ database }) => database ?? []))].map((name) => {
      const inside = of.filter(({ database }) => database === name);
      return { name, objects: inside.length, bytes: sum(inside) };
    });
    const instance = volume === "db" ? "/var/lib/mysql" : null;
    return [{ id: of[0]!.application, engine: of[0]!.engine, version, instance, evidence: of[0]!.evidence, objects: of.length, bytes: sum(of), databases, connection: null }];
  };
  const of = (volume: string, rest: Partial<VolumeApplications>): VolumeApplications => ({
    volume, state: "found", problem: null, age_ms: 312_000, looked_at_bytes: 34 * MIB, complete: true, blind: [], unknown_percent: 0.8, applications: [], ...rest,
  });
  const running = [...world.volumes.values()].map(({ view }) => view).filter((view) => view.health === "running");
  return running.map(({ name }) => {
    if (world.looking.has(name)) return of(name, { state: "looking", age_ms: null });
    switch (name) {
      case "db":
        return of(name, { applications: found(name, "MariaDB 10.11.6") });
      case "vm-images":
        return of(name, {
          applications: found(name, null), complete: false, unknown_percent: 23.4,
          blind: [{ start_bytes: 512 * GIB, end_bytes: 768 * GIB, reason: "an encrypted LUKS2 volume lies there" }, { start_bytes: 800 * GIB, end_bytes: 1024 * GIB, reason: "a file system of the kind xfs lies there, which cannot be read yet" }],
        });
      case "archive":
        return of(name, { state: "failed", problem: "8 reads of the backing device failed", age_ms: null, unknown_percent: null });
      default:
        return of(name, { state: "waiting", age_ms: null, looked_at_bytes: 0, complete: false, unknown_percent: null });
    }
  });
}

export function list(world: World, query: URLSearchParams): ObjectView[] {
  const is = (key: string, ...values: (string | number)[]): boolean => !query.has(key) || values.map(String).includes(query.get(key)!);
  const fit = world.objects.filter((one) => is("volume", one.volume) && is("application", one.application) && is("kind", one.kind) && is("object", one.name, one.id));
  const key = query.get("sort") === "size" ? "bytes" : "read_bytes";
  return fit.sort((a, b) => (query.get("sort") === "name" ? a.name.localeCompare(b.name) : b[key] - a[key])).slice(0, Number(query.get("limit") ?? 1000));
}

/** What is refused, as a sentence; or what it became. */
export function setPolicy(world: World, set: ObjectSet): PolicyDone | string {
  world.policies.push(set);
  const fit = world.objects.filter((one) => one.volume === set.volume && String(one.application) === set.application && (set.kind ? set.kind === one.kind : (set.objects ?? []).includes(String(one.id))));
  const bytes = fit.reduce((all, one) => all + one.bytes, 0);
  if (set.admit === "pinned" && fit.some((one) => one.kind === "table" && one.bytes > 40 * GIB))
    return "45 GiB would be pinned, and the pool \"fast\" keeps at most 30 GiB of pinned objects";
  for (const one of fit) {
    if (set.reset) Object.assign(one, byDefault(one.kind));
    else Object.assign(one, { policy: "rule", admit: set.admit ?? one.admit, writes: set.writes ?? one.writes, on_scan: set.on_scan ?? one.on_scan });
  }
  const sentences = fit.some((one) => one.writes !== "inherit") ? ["Writes to them wait for the backing device, whatever the volume's mode."] : [];
  return { objects: fit.length, bytes, pinned_bytes: 0, sentences };
}

/** What brings the hits of a volume: by hits, then what is read for nothing. */
export function brought(world: World, volume: string): AdviceObject[] {
  const read = world.objects.filter((one) => one.volume === volume && one.read_bytes > 0);
  const reads = read.reduce((all, one) => all + one.read_bytes, 0);
  const gained = (one: ObjectView): number => one.read_bytes * (one.hits_percent ?? 0);
  const all = read.reduce((sum, one) => sum + gained(one), 0);
  const one = (value: number): number => Math.round(value * 10) / 10;
  return read
    .sort((a, b) => gained(b) - gained(a))
    .map((object) => ({
      volume: null,
      id: object.id,
      name: object.name,
      kind: object.kind,
      hits_percent: one((gained(object) / all) * 100),
      reads_percent: one((object.read_bytes / reads) * 100),
      ssd_bytes: Math.round(object.read_bytes / 4),
      advice: (object.hits_percent ?? 0) < 5 ? "never" : "cache",
    }));
}

function preloaded(world: World, volume: string, what: string, bytes: number, ranges: number, dry_run: boolean): PreloadView {
  const job = dry_run ? null : world.begin("preload", volume, bytes, 30, () => world.tell("info", volume, `preload of ${what} done`));
  return { volume, what, bytes, read_bytes: Math.round(bytes * 1.1), ranges, job };
}

/** What would be read of an object, or its job. */
export function preload(world: World, asked: ObjectPreload): PreloadView | string {
  const object = world.objects.find((one) => one.volume === asked.volume && String(one.id) === asked.objects?.[0])!;
  if (object.admit === "never") return `"${object.name}" does not enter the cache: that is its policy`;
  const all = object.within === null ? object.bytes : Math.round(object.read_bytes / 4);
  const bytes = Math.min(all, asked.budget_bytes ?? all);
  return preloaded(world, object.volume, object.name, bytes, Math.max(1, object.extents), asked.dry_run ?? false);
}

export function apply(world: World, view: AdviceView, dry_run: boolean): AdviceApplied {
  const out = view.objects.filter(({ advice }) => advice === "never");
  if (!dry_run) for (const { id } of out) setPolicy(world, { volume: view.name, application: "1", objects: [String(id)], admit: "never" });
  return {
    id: view.id,
    volume: view.name,
    dry_run,
    changes: [
      ...out.map((one) => `${one.name} is not let into the cache: ${one.reads_percent} % of the reads, ${one.hits_percent} % of the hits.`),
      "9 GiB in 410 pieces of db enter the cache: as much is written to the SSD at most.",
    ],
    preload: preloaded(world, view.name, `advice ${view.id}`, 9 * 1024 * MIB, 410, dry_run),
    to_do: ["For 99 % of hits the pool's SSD must be 666 GiB large.", "`hearth pool replace fast --ssd PATH` puts the pool on another SSD while clients go on."],
  };
}

export const verify = (view: AdviceView): AdviceVerified => ({
  id: view.id,
  volume: view.name,
  window_ms: 26 * 60_000,
  forecast_percent: view.now?.hits_percent ?? null,
  forecast_percent_low: view.now?.hits_percent_low ?? null,
  forecast_percent_high: view.now?.hits_percent_high ?? null,
  measured_percent: view.now ? view.now.hits_percent - 1.2 : null,
  error_points: view.now ? 1.2 : null,
  sentences: view.now ? ["The forecast holds."] : ["This advice has no forecast for the present SSD: get new advice with `hearth advise`."],
});
