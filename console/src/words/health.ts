/** How a volume is, in one line. */

import type { Health, JobKind, JobView, VolumeSample, VolumeView } from "../api";
import { bytes, digits, percent } from "../format";

export type Tone = "good" | "busy" | "warn" | "bad";

export const HEALTH_TONE: Record<Health, Tone> = { running: "good", starting: "busy", failing: "bad", degraded: "warn", failed: "bad", removing: "busy", stopped: "busy" };

export const JOB_WORD: Record<JobKind, string> = {
  destage: "Destage",
  warm: "Warm-up",
  preload: "Preload",
  remove: "Removal",
  mode_change: "Mode change",
  check: "Check",
  replace: "Replacement of the SSD",
  disk_room: "Change of the room for disks",
  discover: "Look for applications",
};

/** Whether a job is the work of a pool, and not of a volume: both may have the same name. */
export const ofPool = (job: JobView): boolean => job.kind === "check" || job.kind === "replace" || job.kind === "disk_room";

/** Whether it is known how much there is to do: a look for applications ends when it has found them. */
export const hasTotal = (job: JobView): boolean => job.kind !== "discover";

export function jobPart(job: JobView): number {
  if (job.state === "done") return 1;
  return job.total_bytes > 0 ? Math.min(1, job.done_bytes / job.total_bytes) : 0;
}

/** What to say of a volume first, and in which tone. */
export function healthLine(volume: VolumeView, sample: VolumeSample | null, job: JobView | undefined): { tone: Tone; text: string } {
  if (volume.health !== "running") {
    const words: Record<Exclude<Health, "running">, string> = {
      failing: "A device refuses requests",
      failed: "Does not work",
      degraded: "Works without its SSD",
      starting: "Starting",
      removing: "Being removed",
      stopped: "Stopped",
    };
    const text = words[volume.health as Exclude<Health, "running">];
    return { tone: HEALTH_TONE[volume.health], text: volume.problem ? `${text}: ${volume.problem}` : text };
  }
  if (sample && sample.errors_s > 0) return { tone: "bad", text: `${digits(sample.errors_s)} requests a second fail` };
  const limit = volume.options.dirty_limit_bytes;
  const dirty = sample?.dirty_bytes ?? volume.dirty_bytes;
  if (limit !== null && volume.options.mode === "write-back" && dirty !== null && dirty >= limit * 0.97) {
    return { tone: "warn", text: `At its dirty limit of ${bytes(limit)}: writes wait for destage` };
  }
  if (job && job.state === "running") return { tone: "busy", text: hasTotal(job) ? `${JOB_WORD[job.kind]}, ${percent(jobPart(job))} done` : `${JOB_WORD[job.kind]} is under way` };
  if (sample && sample.reads_s + sample.writes_s === 0) return { tone: "good", text: "Running, idle" };
  return { tone: "good", text: "Running" };
}
