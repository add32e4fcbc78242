/** The plain disks beside a pool's cache, on the same SSD. */

import { useEffect, useState } from "preact/hooks";
import type { DiskView, PoolView } from "../api";
import { bytes } from "../format";
import { onSample } from "../live/volumes";
import { get } from "../rest";
import { Badge, Panel, Trouble } from "../ui/basics";
import { HEALTH_TONE } from "../words/health";

export function Disks({ pool }: { pool: PoolView }) {
  const names = (pool.disks ?? []).join(" ");
  const [disks, setDisks] = useState<DiskView[]>([]);
  useEffect(() => {
    let ended = false;
    const load = (): void => void get<DiskView[]>("/disks").then((all) => ended || setDisks(all.filter((disk) => disk.pool === pool.name)), () => {});
    if (names !== "") load();
    else setDisks([]);
    let samples = 0;
    const end = onSample(() => names !== "" && (samples += 1) % 5 === 0 && load());
    return () => {
      ended = true;
      end();
    };
  }, [pool.name, names]);
  if (names === "" && !pool.disks_bytes) return null;
  return (
    <Panel title="Disks beside the cache" id="disks">
      <p class="calm">{bytes(pool.disks_bytes ?? 0)} of the SSD are set aside for disks, which have no checksums. Make and change them with <code>hearth disk</code>.</p>
      <ul class="plain">
        {disks.map((disk) => (
          <li key={disk.uuid}>
            {disk.name} <Badge tone={HEALTH_TONE[disk.health]}>{disk.health}</Badge> {bytes(disk.size_bytes)}{" "}
            <code>{[disk.stable_path, ...Object.values(disk.exports)].filter((place) => place !== null && place !== undefined).join(" ")}</code>
            {disk.problem && <Trouble tone="bad" problem={disk.problem} remedy={disk.remedy} />}
          </li>
        ))}
      </ul>
    </Panel>
  );
}
