/** The address space of a volume as a picture that can be walked by pointer and keyboard. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { MapObject, MapView } from "../api";
import { bytes, counted, digits, percent } from "../format";
import { connection } from "../live/connection";
import { recall, remember } from "../memory";
import { ApiError, get, part } from "../rest";
import { palette } from "../theme";
import { Icon } from "../ui/icon";
import { cellLength, cellsFor, grid, OBJECT_COLOURS, objectColour, paint, type Layer } from "./heat-paint";
import { HeatTable } from "./heat-table";
import { prepare } from "./spark";

const LAYERS: [Layer, string][] = [["all", "All"], ["heat", "Heat"], ["cached", "Cached"], ["dirty", "Dirty"], ["objects", "Objects"]];
const REFRESH_MS = 5000;
const MIB = 2 ** 20;

interface Props {
  volume: string;
  size_bytes: number;
  /** Somebody asks about a range. */
  onAsk: (start_bytes: number, end_bytes: number) => void;
}

export function HeatMap({ volume, size_bytes, onAsk }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [map, setMap] = useState<MapView | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [width, setWidth] = useState(0);
  const [view, setView] = useState<{ start: number; end: number }>({ start: 0, end: size_bytes });
  const stored = recall("heat.layer") as Layer | null;
  const [layer, setLayer] = useState<Layer>(LAYERS.some(([name]) => name === stored) ? stored! : "all");
  const selected = useSignal(0);
  const hovered = useSignal<number | null>(null);

  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);

  useEffect(() => {
    if (width === 0) return;
    const given = new AbortController();
    const load = async (): Promise<void> => {
      if (document.hidden || connection.peek() === "lost") return;
      try {
        const query = { start_bytes: view.start, end_bytes: view.end, cells: cellsFor(width) };
        setMap(await get<MapView>(`/volumes/${part(volume)}/map`, query, given.signal));
        setProblem(null);
      } catch (error) {
        if (!given.signal.aborted) setProblem(error instanceof ApiError ? error.message : String(error));
      }
    };
    void load();
    const timer = setInterval(() => void load(), REFRESH_MS);
    return () => {
      given.abort();
      clearInterval(timer);
    };
  }, [volume, width, view.start, view.end]);

  const cells = map?.heat.length ?? 0;
  const shape = grid(Math.max(width, 100), Math.max(cells, 1));
  const height = shape.rows * shape.side;
  const at = Math.min(selected.value, Math.max(0, cells - 1));

  useEffect(() => {
    if (!canvas.current || !map) return;
    canvas.current.style.height = `${height}px`;
    const ready = prepare(canvas.current);
    if (!ready) return;
    const colours = palette.value;
    paint(ready.context, map, size_bytes, layer, shape, colours);
    outline(ready.context, shape, at, colours.text);
    if (hovered.value !== null && hovered.value < cells) outline(ready.context, shape, hovered.value, colours.accent);
  });

  const cellOf = (event: PointerEvent | MouseEvent): number | null => {
    const place = canvas.current!.getBoundingClientRect();
    const column = Math.floor((event.clientX - place.left) / shape.side);
    const index = Math.floor((event.clientY - place.top) / shape.side) * shape.columns + column;
    return column >= 0 && column < shape.columns && index >= 0 && index < cells ? index : null;
  };
  const ask = (index: number): void => {
    if (!map) return;
    const start = map.start_bytes + index * map.cell_bytes;
    onAsk(start, start + cellLength(map, index, size_bytes));
  };
  const zoom = (factor: number): void => {
    if (!map) return;
    const centre = map.start_bytes + (at + 0.5) * map.cell_bytes;
    const length = Math.min(size_bytes, Math.max(64 * MIB, (view.end - view.start) * factor));
    const start = Math.max(0, Math.min(size_bytes - length, Math.floor((centre - length / 2) / MIB) * MIB));
    const end = Math.min(size_bytes, start + length);
    setView({ start, end });
    // The cell stays about where it was in the volume.
    selected.value = Math.max(0, Math.floor(((centre - start) / (end - start)) * cells));
  };
  const move = (to: number): void => {
    selected.value = Math.max(0, Math.min(cells - 1, to));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const steps: Record<string, () => void> = {
      ArrowLeft: () => move(at - 1),
      ArrowRight: () => move(at + 1),
      ArrowUp: () => move(at < shape.columns ? at : at - shape.columns),
      ArrowDown: () => move(at + shape.columns >= cells ? at : at + shape.columns),
      Home: () => move(0),
      End: () => move(cells - 1),
      PageUp: () => move(at - shape.columns * 5),
      PageDown: () => move(at + shape.columns * 5),
      "+": () => zoom(0.25),
      "-": () => zoom(4),
      Enter: () => ask(at),
      " ": () => ask(at),
    };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    hovered.value = null;
    step();
  };
  const spoken = hovered.value ?? at;
  const whole = view.start === 0 && view.end === size_bytes;

  return (
    <div class="heat">
      <div class="heat-head">
        <div class="segments" role="group" aria-label="What the picture shows">
          {LAYERS.map(([name, word]) => (
            <button key={name} type="button" aria-pressed={layer === name} onClick={() => { setLayer(name); remember("heat.layer", name); }}>{word}</button>
          ))}
        </div>
        <div class="icons" role="group" aria-label="Part of the volume">
          <button type="button" class="icon-button" aria-label="Zoom into the marked place" title="Zoom into the marked place (+)" onClick={() => zoom(0.25)}><Icon name="plus" /></button>
          <button type="button" class="icon-button" aria-label="Zoom out" title="Zoom out (-)" disabled={whole} onClick={() => zoom(4)}><Icon name="minus" /></button>
        </div>
        <HeatLegend layer={layer} map={map} />
      </div>
      <div ref={box} class="heat-box">
        <canvas
          ref={canvas}
          class="heat-canvas"
          tabIndex={0}
          role="slider"
          aria-label="Place in the volume. Arrow keys move, Enter asks why"
          aria-valuemin={0}
          aria-valuemax={Math.max(0, cells - 1)}
          aria-valuenow={at}
          aria-valuetext={map ? told(map, at, size_bytes) : "loading"}
          onKeyDown={onKeyDown}
          onPointerMove={(event) => (hovered.value = cellOf(event))}
          onPointerLeave={() => (hovered.value = null)}
          onClick={(event) => {
            const index = cellOf(event);
            if (index === null) return;
            selected.value = index;
            ask(index);
          }}
        />
      </div>
      <div class="heat-foot">
        <span>{map ? told(map, spoken, size_bytes) : problem ?? "Asking for the map…"}</span>
        <span class="muted">
          {map && <>a cell is {bytes(map.cell_bytes)}{whole ? "" : `, ${bytes(view.start)} to ${bytes(view.end)} shown`}{map.counted_part < 1 ? `, counted ${percent(map.counted_part)} so far` : map.age_ms > 2000 ? `, counted ${Math.round(map.age_ms / 1000)} s ago` : ""}</>}
        </span>
      </div>
      {map && problem && <p class="muted">The map could not be renewed: {problem}</p>}
      {map && <HeatTable map={map} size_bytes={size_bytes} onAsk={onAsk} />}
    </div>
  );
}

function outline(context: CanvasRenderingContext2D, shape: { columns: number; side: number }, index: number, colour: string): void {
  const x = (index % shape.columns) * shape.side;
  const y = Math.floor(index / shape.columns) * shape.side;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.strokeRect(x - 0.25, y - 0.25, shape.side - 0.5, shape.side - 0.5);
}

/** A cell in words. */
function told(map: MapView, index: number, size_bytes: number): string {
  const start = map.start_bytes + index * map.cell_bytes;
  const length = cellLength(map, index, size_bytes);
  const cached = map.cached_bytes[index] ?? 0;
  const dirty = map.dirty_bytes[index] ?? 0;
  const heat = map.heat[index] ?? 0;
  const parts = [cached === 0 ? "nothing on the SSD" : `${percent(Math.min(1, cached / length))} on the SSD`];
  if (dirty > 0) parts.push(`${bytes(dirty)} dirty`);
  parts.push(heat > 0 ? `${digits(heat)} accesses lately` : "not used lately");
  const object = map.objects[map.object[index] ?? -1];
  if (object) parts.push(`most of it ${object.name}`);
  return `${bytes(start)} to ${bytes(start + length)}: ${parts.join(", ")}`;
}

function HeatLegend({ layer, map }: { layer: Layer; map: MapView | null }) {
  if (layer === "objects") return <ObjectLegend objects={map?.objects ?? []} />;
  return (
    <ul class="legend heat-legend">
      {(layer === "all" || layer === "cached") && <li><span class="swatch ramp-cached" aria-hidden="true" />cached: none to all</li>}
      {(layer === "all" || layer === "heat") && <li><span class={`swatch ${layer === "all" ? "spot" : "ramp-heat"}`} aria-hidden="true" />{layer === "all" ? "used lately: the larger the hotter" : "heat: cold to hot"}</li>}
      {(layer === "all" || layer === "dirty") && <li><span class="swatch foot" aria-hidden="true" />dirty</li>}
    </ul>
  );
}

function ObjectLegend({ objects }: { objects: MapObject[] }) {
  const named = objects.slice(0, OBJECT_COLOURS.length);
  return (
    <ul class="legend heat-legend">
      {named.map(({ id, name }, place) => (
        <li key={id}><span class="swatch" style={{ background: `var(--${objectColour(place)})` }} aria-hidden="true" />{name}</li>
      ))}
      {objects.length > named.length && <li><span class="swatch" style={{ background: "var(--grey)" }} aria-hidden="true" />{counted(objects.length - named.length, "other")}</li>}
      <li>{objects.length === 0 ? "no objects are known here" : "strong: cached, pale: not"}</li>
    </ul>
  );
}
