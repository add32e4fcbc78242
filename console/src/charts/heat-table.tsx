/** The same as the picture of the address space, for those who read rather than look. */

import { useState } from "preact/hooks";
import type { MapView } from "../api";
import { bytes, digits, percent } from "../format";

/** So many rows sum up the cells. */
const ROWS = 16;

interface Props {
  map: MapView;
  size_bytes: number;
  onAsk: (start_bytes: number, end_bytes: number) => void;
}

export function HeatTable({ map, size_bytes, onAsk }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <details class="heat-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The same as a table</summary>
      {open && (
        <div class="table-box">
          <table>
            <thead><tr><th scope="col">Range</th><th scope="col" class="right">Cached</th><th scope="col" class="right">Dirty</th><th scope="col" class="right">Accesses lately</th>{map.objects.length > 0 && <th scope="col">Most of it</th>}<th scope="col"><span class="hidden">Ask</span></th></tr></thead>
            <tbody>{rows(map, size_bytes).map((row) => (
              <tr key={row.start}>
                <th scope="row">{bytes(row.start)} to {bytes(row.end)}</th>
                <td class="right" data-label="Cached">{bytes(row.cached)} ({percent(Math.min(1, row.cached / (row.end - row.start)))})</td>
                <td class="right" data-label="Dirty">{bytes(row.dirty)}</td>
                <td class="right" data-label="Accesses lately">{digits(row.heat)}</td>
                {map.objects.length > 0 && <td data-label="Most of it">{row.object ?? "–"}</td>}
                <td class="right"><button type="button" class="button small" aria-label={`Why, for ${bytes(row.start)} to ${bytes(row.end)}`} onClick={() => onAsk(row.start, row.end)}>Why?</button></td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </details>
  );
}

function rows(map: MapView, size_bytes: number): { start: number; end: number; cached: number; dirty: number; heat: number; object: string | null }[] {
  const each = Math.ceil(map.heat.length / ROWS);
  const found = [];
  for (let first = 0; first < map.heat.length; first += each) {
    const to = Math.min(first + each, map.heat.length);
    const sum = (values: number[]): number => values.slice(first, to).reduce((total, value) => total + value, 0);
    const start = map.start_bytes + first * map.cell_bytes;
    const end = Math.min(map.start_bytes + to * map.cell_bytes, size_bytes);
    found.push({ start, end, cached: sum(map.cached_bytes), dirty: sum(map.dirty_bytes), heat: sum(map.heat), object: most(map, first, to) });
  }
  return found;
}

/** The object that has most of the cells of a row. */
function most(map: MapView, first: number, to: number): string | null {
  const cells = new Map<number, number>();
  for (const object of map.object.slice(first, to)) if (object !== null) cells.set(object, (cells.get(object) ?? 0) + 1);
  const [place] = [...cells].reduce(([best, count], [object, has]) => (has > count ? [object, has] : [best, count]), [-1, 0]);
  return map.objects[place]?.name ?? null;
}
