/** Every volume at a glance. */

import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { VolumeView } from "../api";
import { counted } from "../format";
import { pools, volumes } from "../live/store";
import { liveVolume, onSample } from "../live/volumes";
import { recall, remember } from "../memory";
import { Empty } from "../ui/basics";
import { Icon } from "../ui/icon";
import { Row, SPAN } from "./overview-row";
import { Totals } from "./overview-totals";

export type Column = "name" | "iops" | "hit" | "latency" | "dirty" | "saved";

const COLUMNS: { key: Column | null; word: string; title?: string; className: string }[] = [
  { key: "name", word: "Volume", className: "c-name" },
  { key: null, word: "Health", className: "c-health" },
  { key: "iops", word: "IOPS", title: "Requests a second: now, and over the last five minutes", className: "c-spark" },
  { key: "hit", word: "Hit rate", title: "Part of the reads served from the cache", className: "c-spark" },
  { key: "latency", word: "Latency", title: "Mean now (solid), and what a request would take without the cache (dashed)", className: "c-spark" },
  { key: "dirty", word: "Dirty", title: "Dirty bytes; the bar compares them with the volume's dirty limit, or with the pool's size", className: "c-dirty" },
  { key: "saved", word: "Saved", title: "What the cache has saved since the daemon's start: I/Os and bytes of the backing device, and time that clients did not wait", className: "c-saved" },
];

const sort = signal<{ by: Column; down: boolean }>(remembered());
const filter = signal("");
/** The order is taken anew every few seconds, not with each sample: rows that jump cannot be read. */
const order = signal(0);

function remembered(): { by: Column; down: boolean } {
  const [by, down] = (recall("overview.sort") ?? "name,").split(",");
  return COLUMNS.some((column) => column.key === by) ? { by: by as Column, down: down === "down" } : { by: "name", down: false };
}

function measure(volume: VolumeView, by: Column): number {
  const sample = liveVolume(volume.name).sample.peek();
  switch (by) {
    case "name":
      return 0;
    case "iops":
      return sample ? sample.reads_s + sample.writes_s : -1;
    case "hit":
      return sample?.hit_ratio ?? -1;
    case "latency":
      return sample?.latency["all"]?.mean_us ?? -1;
    case "dirty":
      return sample?.dirty_bytes ?? volume.dirty_bytes ?? -1;
    case "saved":
      return sample?.saved.waiting_s ?? -1;
  }
}

const names = new Intl.Collator("en", { numeric: true });

const shown = computed(() => {
  void order.value;
  const { by, down } = sort.value;
  const text = filter.value.trim().toLowerCase();
  const fits = (volume: VolumeView): boolean =>
    text === "" || [volume.name, volume.pool, volume.backing, volume.options.mode, volume.health].some((word) => word.toLowerCase().includes(text));
  const list = volumes.value.filter(fits).map((volume) => ({ volume, key: measure(volume, by) }));
  list.sort((a, b) => (a.key - b.key || names.compare(a.volume.name, b.volume.name)) * (down ? -1 : 1));
  return list.map((item) => item.volume);
});

function sortBy(key: Column): void {
  const now = sort.peek();
  // Names read upwards first, figures downwards.
  sort.value = now.by === key ? { by: key, down: !now.down } : { by: key, down: key !== "name" };
  remember("overview.sort", `${sort.value.by},${sort.value.down ? "down" : ""}`);
}

export function Overview() {
  useEffect(() => {
    let seconds = 0;
    return onSample(() => {
      seconds += 1;
      const body = document.querySelector(".volumes tbody");
      const touched = body?.matches(":hover") || body?.contains(document.activeElement);
      if (seconds % 5 === 1 && !touched) order.value += 1;
    });
  }, []);
  if (volumes.value.length === 0) return <Nothing />;
  const { by, down } = sort.value;
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Overview</h1>
        <label class="search">
          <span class="hidden">Show volumes whose name, pool, disk or mode contains</span>
          <input type="search" placeholder="Filter volumes" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} />
        </label>
      </div>
      <Totals />
      <label class="sort-choice">
        <span>Sort by</span>
        <select value={by} onChange={(event) => sortBy(event.currentTarget.value as Column)}>
          {COLUMNS.filter((column) => column.key).map((column) => <option key={column.key} value={column.key!}>{column.word}</option>)}
        </select>
      </label>
      <div class="table-box">
        <table class="volumes">
          <caption class="hidden">{counted(volumes.value.length, "volume")}, with the present second</caption>
          <thead>
            <tr>
              {COLUMNS.map((column) => (
                <th key={column.word} scope="col" class={column.className} aria-sort={column.key === by ? (down ? "descending" : "ascending") : undefined} title={column.title}>
                  {column.key ? (
                    <button type="button" onClick={() => sortBy(column.key!)}>
                      {column.word}
                      <span class="sort-mark">{column.key === by && <Icon name={down ? "down" : "up"} />}</span>
                    </button>
                  ) : column.word}
                  {column.className === "c-spark" && <span class="under">last {SPAN}</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.value.map((volume) => <Row key={volume.name} volume={volume} />)}
          </tbody>
        </table>
      </div>
      {shown.value.length === 0 && <Empty title={`No volume contains "${filter.value}"`}><button type="button" class="button" onClick={() => (filter.value = "")}>Show all</button></Empty>}
    </>
  );
}

function Nothing() {
  const first = pools.value[0];
  return (
    <div class="empty large">
      <h1 tabIndex={-1}>Nothing is accelerated yet</h1>
      <p>{first ? `The pool ${first.name} is ready. ` : "An SSD becomes a pool; "}a slow disk behind it becomes a volume with the same bytes, only faster.</p>
      <p><a class="button primary" href="#/setup">Set up the first volume</a></p>
    </div>
  );
}
