/** Long work: how far it is, when it ends, stop and go on. */

import type { JobView } from "../api";
import { bytes, bytesPerSecond, percent, span } from "../format";
import { attempt } from "../live/connection";
import { jobs, takeJob, volumes } from "../live/store";
import { part, post, remove, get } from "../rest";
import { href } from "../route";
import { Badge, Bar } from "../ui/basics";
import { Operate } from "../ui/operate";
import { sentence } from "../ui/toast";
import { hasTotal, jobPart, JOB_WORD, ofPool, type Tone } from "../words/health";

const STATES: Record<JobView["state"], { tone: Tone; word: string }> = {
  running: { tone: "busy", word: "running" },
  done: { tone: "good", word: "done" },
  cancelled: { tone: "warn", word: "stopped" },
  failed: { tone: "bad", word: "failed" },
};

export function Jobs() {
  const running = jobs.value.filter((job) => job.state === "running");
  const ended = jobs.value.filter((job) => job.state !== "running");
  return (
    <>
      <div class="page-head"><h1 tabIndex={-1}>Jobs</h1></div>
      {jobs.value.length === 0 && (
        <div class="empty">
          <p><strong>No jobs.</strong></p>
          <p>Destage, warm-up, preload, checks, removals, leaving write-back and putting a pool on another SSD are jobs: they show here while they run, and some time after.</p>
        </div>
      )}
      {running.length > 0 && <section aria-label="Running"><h2>Running</h2>{running.map((job) => <JobCard key={job.id} job={job} />)}</section>}
      {ended.length > 0 && <section aria-label="Ended"><h2>Ended</h2>{ended.map((job) => <JobCard key={job.id} job={job} />)}</section>}
    </>
  );
}

export function JobCard({ job }: { job: JobView }) {
  const word = JOB_WORD[job.kind];
  const { tone, word: state } = STATES[job.state];
  const name = `${word} of ${job.volume}`;
  const place = href(ofPool(job) ? { page: "pool", name: job.volume } : { page: "volume", name: job.volume });
  const there = ofPool(job) || volumes.value.some((volume) => volume.name === job.volume);
  const stop = (): void =>
    void attempt(`Stopping the ${word.toLowerCase()}`, async () => {
      await remove(`/jobs/${part(String(job.id))}`);
      takeJob(await get<JobView>(`/jobs/${part(String(job.id))}`));
    });
  const resume = (): void => void attempt(`Going on with the ${word.toLowerCase()}`, async () => takeJob(await post<JobView>(`/jobs/${part(String(job.id))}/resume`)));
  const running = job.state === "running";
  return (
    <article class="job" aria-label={name}>
      <div class="job-head">
        <strong>{word} of {there ? <a href={place}>{job.volume}</a> : job.volume}</strong>
        <Badge tone={tone}>{state}</Badge>
        <span class="muted">job {job.id}</span>
        <span class="job-buttons">
          {running && <Operate label={`Stop the ${name}`} onClick={stop}>Stop</Operate>}
          {(job.state === "cancelled" || job.state === "failed") && <Operate label={`Go on with the ${name}`} onClick={resume}>Go on</Operate>}
        </span>
      </div>
      <Bar part={jobPart(job)} colour={tone} label={`${name}: progress`} />
      <p class="job-figures">
        {running
          ? <>
              <span>{hasTotal(job) ? `${percent(jobPart(job))}: ${bytes(job.done_bytes)} of ${bytes(job.total_bytes)}` : `${bytes(job.done_bytes)} read`}</span>
              <span>{bytesPerSecond(job.rate_bytes)}</span>
              {hasTotal(job) && <span>{job.left_s === null ? "time left unknown yet" : `${span(job.left_s)} left`}</span>}
              <span class="muted">for {span(job.elapsed_ms / 1000)}</span>
            </>
          : <span>{bytes(job.done_bytes)}{job.state === "done" || !hasTotal(job) ? "" : ` of ${bytes(job.total_bytes)}`} in {span(job.elapsed_ms / 1000)}</span>}
      </p>
      {job.error && <p class="wrong">{sentence(job.error.detail)}{job.error.remedy && ` What to do: ${sentence(job.error.remedy)}`}</p>}
    </article>
  );
}
