/** All pools. */

import { bytes, counted, known, percent } from "../format";
import { pools } from "../live/store";
import { poolSamples } from "../live/volumes";
import { href } from "../route";
import { Badge, Bar } from "../ui/basics";
import { HEALTH_TONE } from "../words/health";

export function Pools() {
  return (
    <>
      <div class="page-head">
        <h1 tabIndex={-1}>Pools</h1>
        <a class="button" href="#/setup">Set up</a>
      </div>
      {pools.value.length === 0 && <div class="empty"><p><strong>There is no pool yet.</strong></p><p>A pool is an SSD that holds the cache of one or more volumes.</p></div>}
      <ul class="cards">
        {pools.value.map((pool) => {
          const sample = poolSamples.value[pool.name];
          const cached = sample?.cached_bytes ?? pool.cached_bytes ?? 0;
          return (
            <li key={pool.name} class="panel card">
              <h2><a href={href({ page: "pool", name: pool.name })}>{pool.name}</a> <Badge tone={HEALTH_TONE[pool.health]}>{pool.health}</Badge></h2>
              <p class="muted"><code>{pool.ssd}</code></p>
              <p>{known(pool.cached_bytes === null ? null : cached)} cached, {known(sample?.dirty_bytes ?? pool.dirty_bytes)} dirty, {counted(pool.volumes.length, "volume")}</p>
              <Bar part={pool.size_bytes > 0 ? cached / pool.size_bytes : 0} colour="cached" />
              <p class="muted">{pool.size_bytes > 0 ? `${percent(Math.min(1, cached / pool.size_bytes))} of ${bytes(pool.size_bytes)}` : ""}</p>
              {pool.problem && <p class="warn-text">{pool.problem}</p>}
            </li>
          );
        })}
      </ul>
    </>
  );
}
