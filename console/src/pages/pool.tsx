/** One pool: space, log, wear, memory. */

import { useEffect, useState } from "preact/hooks";
import type { PoolStats, PoolView } from "../api";
import { WindowControls } from "../charts/controls";
import { useHistory } from "../charts/history";
import { TimeChart, type ChartLine } from "../charts/time-chart";
import type { Unit } from "../charts/units";
import { Window } from "../charts/window";
import { bytes } from "../format";
import { jobs, pools } from "../live/store";
import { onSample, poolSamples } from "../live/volumes";
import { get, part } from "../rest";
import { PoolActions } from "../pool/actions";
import { ContentPanel } from "../pool/content";
import { Disks } from "../pool/disks";
import { Slots } from "../pool/slots";
import { Space, Writes } from "../pool/space";
import { Wear } from "../pool/wear";
import { Badge, Panel, Trouble } from "../ui/basics";
import { HEALTH_TONE, ofPool } from "../words/health";
import { JobCard } from "./jobs";

export function PoolPage({ name }: { name: string }) {
  const pool = pools.value.find((other) => other.name === name);
  if (!pool) {
    return (
      <div class="empty large">
        <h1 tabIndex={-1}>There is no pool {name}</h1>
        <p>It may have been destroyed. <a href="#/pools">All pools</a></p>
      </div>
    );
  }
  return <Known pool={pool} />;
}

function Known({ pool }: { pool: PoolView }) {
  const [stats, setStats] = useState<PoolStats | null>(null);
  useEffect(() => {
    let ended = false;
    const load = (): void => void get<PoolStats>(`/stats/${part(pool.name)}`).then((told) => ended || setStats(told), () => {});
    load();
    let samples = 0;
    const end = onSample(() => (samples += 1) % 5 === 0 && load());
    return () => {
      ended = true;
      end();
    };
  }, [pool.name]);
  const mine = jobs.value.filter((job) => ofPool(job) && job.volume === pool.name);
  const sample = poolSamples.value[pool.name];
  return (
    <>
      <p class="crumbs"><a href="#/pools">Pools</a></p>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>{pool.name} <Badge tone={HEALTH_TONE[pool.health]}>{pool.health}</Badge></h1>
          <p class="page-sub">{bytes(pool.size_bytes)} on <code>{pool.ssd}</code>, {bytes(pool.ram_bytes)} of RAM in front</p>
        </div>
        <PoolActions pool={pool} />
      </div>
      {pool.problem && <Trouble tone={pool.health === "failed" ? "bad" : "warn"} problem={pool.problem} remedy={pool.remedy} />}
      {mine.map((job) => <JobCard key={job.id} job={job} />)}
      <Space pool={pool} stats={stats} />
      <Disks pool={pool} />
      <Wear pool={pool} />
      <PoolCharts name={pool.name} />
      <Writes pool={pool} stats={stats} sample={sample} />
      {stats?.slots && <Slots stats={stats.slots} />}
      <ContentPanel pool={pool} stats={stats?.content ?? pool.content_stats} />
      <Panel title="What the latest start found" id="recovery">
        {pool.recovery.length === 0 ? <p class="calm">Nothing to tell.</p> : <ul class="plain">{pool.recovery.map((clause) => <li key={clause}>{clause}</li>)}</ul>}
      </Panel>
    </>
  );
}

const CHARTS: { title: string; unit: Unit; lines: ChartLine[] }[] = [
  {
    title: "Written to the SSD",
    unit: "bytes_s",
    lines: [
      { series: "ssd_written_bytes_s", label: "written", colour: "purple" },
      { series: "admitted_bytes_s", label: "admitted", colour: "green", dash: [5, 3] },
    ],
  },
  {
    title: "Cached and dirty data",
    unit: "bytes",
    lines: [
      { series: "cached_bytes", label: "cached", colour: "blue" },
      { series: "dirty_bytes", label: "dirty", colour: "red", dash: [5, 3] },
    ],
  },
];
const SERIES = CHARTS.flatMap((chart) => chart.lines.map((line) => line.series));

function PoolCharts({ name }: { name: string }) {
  const [window] = useState(() => new Window(3600));
  const { table, problem } = useHistory("pool", name, SERIES, window.span.value);
  return (
    <Panel title="Over time" aside={<WindowControls window={window} />}>
      {problem.value && <p class="wrong">The history cannot be shown: {problem}</p>}
      <div class="charts">{CHARTS.map((chart) => <TimeChart key={chart.title} {...chart} table={table} window={window} of={name} />)}</div>
    </Panel>
  );
}
