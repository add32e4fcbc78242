/** One volume in the overview. It redraws itself once a second while it can be seen, and costs nothing else. */

import { batch, useComputed, useSignal } from "@preact/signals";
import { memo } from "../ui/memo";
import { useEffect, useRef } from "preact/hooks";
import type { VolumeSample, VolumeView } from "../api";
import { drawSpark, type Line } from "../charts/spark";
import { RANGES } from "../charts/window";
import { bytes, count, microseconds, percent, span } from "../format";
import { jobs, pools } from "../live/store";
import { liveVolume, onSample, type LiveVolume } from "../live/volumes";
import { RING_SECONDS } from "../live/ring";
import { href } from "../route";
import { palette } from "../theme";
import { Badge } from "../ui/basics";
import { healthLine, type Tone } from "../words/health";

/** Of which time the small charts are, up to now: "5 min". */
export const SPAN = RANGES.find(({ seconds }) => seconds === RING_SECONDS)!.word;

const buffers = Array.from({ length: 4 }, () => new Float64Array(RING_SECONDS));

function draw(live: LiveVolume, canvases: (HTMLCanvasElement | null)[]): void {
  const [iops, hit, latency] = canvases;
  const [a, b, c, d] = buffers as [Float64Array, Float64Array, Float64Array, Float64Array];
  // Before the first sample there is an axis of time already.
  const to = live.ring.newest_s || Math.floor(Date.now() / 1000);
  if (iops) drawSpark(iops, "per_second", [{ values: live.ring.series("iops", a), colour: "blue", filled: true }], to);
  if (hit) drawSpark(hit, "ratio", [{ values: live.ring.series("hit", b), colour: "green", filled: true }], to);
  if (latency) {
    const lines: Line[] = [
      { values: live.ring.series("baseline", c), colour: "grey", dashed: true },
      { values: live.ring.series("now", d), colour: "orange" },
    ];
    drawSpark(latency, "us", lines, to);
  }
}

/** How many samples pass between updates of rows that cannot be seen (they are still read by programs). */
const UNSEEN_SAMPLES = 10;

export const Row = memo(function Row({ volume }: { volume: VolumeView }) {
  const live = liveVolume(volume.name);
  const shown = useSignal<VolumeSample | null>(live.sample.peek());
  const row = useRef<HTMLTableRowElement>(null);
  const canvases = useRef<(HTMLCanvasElement | null)[]>([null, null, null]);
  const bar = useRef<HTMLSpanElement>(null);

  useEffect(() => {
    let visible = false;
    let unseen = 0;
    const update = (): void => {
      if (!visible && unseen % UNSEEN_SAMPLES !== 0 && shown.peek() !== null) return;
      batch(() => (shown.value = live.sample.peek()));
      if (!visible || document.hidden) return;
      const room = volume.options.dirty_limit_bytes ?? pools.peek().find((pool) => pool.name === volume.pool)?.size_bytes ?? 0;
      const dirty = shown.peek()?.dirty_bytes ?? 0;
      if (bar.current) bar.current.style.transform = `scaleX(${room > 0 ? Math.min(1, dirty / room) : 0})`;
      draw(live, canvases.current);
    };
    const watch = new IntersectionObserver(
      (entries) => {
        visible = entries[entries.length - 1]!.isIntersecting;
        if (!visible) return;
        update();
        void live.fill().then((more) => more && visible && update());
      },
      { rootMargin: "80px" },
    );
    watch.observe(row.current!);
    const ends = [
      onSample(() => {
        unseen += 1;
        update();
      }),
      // Canvases know nothing of style sheets: a new theme draws them anew.
      palette.subscribe(() => requestAnimationFrame(update)),
    ];
    return () => {
      watch.disconnect();
      for (const end of ends) end();
    };
  }, [live, volume]);

  const text = <T,>(of: (sample: VolumeSample) => T | null, format: (value: T) => string, none = "–") =>
    useComputed(() => {
      const value = shown.value ? of(shown.value) : null;
      return value === null || value === undefined ? none : format(value);
    });
  const iops = text((sample) => sample.reads_s + sample.writes_s, count);
  const hit = text((sample) => sample.hit_ratio, percent);
  const now = text((sample) => sample.latency["all"]?.mean_us ?? null, microseconds);
  const baseline = text((sample) => sample.baseline_us, (value) => `disk ${microseconds(value)}`, "");
  const dirty = text((sample) => sample.dirty_bytes, bytes, "unknown");
  const savedIos = text((sample) => sample.saved.backing_ios, (value) => `${count(value)} I/Os`);
  const savedRest = text((sample) => sample.saved, (saved) => [saved.backing_bytes > 0 && bytes(saved.backing_bytes), span(saved.waiting_s)].filter(Boolean).join(", "), "");
  const cell = (index: number) => (element: HTMLCanvasElement | null) => void (canvases.current[index] = element);

  return (
    <tr ref={row}>
      <th scope="row" class="c-name">
        <a href={href({ page: "volume", name: volume.name })}>{volume.name}</a>
        <span class="under">{volume.options.mode} · {bytes(volume.size_bytes)} · {volume.pool}</span>
      </th>
      <td class="c-health"><HealthCell volume={volume} sample={shown} /></td>
      <td class="c-spark" data-label={`IOPS, ${SPAN}`}><div class="spark"><span class="num">{iops}</span><canvas ref={cell(0)} aria-hidden="true" /></div></td>
      <td class="c-spark" data-label={`Hit rate, ${SPAN}`}><div class="spark"><span class="num">{hit}</span><canvas ref={cell(1)} aria-hidden="true" /></div></td>
      <td class="c-spark" data-label={`Latency, ${SPAN}`}><div class="spark"><span class="num">{now}<span class="under">{baseline}</span></span><canvas ref={cell(2)} aria-hidden="true" /></div></td>
      <td class="c-dirty" data-label="Dirty"><span class="num">{dirty}</span><span class="bar" aria-hidden="true"><span ref={bar} class="bar-fill dirty" /></span></td>
      <td class="c-saved" data-label="Saved"><span class="num">{savedIos}</span><span class="under">{savedRest}</span></td>
    </tr>
  );
});

function HealthCell({ volume, sample }: { volume: VolumeView; sample: { value: VolumeSample | null } }) {
  // As one string: the cell is drawn again only when what it says differs.
  const line = useComputed(() => {
    const job = jobs.value.find((other) => other.volume === volume.name && other.state === "running");
    const { tone, text } = healthLine(volume, sample.value, job);
    return `${tone}|${text}`;
  }).value;
  const split = line.indexOf("|");
  return <Badge tone={line.slice(0, split) as Tone}><span class="clamp" title={line.slice(split + 1)}>{line.slice(split + 1)}</span></Badge>;
}
