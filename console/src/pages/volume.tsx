/** One volume: how it does, why, and what to change. */

import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import type { VolumeView } from "../api";
import { HeatMap } from "../charts/heat-map";
import { bytes, count, known, microseconds, percent, span } from "../format";
import { jobs, volumes } from "../live/store";
import { liveVolume } from "../live/volumes";
import { Streams } from "../insight/streams";
import { href } from "../route";
import { Badge, Chip, Figure, Panel, Trouble } from "../ui/basics";
import { Actions } from "../volume/actions";
import { VolumeCharts } from "../volume/charts";
import { Settings } from "../volume/settings";
import { Shares } from "../volume/shares";
import { TurnedAway } from "../volume/turned-away";
import { Use } from "../volume/use";
import { Why, type Question } from "../volume/why";
import { healthLine, ofPool } from "../words/health";
import { JobCard } from "./jobs";

export function VolumePage({ name }: { name: string }) {
  const volume = volumes.value.find((other) => other.name === name);
  if (!volume) {
    return (
      <div class="empty large">
        <h1 tabIndex={-1}>There is no volume {name}</h1>
        <p>It may have been removed. <a href="#/">All volumes</a></p>
      </div>
    );
  }
  return <Known volume={volume} />;
}

function Known({ volume }: { volume: VolumeView }) {
  const [asked, setAsked] = useState<Question | null>(null);
  const mine = jobs.value.filter((job) => job.volume === volume.name && !ofPool(job));
  const ask = (start_bytes: number, end_bytes: number): void => setAsked((before) => ({ start_bytes, end_bytes, number: (before?.number ?? 0) + 1 }));
  const running = mine.filter((job) => job.state === "running");
  return (
    <>
      <p class="crumbs"><a href="#/">Overview</a></p>
      <div class="page-head">
        <div>
          <h1 tabIndex={-1}>{volume.name} <Health volume={volume} /></h1>
          <p class="page-sub">
            <Chip>{volume.options.mode}</Chip>{volume.options.read_only && <Chip>read-only</Chip>} {bytes(volume.size_bytes)} on <code>{volume.backing}</code>, cached in pool{" "}
            <a href={href({ page: "pool", name: volume.pool })}>{volume.pool}</a>
          </p>
        </div>
        <Actions volume={volume} />
      </div>
      {volume.problem && <Trouble tone={volume.health === "failed" ? "bad" : "warn"} problem={volume.problem} remedy={volume.remedy} />}
      {running.map((job) => <JobCard key={job.id} job={job} />)}
      <Jumps />
      <Present volume={volume} />
      <VolumeCharts name={volume.name} />
      <Panel title="Address space" id="map" aside={<span class="muted">from the volume's first byte to its last</span>}>
        <HeatMap volume={volume.name} size_bytes={volume.size_bytes} onAsk={ask} />
      </Panel>
      <Why volume={volume} asked={asked} />
      <Streams volume={volume} />
      <div class="halves">
        <TurnedAway volume={volume} />
        <div>
          <Use volume={volume} />
          <Shares volume={volume} />
          <Panel title="Jobs of this volume" id="volume-jobs">
            {mine.length === 0 ? <p class="calm">None since the daemon's start.</p> : mine.map((job) => <JobCard key={job.id} job={job} />)}
          </Panel>
        </div>
      </div>
      <Settings volume={volume} />
    </>
  );
}

/** Where things are on this page. The hash is the route, so these move by script. */
const JUMPS: [string, string][] = [["over-time", "Over time"], ["map", "Address space"], ["why", "Why cached, or not?"], ["streams", "Streams"], ["turned-away", "Bypassed"], ["use", "How to use it"], ["shares", "Shares"], ["settings", "Settings"]];

function Jumps() {
  const jump = (id: string): void => {
    const panel = document.getElementById(id);
    panel?.scrollIntoView({ block: "start" });
    panel?.querySelector<HTMLElement>("input, button, a, [tabindex]")?.focus({ preventScroll: true });
  };
  return (
    <nav class="jumps" aria-label="On this page">
      {JUMPS.map(([id, word]) => <button key={id} type="button" onClick={() => jump(id)}>{word}</button>)}
    </nav>
  );
}

function Health({ volume }: { volume: VolumeView }) {
  const live = liveVolume(volume.name);
  const line = useComputed(() => healthLine({ ...volume, problem: null }, live.sample.value, undefined));
  return <Badge tone={line.value.tone}>{line.value.text}</Badge>;
}

function Present({ volume }: { volume: VolumeView }) {
  const sample = liveVolume(volume.name).sample.value;
  const all = sample?.latency["all"];
  const faster = all && sample?.baseline_us && all.mean_us > 0 ? sample.baseline_us / all.mean_us : null;
  const part = volume.size_bytes > 0 ? (sample?.cached_bytes ?? volume.cached_bytes ?? 0) / volume.size_bytes : 0;
  return (
    <dl class="figures" aria-label="This second">
      <Figure label="Hit rate of reads" value={sample?.hit_ratio == null ? "–" : percent(sample.hit_ratio)} note={sample ? `${count(sample.reads_s)} reads/s` : ""} />
      <Figure label="IOPS" value={sample ? count(sample.reads_s + sample.writes_s) : "–"} note={sample ? `${count(sample.writes_s)} writes/s` : ""} />
      <Figure label="Latency, mean" value={all ? microseconds(all.mean_us) : "–"} note={sample?.baseline_us ? `without the cache ${microseconds(sample.baseline_us)}${faster && faster >= 1.05 ? `: ${faster.toFixed(faster < 10 ? 1 : 0)} times as long` : ""}` : ""} />
      <Figure label="Cached on the SSD" value={volume.cached_bytes === null ? "unknown" : bytes(sample?.cached_bytes ?? volume.cached_bytes)} note={volume.cached_bytes === null ? "" : `${percent(part)} of the volume; ${sample ? bytes(sample.ram_bytes ?? 0) : "–"} in RAM`} />
      <Figure label="Dirty" value={known(sample?.dirty_bytes ?? volume.dirty_bytes)} note={volume.options.dirty_limit_bytes === null ? "no limit but the pool's" : `limit ${bytes(volume.options.dirty_limit_bytes)}`} />
      <Figure label="Saved since the start" value={sample ? `${count(sample.saved.backing_ios)} I/Os` : "–"} note={sample ? `${sample.saved.backing_bytes > 0 ? `${bytes(sample.saved.backing_bytes)}, ` : ""}${span(sample.saved.waiting_s)} of waiting` : ""} />
    </dl>
  );
}
