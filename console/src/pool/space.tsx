/** Whose data is on the SSD, and of which kind. */

import type { PoolSample, PoolStats, PoolView } from "../api";
import type { ContentStats } from "../api-space";
import { bytes, count, digits, known, percent } from "../format";
import { newest } from "../live/volumes";
import { href } from "../route";
import { Bar, Figure, Panel, Stack } from "../ui/basics";

const BLOCK = 4096;

export function Space({ pool, stats }: { pool: PoolView; stats: PoolStats | null }) {
  const sample = newest.value;
  const mine = Object.entries(sample?.volumes ?? {}).filter(([, volume]) => volume.pool === pool.name).sort((a, b) => b[1].cached_bytes - a[1].cached_bytes);
  const now = sample?.pools[pool.name];
  const isKnown = pool.cached_bytes !== null;
  const cached = now?.cached_bytes ?? pool.cached_bytes ?? 0;
  const dirtyKnown = now?.dirty_bytes ?? pool.dirty_bytes;
  const dirty = dirtyKnown ?? 0;
  const content = stats?.content ?? pool.content_stats;
  const stored = content?.stored_bytes ?? cached;
  const most = Math.max(1, ...mine.map(([, volume]) => volume.cached_bytes));
  const clean = Math.max(0, cached - dirty);
  return (
    <Panel title="Space" id="space">
      <dl class="figures">
        <Figure label="On the SSD" value={known(isKnown ? stored : null)} note={isKnown && pool.size_bytes > 0 ? `${percent(Math.min(1, stored / pool.size_bytes))} of ${bytes(pool.size_bytes)}` : ""} />
        <Figure label="Cached" value={known(isKnown ? cached : null)} note={content?.effective_capacity ? `effective capacity ${digits(content.effective_capacity)} × raw` : "stored as it is"} />
        <Figure label="Dirty" value={known(dirtyKnown)} note={cached > 0 ? `${percent(Math.min(1, dirty / cached))} of the cached data` : ""} />
        {content && <Figure label="SSD writes saved" value={bytes(content.saved_bytes)} note="since the start" />}
      </dl>
      {isKnown && <h3>Clean and dirty</h3>}
      {isKnown && <Stack
        total={Math.max(cached, pool.size_bytes)}
        pieces={[
          { label: "clean", value: clean, colour: "cached", told: bytes(clean) },
          { label: "dirty", value: dirty, colour: "dirty", told: bytes(dirty) },
          ...(pool.size_bytes > cached ? [{ label: "not used", value: pool.size_bytes - cached, colour: "none", told: bytes(pool.size_bytes - cached) }] : []),
        ]}
      />}
      {content && <Kinds content={content} />}
      <h3>By volume</h3>
      {mine.length === 0 ? <p class="calm">No volume yet. <a href="#/setup">Set one up</a></p> : (
        <table class="compact">
          <thead><tr><th scope="col">Volume</th><th scope="col" class="right">Cached</th><th scope="col" class="grow"><span class="hidden">Compared</span></th><th scope="col" class="right">Dirty</th><th scope="col" class="right">Of the volume</th></tr></thead>
          <tbody>{mine.map(([name, volume]) => (
            <tr key={name}>
              <th scope="row"><a href={href({ page: "volume", name })}>{name}</a></th>
              <td class="right" data-label="Cached">{bytes(volume.cached_bytes)}</td>
              <td class="grow"><Bar part={volume.cached_bytes / most} colour="cached" /></td>
              <td class="right" data-label="Dirty">{known(volume.dirty_bytes)}</td>
              <td class="right" data-label="Of the volume">{percent(Math.min(1, volume.cached_bytes / Math.max(1, volume.size_bytes)))}</td>
            </tr>
          ))}</tbody>
        </table>
      )}
    </Panel>
  );
}

function Kinds({ content }: { content: ContentStats }) {
  const blocks = [
    { label: "reference: others rest on them", value: content.reference_blocks, colour: "purple" },
    { label: "associated: equal to another, or a difference to it", value: content.associated_blocks, colour: "green" },
    { label: "independent", value: content.independent_blocks, colour: "blue" },
    { label: "zero", value: content.zero_blocks, colour: "grey" },
  ];
  const total = blocks.reduce((sum, kind) => sum + kind.value, 0);
  return (
    <>
      <h3>What blocks contain</h3>
      <Stack total={total} pieces={blocks.map((kind) => ({ ...kind, told: `${bytes(kind.value * BLOCK)} (${percent(total > 0 ? kind.value / total : 0)})` }))} />
      {content.uncached_reference_blocks > 0 && <p class="muted hint">{bytes(content.uncached_reference_blocks * BLOCK)} more are references only: no longer cached themselves, kept because others rest on them.</p>}
    </>
  );
}

/** What a pool writes to its SSD, and its memory. */
export function Writes({ pool, stats, sample }: { pool: PoolView; stats: PoolStats | null; sample: PoolSample | undefined }) {
  const index = sample?.index_bytes ?? pool.index_bytes;
  const cached = sample?.cached_bytes ?? pool.cached_bytes ?? 0;
  const content = stats?.content ?? pool.content_stats;
  const perBlock = content?.memory_bytes_per_block ?? (cached > 0 ? index / (cached / BLOCK) : null);
  const amplification = sample?.write_amplification ?? stats?.write_amplification ?? null;
  return (
    <Panel title="SSD writes and memory" id="writes">
      <dl class="figures wide">
        <Figure label="Write amplification" value={amplification === null ? "–" : digits(amplification)} note="bytes written for each byte admitted" title="SSD bytes written ÷ bytes admitted, since the daemon's start" />
        <Figure label="Written to the SSD" value={stats ? bytes(stats.ssd_written_bytes) : "–"} note={stats ? `${bytes(stats.admitted_bytes)} admitted` : ""} />
        <Figure label="Written again" value={stats ? bytes(stats.reinserted_bytes) : "–"} note="in use or dirty when its room was taken back" />
        <Figure label="RAM per cached block" value={perBlock === null ? "–" : `${digits(perBlock)} B`} note="index, policy and hints" />
        <Figure label="RAM tier" value={sample ? bytes(sample.ram_used_bytes) : "–"} note={`of ${bytes(pool.ram_bytes)}`} />
        <Figure label="Index and policy" value={bytes(index)} note={content && content.hint_bytes > 0 ? `hints ${bytes(content.hint_bytes)} more` : ""} />
        <Figure label="Failed reads of the SSD" value={stats ? count(stats.ssd_read_errors ?? 0) : "–"} note={stats?.ssd_read_errors ? <span class="warn-text">the SSD could not read them; what is clean comes from the disk</span> : "none is well"} />
        <Figure label="Checksum mismatches" value={stats ? count(stats.checksum_errors) : "–"} note={stats && stats.checksum_errors > 0 ? <span class="warn-text">the SSD gave back other bytes than were written</span> : "none is well"} />
        {content && content.encoding_cpu_us_per_block !== null && <Figure label="Encoding" value={`${digits(content.encoding_cpu_us_per_block)} µs`} note={`of CPU time a block, ${count(content.encoded_blocks)} blocks`} />}
      </dl>
    </Panel>
  );
}
