/** What is asked before a disk is made, resized or removed. */

import { useState } from "preact/hooks";
import type { DiskCreate, DiskSet, DiskView, JobView, PoolView } from "../api";
import { bytes } from "../format";
import { takeJob } from "../live/store";
import { nameProblem, size } from "../parse";
import { part, patch, post, remove } from "../rest";
import { Dialog, Meaning } from "../ui/dialog";
import { Offered, Text } from "../ui/form";
import { toast } from "../ui/toast";
import { BLOCK_ONLY, exportsOf, offerProblems, type Offer } from "../words/offer";

interface Common {
  /** Fetches the disks anew. */
  refresh: () => Promise<unknown>;
  onClose: () => void;
}

/** What giving room costs, as the command line's page has it. */
const ROOM = "Where no room is set aside, the cache gives it: dirty data is destaged, and the cache goes on in what is left, with what lies there; one that was upgraded from a log begins empty. Users of block devices and of NBD on the Unix socket wait meanwhile; clients of NBD on TCP are disconnected, and virtual machines on vhost-user have to be off.";

/** Takes the answer: the disk, or the job that has begun. */
async function took(answer: DiskView | JobView, done: string, begun: string, refresh: () => Promise<unknown>): Promise<void> {
  if ("done_bytes" in answer) {
    takeJob(answer);
    toast({ kind: "done", title: begun, detail: "the cache gives room first" });
  } else toast({ kind: "done", title: done });
  await refresh();
}

export function MakeDisk({ pool, refresh, onClose }: Common & { pool: PoolView }) {
  const [name, setName] = useState("");
  const [amount, setAmount] = useState("");
  const [offer, setOffer] = useState<Offer>(BLOCK_ONLY);
  const parsed = size(amount);
  const wrong = offerProblems(offer);
  const ready = nameProblem(name) === undefined && (parsed.value ?? 0) > 0 && Object.keys(wrong).length === 0;
  const confirm = async (): Promise<void> => {
    const body: DiskCreate = { name, pool: pool.name, size_bytes: parsed.value!, exports: exportsOf(offer) };
    await took(await post<DiskView | JobView>("/disks", body), `Disk ${name} is made`, `Disk ${name} is being made`, refresh);
  };
  return (
    <Dialog title={`Make a disk on ${pool.ssd}`} confirm="Make it" ready={ready} onConfirm={confirm} onClose={onClose}>
      <Text label="Name of the disk" value={name} placeholder="scratch" wrong={name === "" ? undefined : nameProblem(name)} hint="letters, digits, . _ -" onText={setName} />
      <Text label="Size of the disk" value={amount} placeholder="20GiB" wrong={amount.trim() === "" ? undefined : parsed.problem} hint="it can grow later, while it is used" onText={setAmount} />
      <Offered of={offer} set={(more) => setOffer({ ...offer, ...more })} wrong={wrong} />
      <Meaning sentences={["A part of the SSD and nothing else: no cache, no checksums, as fast as the SSD. It is lost with the SSD.", ROOM]} />
    </Dialog>
  );
}

export function ResizeDisk({ disk, refresh, onClose }: Common & { disk: DiskView }) {
  const [amount, setAmount] = useState("");
  const [lose, setLose] = useState(false);
  const parsed = size(amount);
  const smaller = parsed.value !== undefined && parsed.value < disk.size_bytes;
  const confirm = async (): Promise<void> => {
    const body: DiskSet = { size_bytes: parsed.value!, lose_content: smaller && lose };
    const answer = await patch<DiskView | JobView>(`/disks/${part(disk.name)}`, body);
    await took(answer, `${disk.name} has ${bytes(parsed.value!)} now`, `${disk.name} is being made larger`, refresh);
  };
  const means = smaller
    ? [`What lies behind ${bytes(parsed.value!)} is lost: shrink the file system first.`, "Refused while the disk is in use."]
    : ["It grows while it is used; its block device is larger at once, and NBD clients see that when they connect again.", ROOM];
  return (
    <Dialog title={`Resize ${disk.name}`} confirm="Resize it" danger={smaller} ready={(parsed.value ?? 0) > 0 && (!smaller || lose)} onConfirm={confirm} onClose={onClose}>
      <Text label={`New size (it is ${bytes(disk.size_bytes)})`} value={amount} placeholder="30GiB" wrong={amount.trim() === "" ? undefined : parsed.problem} onText={setAmount} />
      {smaller && <label class="check"><input type="checkbox" checked={lose} onChange={(event) => setLose(event.currentTarget.checked)} /><span>Lose what lies behind the new end</span></label>}
      <Meaning sentences={means} />
    </Dialog>
  );
}

export function RemoveDisk({ disk, refresh, onClose }: Common & { disk: DiskView }) {
  const [typed, setTyped] = useState("");
  const confirm = async (): Promise<void> => {
    await remove(`/disks/${part(disk.name)}`, { lose_content: true });
    toast({ kind: "done", title: `Disk ${disk.name} is removed` });
    await refresh();
  };
  return (
    <Dialog title={`Remove ${disk.name}`} confirm="Remove it" danger ready={typed === disk.name} onConfirm={confirm} onClose={onClose}>
      <Meaning sentences={[`All that the disk holds, ${bytes(disk.size_bytes)}, is lost.`, "Refused while it is in use or shared; NBD clients are disconnected. The cache gets the room when it is told to take it back."]} />
      <label class="field"><span>Type <code>{disk.name}</code> to remove it</span><input value={typed} spellcheck={false} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} /></label>
    </Dialog>
  );
}
