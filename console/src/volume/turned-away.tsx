/** Who was turned away from the cache, for which reason, and what to do about it. */

import { useComputed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { VolumeStats, VolumeView } from "../api";
import { count, percent } from "../format";
import { liveVolume, onSample } from "../live/volumes";
import { get, part } from "../rest";
import { Bar, Panel } from "../ui/basics";
import { reason } from "../words/outcomes";

export function TurnedAway({ volume }: { volume: VolumeView }) {
  const [stats, setStats] = useState<VolumeStats | null>(null);
  useEffect(() => {
    let ended = false;
    const load = (): void => void get<VolumeStats>(`/stats/${part(volume.name)}`).then((told) => ended || setStats(told), () => {});
    load();
    let samples = 0;
    const end = onSample(() => (samples += 1) % 5 === 0 && load());
    return () => {
      ended = true;
      end();
    };
  }, [volume.name]);
  const live = liveVolume(volume.name).sample;
  const now = useComputed(() => live.value?.bypassed_s ?? {});
  const counted = Object.entries(stats?.bypassed ?? {}).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
  const most = counted[0]?.[1] ?? 0;
  const all = counted.reduce((sum, [, number]) => sum + number, 0);
  return (
    <Panel title="Bypassed the cache" id="turned-away" aside={<span class="muted">requests or blocks, since the daemon's start</span>}>
      {stats && counted.length === 0 && <p class="calm">None: every request could use the cache.</p>}
      <ul class="reasons">
        {counted.map(([name, number]) => {
          const told = reason(name, volume.options);
          const rate = now.value[name] ?? 0;
          return (
            <li key={name}>
              <div class="reason-head">
                <strong>{told.title}</strong>
                <span class="num">{count(number)} <span class="muted">({percent(number / all)}){rate > 0 && `, ${count(rate)}/s now`}</span></span>
              </div>
              <Bar part={number / most} colour="blue" />
              <p>{told.why} <span class="muted">{told.remedy}</span></p>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}
