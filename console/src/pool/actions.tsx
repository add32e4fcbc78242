/** What can be done with a pool: start it, check it, put it on another SSD, destroy it. */

import { useState } from "preact/hooks";
import type { Done, JobView, PoolReplace, PoolView } from "../api";
import { counted, known } from "../format";
import { attempt } from "../live/connection";
import { refreshPools, refreshVolumes, takeJob } from "../live/store";
import { size } from "../parse";
import { part, post, remove } from "../rest";
import { go } from "../route";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";

export function PoolActions({ pool }: { pool: PoolView }) {
  const [open, setOpen] = useState<"start" | "replace" | "destroy" | null>(null);
  const check = (): void =>
    void attempt(`The check of ${pool.name}`, async () => {
      takeJob(await post<JobView>(`/pools/${part(pool.name)}/check`));
      toast({ kind: "done", title: `Check of ${pool.name} has begun`, detail: "it reads what the SSD holds and compares checksums" });
    });
  return (
    <div class="actions">
      <Operate onClick={check} disabled={pool.health !== "running" && pool.health !== "failed"} title="Compares what the SSD holds with its checksums, while I/O runs">Check</Operate>
      {(pool.health === "failed" || pool.health === "degraded") && <Operate onClick={() => setOpen("start")}>Start</Operate>}
      <Operate onClick={() => setOpen("replace")}>Replace the SSD</Operate>
      <Operate kind="danger" onClick={() => setOpen("destroy")} disabled={pool.volumes.length > 0} title={pool.volumes.length > 0 ? "Remove its volumes first" : undefined}>Destroy</Operate>
      {open === "start" && <Start pool={pool} onClose={() => setOpen(null)} />}
      {open === "replace" && <Replace pool={pool} onClose={() => setOpen(null)} />}
      {open === "destroy" && <Destroy pool={pool} onClose={() => setOpen(null)} />}
    </div>
  );
}

interface Props {
  pool: PoolView;
  onClose: () => void;
}

function Start({ pool, onClose }: Props) {
  const confirm = async (): Promise<void> => {
    const done = await post<Done>(`/pools/${part(pool.name)}/start`);
    await Promise.all([refreshPools(), refreshVolumes()]);
    toast({ kind: "done", title: `${pool.name}: ${done.summary ?? "started"}` });
  };
  return (
    <Dialog title={`Start ${pool.name}`} confirm="Start it" onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          `For an SSD that was away or full, and is there again. ${pool.ssd} is found by the pool's UUID, under this name and all others; dirty data on it is served again.`,
          "Refused while a volume of the pool is mounted or open. Other pools are not touched.",
        ]}
      />
    </Dialog>
  );
}

function Replace({ pool, onClose }: Props) {
  const [ssd, setSsd] = useState("");
  const [amount, setAmount] = useState("");
  const [force, setForce] = useState(false);
  const [drop, setDrop] = useState(false);
  const parsed = amount.trim() === "" ? { value: undefined, problem: undefined } : size(amount);
  const confirm = async (): Promise<void> => {
    const body: PoolReplace = { ssd: ssd.trim(), size_bytes: parsed.value ?? null, force, drop_dirty: drop };
    takeJob(await post<JobView>(`/pools/${part(pool.name)}/replace`, body));
    toast({ kind: "done", title: `Putting ${pool.name} on ${ssd.trim()} has begun` });
  };
  return (
    <Dialog title={`Put ${pool.name} on another SSD`} confirm="Replace the SSD" danger={force || drop} ready={ssd.trim().startsWith("/") && parsed.problem === undefined} onConfirm={confirm} onClose={onClose}>
      <label class="field"><span>New SSD: a disk, a partition or a file</span><input value={ssd} placeholder="/dev/nvme1n1" spellcheck={false} autocomplete="off" onInput={(event) => setSsd(event.currentTarget.value)} /></label>
      <label class="field"><span>Size (empty: all of it; a new file needs one)</span><input value={amount} placeholder="100GiB" spellcheck={false} autocomplete="off" onInput={(event) => setAmount(event.currentTarget.value)} />{parsed.problem && <span class="wrong">{parsed.problem}</span>}</label>
      <label class="check"><input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} /><span>Destroy what is on the new SSD, if something is known to be there</span></label>
      <label class="check"><input type="checkbox" checked={drop} onChange={(event) => setDrop(event.currentTarget.checked)} /><span>Discard dirty data of the old SSD that cannot be destaged</span></label>
      <Meaning
        sentences={[
          `${counted(pool.volumes.length, "volume")} are kept; the new cache is empty. ${pool.ssd} is not changed.`,
          drop ? `Dirty data (${known(pool.dirty_bytes)}) that cannot be destaged is lost.` : "Dirty data is destaged first; if that fails, nothing is changed. Until then the job can be stopped.",
          "Refused while an export is mounted: unmount first.",
          ...(force ? [`Everything on ${ssd.trim() || "the new SSD"} is destroyed.`] : []),
        ]}
      />
    </Dialog>
  );
}

function Destroy({ pool, onClose }: Props) {
  const [typed, setTyped] = useState("");
  const confirm = async (): Promise<void> => {
    await remove(`/pools/${part(pool.name)}`);
    await refreshPools();
    go({ page: "pools" });
  };
  return (
    <Dialog title={`Destroy pool ${pool.name}`} confirm="Destroy it" danger ready={typed === pool.name} onConfirm={confirm} onClose={onClose}>
      <Meaning sentences={[`The pool's superblock on ${pool.ssd} is wiped and hearth forgets the pool. It has no volumes, so no data is lost.`]} />
      <label class="field"><span>Type <code>{pool.name}</code> to destroy it</span><input value={typed} spellcheck={false} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} /></label>
    </Dialog>
  );
}
