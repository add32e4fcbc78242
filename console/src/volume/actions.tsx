/** What can be done with a volume: destage, warm, grow, stop, start, drop its cache, remove, and take a changed disk for the right one. */

import { useState } from "preact/hooks";
import type { Done, JobView, VolumeView } from "../api";
import { bytes, bytesPerSecond, span } from "../format";
import { refreshVolumes, takeJob } from "../live/store";
import { liveVolume } from "../live/volumes";
import { range } from "../parse";
import { go } from "../route";
import { part, patch, post, remove } from "../rest";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";
import { SETTINGS } from "../words/settings";
import { Change } from "./settings";

const MODE = SETTINGS.find((setting) => setting.key === "mode")!;

type Kind = "mode" | "destage" | "warm" | "remove" | "accept" | "start" | "stop" | "drop" | "grow";

export function Actions({ volume }: { volume: VolumeView }) {
  const [open, setOpen] = useState<Kind | null>(null);
  const close = (): void => setOpen(null);
  const busy = volume.health === "removing";
  const away = volume.health === "failed" || volume.health === "stopped";
  return (
    <div class="actions">
      <Operate onClick={() => setOpen("mode")} disabled={busy}>Change mode</Operate>
      <Operate onClick={() => setOpen("destage")} disabled={busy || away}>Destage</Operate>
      <Operate onClick={() => setOpen("warm")} disabled={busy || away}>Warm up</Operate>
      <Operate onClick={() => setOpen("drop")} disabled={busy || away}>Drop the cache</Operate>
      {(volume.backing_size_bytes ?? 0) > volume.size_bytes && <Operate onClick={() => setOpen("grow")} disabled={busy || away}>Grow</Operate>}
      {away && <Operate onClick={() => setOpen("start")}>Start</Operate>}
      {volume.health !== "stopped" && <Operate onClick={() => setOpen("stop")} disabled={busy}>Stop</Operate>}
      {volume.health === "failed" && <Operate onClick={() => setOpen("accept")}>Accept the disk</Operate>}
      <Operate kind="danger" onClick={() => setOpen("remove")} disabled={busy}>Remove</Operate>
      {open === "mode" && <Change setting={MODE} volume={volume} onClose={close} />}
      {open === "destage" && <Destage volume={volume} onClose={close} />}
      {open === "warm" && <Warm volume={volume} onClose={close} />}
      {open === "remove" && <Remove volume={volume} onClose={close} />}
      {open === "accept" && <Accept volume={volume} onClose={close} />}
      {open === "start" && <Start volume={volume} onClose={close} />}
      {open === "stop" && <Stop volume={volume} onClose={close} />}
      {open === "drop" && <DropCache volume={volume} onClose={close} />}
      {open === "grow" && <Grow volume={volume} onClose={close} />}
    </div>
  );
}

interface Props {
  volume: VolumeView;
  onClose: () => void;
}

function begun(job: JobView, what: string): void {
  takeJob(job);
  toast({ kind: "done", title: `${what} has begun`, detail: "its progress is on this page and under Jobs" });
}

function Destage({ volume, onClose }: Props) {
  const sample = liveVolume(volume.name).sample.value;
  const dirty = sample?.dirty_bytes ?? volume.dirty_bytes;
  const rate = sample?.destaged_bytes_s ?? 0;
  return (
    <Dialog
      title={`Destage ${volume.name}`}
      confirm="Bring it home"
      onConfirm={async () => begun(await post<JobView>(`/volumes/${part(volume.name)}/destage`), `Destage of ${volume.name}`)}
      onClose={onClose}
    >
      <Meaning
        sentences={[
          dirty === null ? `Dirty data, an unknown amount, is destaged to ${volume.backing} now.` : dirty > 0 ? `${bytes(dirty)} of dirty data are destaged to ${volume.backing} now.` : "Nothing is dirty now; data that becomes dirty meanwhile is destaged.",
          ...(dirty !== null && dirty > 0 && rate > 0 ? [`At the present ${bytesPerSecond(rate)} that takes about ${span(dirty / rate)}.`] : []),
          "Clients continue; reads from the disk may take longer meanwhile. The job can be stopped; destaged data stays destaged.",
        ]}
      />
    </Dialog>
  );
}

function Warm({ volume, onClose }: Props) {
  const [text, setText] = useState("");
  const parsed = text.trim() === "" ? { value: { start_bytes: 0, end_bytes: volume.size_bytes } } : range(text, volume.size_bytes, 2 ** 20);
  const length = parsed.value ? parsed.value.end_bytes - parsed.value.start_bytes : 0;
  return (
    <Dialog
      title={`Warm up ${volume.name}`}
      confirm="Read it into the cache"
      ready={parsed.value !== undefined}
      onConfirm={async () => begun(await post<JobView>(`/volumes/${part(volume.name)}/warm`, parsed.value), `Warm-up of ${volume.name}`)}
      onClose={onClose}
    >
      <label class="field">
        <span>Range (empty: the whole volume)</span>
        <input value={text} placeholder="0-10GiB" spellcheck={false} autocomplete="off" aria-invalid={parsed.problem !== undefined} onInput={(event) => setText(event.currentTarget.value)} />
        {parsed.problem && <span class="wrong">{parsed.problem}</span>}
      </label>
      <Meaning
        sentences={[
          `${bytes(length)} are read from ${volume.backing} into the cache, whatever the admission says.`,
          "What does not fit pushes out what was used least. The SSD is written as much. The job can be stopped.",
        ]}
      />
    </Dialog>
  );
}

function Remove({ volume, onClose }: Props) {
  const [typed, setTyped] = useState("");
  const [drop, setDrop] = useState(false);
  const dirty = liveVolume(volume.name).sample.value?.dirty_bytes ?? volume.dirty_bytes;
  const confirm = async (): Promise<void> => {
    const job = await remove<JobView>(`/volumes/${part(volume.name)}`, { drop_dirty: drop });
    takeJob(job);
    toast({ kind: "done", title: `Removal of ${volume.name} has begun` });
    await refreshVolumes();
    go({ page: "jobs" });
  };
  return (
    <Dialog title={`Remove ${volume.name}`} confirm={drop ? "Remove it and lose dirty data" : "Remove it"} danger ready={typed === volume.name} onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          drop
            ? `Dirty data${dirty !== 0 ? ` (${dirty === null ? "an unknown amount" : bytes(dirty)})` : ""} is lost: ${volume.backing} keeps its older content.`
            : dirty === null
              ? `Dirty data, an unknown amount, is destaged to ${volume.backing} first.`
              : dirty > 0
              ? `${bytes(dirty)} of dirty data are destaged to ${volume.backing} first.`
              : "Nothing is dirty.",
          `Then its exports (${Object.values(volume.exports).filter((place) => place !== null).join(", ") || "none"}) go away and hearth forgets the volume. Refused while something is mounted.`,
          drop ? "The rest of the disk does not change." : `${volume.backing} is then complete and usable without hearth. Nothing on it is deleted.`,
        ]}
      />
      <label class="check">
        <input type="checkbox" checked={drop} onChange={(event) => setDrop(event.currentTarget.checked)} />
        <span>Drop dirty data instead of bringing it home. Only for a disk or an SSD that cannot be reached any more.</span>
      </label>
      <label class="field">
        <span>Type <code>{volume.name}</code> to remove it</span>
        <input value={typed} spellcheck={false} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
      </label>
    </Dialog>
  );
}

/** Done, with what the daemon says of it. */
async function told(volume: VolumeView, done: Done): Promise<void> {
  toast({ kind: "done", title: volume.name, detail: done.summary ?? "done" });
  await refreshVolumes();
}

function Start({ volume, onClose }: Props) {
  const confirm = async (): Promise<void> => told(volume, await post<Done>(`/volumes/${part(volume.name)}/start`));
  return (
    <Dialog title={`Start ${volume.name}`} confirm="Start it" onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          `${volume.backing} is looked for by what it is, under this name and all others, and the volume is offered as before.`,
          "Other volumes are not touched. A volume whose disk was away starts by itself when that is back.",
        ]}
      />
    </Dialog>
  );
}

function Stop({ volume, onClose }: Props) {
  const confirm = async (): Promise<void> => told(volume, await post<Done>(`/volumes/${part(volume.name)}/stop`));
  return (
    <Dialog title={`Stop ${volume.name}`} confirm="Stop it" onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          `Its exports go away and ${volume.backing} is free. Refused while something is mounted. Other volumes are not touched.`,
          "What is cached of it stays, dirty data too. It stays stopped, also when the daemon is restarted, until you start it.",
        ]}
      />
    </Dialog>
  );
}

function DropCache({ volume, onClose }: Props) {
  const confirm = async (): Promise<void> => told(volume, await post<Done>(`/volumes/${part(volume.name)}/drop-cache`));
  return (
    <Dialog title={`Drop the cache of ${volume.name}`} confirm="Drop it" onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          "What is cached of the volume in RAM, and clean on the SSD, is dropped. Dirty data is kept.",
          `Until it is cached again, it is read from ${volume.backing}.`,
        ]}
      />
    </Dialog>
  );
}

function Grow({ volume, onClose }: Props) {
  const confirm = async (): Promise<void> => told(volume, await post<Done>(`/volumes/${part(volume.name)}/grow`));
  return (
    <Dialog title={`Grow ${volume.name}`} confirm="Grow it" onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          `${volume.backing} has ${bytes(volume.backing_size_bytes ?? volume.size_bytes)} now: the volume is served with that size, and no more with ${bytes(volume.size_bytes)}.`,
          "Its block device follows at once, while clients continue. NBD clients see the new size when they connect again. Grow the file system on it then.",
          "A volume never shrinks again.",
        ]}
      />
    </Dialog>
  );
}

function Accept({ volume, onClose }: Props) {
  const confirm = async (): Promise<void> => told(volume, await patch<Done>(`/volumes/${part(volume.name)}`, { accept_backing: true }));
  return (
    <Dialog title={`Accept ${volume.backing} as it is now`} confirm="Accept the disk" danger onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          `${volume.backing} was found changed. If you accept it, the volume's clean cache is dropped.`,
          `Dirty data${volume.dirty_bytes !== 0 ? ` (${volume.dirty_bytes === null ? "an unknown amount" : bytes(volume.dirty_bytes)})` : ""} is kept and will be written over what is on the disk now. If it is another disk, that destroys data there.`,
        ]}
      />
    </Dialog>
  );
}
