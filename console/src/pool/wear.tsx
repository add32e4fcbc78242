/** What is written to the SSD each day, and how long it will bear that. */

import { useEffect, useState } from "preact/hooks";
import type { HistoryView, PoolView } from "../api";
import { bytes, bytesPerSecond, digits, span } from "../format";
import { poolSamples } from "../live/volumes";
import { recall, remember } from "../memory";
import { get } from "../rest";
import { Figure, Panel } from "../ui/basics";
import { flashRange, perDay, ratedBytes, readRating, writeStreams, yearsLeft, type Rating } from "./endurance";

const WEEK_S = 7 * 86_400;

/** In words; `rated`: bytes that may be written in all, 0 if nobody has said. */
function lifeLeft(years: number | null, rated: number, isKnown: boolean): string {
  if (rated <= 0 || !isKnown) return "–";
  if (years === null) return "not used up";
  if (years > 100) return "over 100 years";
  return years < 1 ? `${digits(years * 12)} months` : `${digits(years)} years`;
}

export function Wear({ pool }: { pool: PoolView }) {
  const [rate, setRate] = useState<{ bytes: number; known_s: number } | null>(null);
  const [rating, setRating] = useState<Rating>(() => readRating(recall(`endurance.${pool.uuid}`)));
  useEffect(() => {
    let ended = false;
    const load = async (): Promise<void> => {
      const now = Math.floor(Date.now() / 1000);
      const ask = (length: number, points: number): Promise<HistoryView> =>
        get<HistoryView>("/history", { name: pool.name, series: "ssd_written_bytes_s", from_unix_s: now - length, to_unix_s: now, points });
      // A young daemon has no hours yet: then the latest hour at its finest.
      const found = perDay(await ask(WEEK_S, 1008), "ssd_written_bytes_s");
      const fine = found && found.known_s > 3600 ? found : (perDay(await ask(3600, 3600), "ssd_written_bytes_s") ?? found);
      if (!ended) setRate(fine);
    };
    const quiet = (): void => void load().catch(() => {});
    quiet();
    const timer = setInterval(quiet, 60_000);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [pool.name]);
  const change = (part: Partial<Rating>): void => {
    const next = { ...rating, ...part };
    setRating(next);
    remember(`endurance.${pool.uuid}`, JSON.stringify(next));
  };
  const number = (text: string): number => Math.max(0, Number.parseFloat(text) || 0);
  const sample = poolSamples.value[pool.name];
  const rated = ratedBytes(rating, pool.size_bytes);
  const left = rate ? yearsLeft(rating, pool.size_bytes, rate.bytes) : null;
  const daily = rate && pool.size_bytes > 0 ? rate.bytes / pool.size_bytes : null;
  return (
    <Panel title="Wear of the SSD" id="wear">
      <dl class="figures">
        <Figure
          label="Written per day, measured"
          value={rate ? bytes(rate.bytes) : "–"}
          note={rate ? (rate.known_s < 86_400 ? `extrapolated from ${span(rate.known_s)} that are known` : `mean of ${span(rate.known_s)}`) : "nothing is known yet"}
        />
        <Figure label="Drive writes per day" value={daily === null ? "–" : digits(daily)} note="of the part that the pool uses" />
        <Figure label="Just now" value={sample ? bytesPerSecond(sample.ssd_written_bytes_s) : "–"} note={sample ? `${bytes(sample.ssd_written_bytes)} since the start` : ""} />
        <Figure label="Rated life left" value={lifeLeft(left, rated, rate !== null)} note={rated > 0 ? `at that rate, of ${digits(rated / 1e12)} TB` : "enter below what the maker promises"} />
      </dl>
      {pool.spare && pool.flash && (
        <dl class="figures">
          <Figure label="Left unused" value={`${pool.spare.percent} %`} note={pool.spare.not_discarded === null ? pool.spare.reason : `not discarded: ${pool.spare.not_discarded}`} />
          <Figure label="Written for each byte stored" value={pool.write_amplification == null ? "–" : digits(pool.write_amplification)} note="by hearth, to the SSD" />
          {pool.flash.estimates.map((estimate) => (
            <Figure key={estimate.own_spare_percent} label="Flash writes, estimated" value={flashRange(estimate)} note={`for each of these, on a drive with ${estimate.own_spare_percent} % spare of its own`} />
          ))}
        </dl>
      )}
      {pool.spare && pool.flash?.note && <p class="muted hint">Estimate: {pool.flash.note}.</p>}
      {pool.write_streams && <p class="muted hint">{writeStreams(pool.write_streams)}</p>}
      {left !== null && left < 3 && <p class="warn-text">The SSD wears fast: admission second-touch, a larger RAM tier, a longer write-cache depth or a larger SSD would spare it.</p>}
      <fieldset class="inline-fields">
        <legend>What the SSD's maker promises (remembered in this browser)</legend>
        <label class="field"><span>Endurance</span><input type="number" min="0" step="any" value={rating.value || ""} placeholder="unknown" onInput={(event) => change({ value: number(event.currentTarget.value) })} /></label>
        <label class="field"><span>Unit</span>
          <select value={rating.unit} onChange={(event) => change({ unit: event.currentTarget.value as Rating["unit"] })}>
            <option value="TBW">TBW (terabytes written)</option>
            <option value="DWPD">DWPD (drive writes per day)</option>
          </select>
        </label>
        {rating.unit === "DWPD" && <label class="field"><span>Over years</span><input type="number" min="0" step="any" value={rating.years} onInput={(event) => change({ years: number(event.currentTarget.value) })} /></label>}
        <label class="field"><span>Written before, TB</span><input type="number" min="0" step="any" value={rating.written_tb} onInput={(event) => change({ written_tb: number(event.currentTarget.value) })} /></label>
      </fieldset>
    </Panel>
  );
}
