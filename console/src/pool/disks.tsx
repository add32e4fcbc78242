/** The plain disks beside a pool's cache, on the same SSD: shown, made, resized, shared, removed. */

import { useEffect, useState } from "preact/hooks";
import type { DiskView, JobView, PoolView } from "../api";
import { bytes } from "../format";
import { attempt } from "../live/connection";
import { mayOperate, refreshPools, takeJob } from "../live/store";
import { onSample } from "../live/volumes";
import { get, part, post } from "../rest";
import { Badge, Copy, Panel, Trouble } from "../ui/basics";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";
import { SharesOf } from "../volume/shares";
import { commands, Places } from "../volume/use";
import { HEALTH_TONE } from "../words/health";
import { MakeDisk, RemoveDisk, ResizeDisk } from "./disk-dialogs";

export function Disks({ pool }: { pool: PoolView }) {
  const names = (pool.disks ?? []).join(" ");
  const [disks, setDisks] = useState<DiskView[]>([]);
  const [making, setMaking] = useState(false);
  const load = async (): Promise<void> => setDisks((await get<DiskView[]>("/disks")).filter((disk) => disk.pool === pool.name));
  const refresh = (): Promise<unknown> => Promise.all([load(), refreshPools()]);
  useEffect(() => {
    let ended = false;
    const look = (): void => void get<DiskView[]>("/disks").then((all) => ended || setDisks(all.filter((disk) => disk.pool === pool.name)), () => {});
    if (names !== "") look();
    else setDisks([]);
    let samples = 0;
    const end = onSample(() => names !== "" && (samples += 1) % 5 === 0 && look());
    return () => {
      ended = true;
      end();
    };
  }, [pool.name, names]);
  const takeBack = (): void =>
    void attempt(`The return of room to the cache of ${pool.name}`, async () => {
      takeJob(await post<JobView>(`/pools/${part(pool.name)}/take-back`));
      toast({ kind: "done", title: `The cache of ${pool.name} takes room back`, detail: "it keeps what it has, or begins empty if it was upgraded from a log" });
    });
  // Nothing to see, and nothing to be done.
  if (names === "" && !pool.disks_bytes && !mayOperate.value) return null;
  return (
    <Panel title="Disks beside the cache" id="disks">
      <p class="calm">
        {pool.disks_bytes ? `${bytes(pool.disks_bytes)} of the SSD are set aside for disks, which have neither cache nor checksums.` : "Parts of the SSD can be disks by themselves, as fast as it is, without cache and checksums. The cache gives the room."}
      </p>
      {disks.map((disk) => <Disk key={disk.uuid} disk={disk} refresh={refresh} />)}
      <div class="actions">
        <Operate onClick={() => setMaking(true)} disabled={pool.health !== "running"}>Make a disk</Operate>
        {!!pool.disks_bytes && <Operate onClick={takeBack} disabled={pool.health !== "running"} title="The room before the first disk; all of it, if there is no disk">Give room back to the cache</Operate>}
      </div>
      {making && <MakeDisk pool={pool} refresh={refresh} onClose={() => setMaking(false)} />}
    </Panel>
  );
}

function Disk({ disk, refresh }: { disk: DiskView; refresh: () => Promise<unknown> }) {
  const [open, setOpen] = useState<"resize" | "remove" | null>(null);
  const ways = commands(disk);
  return (
    <section aria-label={`Disk ${disk.name}`}>
      <h3>{disk.name} <Badge tone={HEALTH_TONE[disk.health]}>{disk.health}</Badge> {bytes(disk.size_bytes)}</h3>
      {disk.problem && <Trouble tone="bad" problem={disk.problem} remedy={disk.remedy} />}
      <dl class="places"><Places of={disk} /></dl>
      {ways.length > 0 && (
        <details>
          <summary>How to use it</summary>
          <ul class="commands">{ways.map(({ told, text }) => <li key={text}><span>{told}</span><Copy text={text} /></li>)}</ul>
        </details>
      )}
      <SharesOf of={disk} refresh={refresh} />
      <div class="actions">
        <Operate label={`Resize ${disk.name}`} onClick={() => setOpen("resize")}>Resize</Operate>
        <Operate kind="danger" label={`Remove ${disk.name}`} onClick={() => setOpen("remove")}>Remove</Operate>
      </div>
      {open === "resize" && <ResizeDisk disk={disk} refresh={refresh} onClose={() => setOpen(null)} />}
      {open === "remove" && <RemoveDisk disk={disk} refresh={refresh} onClose={() => setOpen(null)} />}
    </section>
  );
}
