/** All shares: what other machines can use as a disk, who may, and who does. */

import { useState } from "preact/hooks";
import type { DiskView } from "../api";
import type { ShareView } from "../api-access";
import { usePolled } from "../live/polled";
import { refreshVolumes, volumes } from "../live/store";
import { href } from "../route";
import { Badge, Copy, Panel, Trouble } from "../ui/basics";
import { Operate } from "../ui/operate";
import { Table, type Column } from "../ui/table";
import { sentence } from "../ui/toast";
import { canBeShared, initiatorsOf, servedBy, shareState, SHARE_TITLES } from "../words/shares";
import { AddShare, RemoveShare } from "./share-dialogs";

const EVERY_MS = 5000;
/** Disks come and go seldom, and not by themselves. */
const DISKS_EVERY_MS = 15_000;

export function AllShares() {
  const { value: shares, error, again } = usePolled<ShareView[]>("/shares", EVERY_MS);
  const { value: disks, again: disksAgain } = usePolled<DiskView[]>("/disks", DISKS_EVERY_MS);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<ShareView | null>(null);
  const refresh = async (): Promise<void> => {
    again();
    disksAgain();
    await refreshVolumes();
  };
  const possible = [...volumes.value, ...(disks ?? [])].filter(canBeShared);
  const share = (
    <Operate onClick={() => setAdding(true)} disabled={possible.length === 0} title={possible.length === 0 ? "Only what has a block device can be shared" : undefined}>
      Share a volume or disk
    </Operate>
  );
  return (
    <Panel title="Shares" id="shares" aside={share}>
      {error && <Trouble tone="bad" problem={error.detail} remedy={error.remedy} />}
      {!shares && !error && <p class="calm">Asking the daemon…</p>}
      {shares?.length === 0 && <p class="calm">Nothing is shared. By iSCSI or NVMe/TCP other machines can use a volume as a disk.</p>}
      {shares && shares.length > 0 && (
        <div class="table-box shares">
          <Table columns={columns(disks ?? [], setRemoving)} rows={shares} />
        </div>
      )}
      {adding && <AddShare among={possible} refresh={refresh} onClose={() => setAdding(false)} />}
      {removing && <RemoveShare share={removing} refresh={refresh} onClose={() => setRemoving(null)} />}
    </Panel>
  );
}

const columns = (disks: DiskView[], onRemove: (share: ShareView) => void): Column<ShareView>[] => [
  ["Shared", ({ volume }) => <Shared name={volume} disk={disks.find(({ name }) => name === volume)} />],
  ["By", ({ protocol, server }) => <>{SHARE_TITLES[protocol]}{server && <span class="under">{servedBy(server)}</span>}</>],
  ["State", (share) => <State share={share} />],
  ["Address", ({ addresses }) => addresses.join(", ")],
  ["Initiators", (share) => <Initiators share={share} />],
  ["Target", ({ target }) => <Copy text={target} />],
  [
    "Change",
    (share) => (
      <Operate kind="danger" label={`Remove the share of ${share.volume} by ${SHARE_TITLES[share.protocol]}`} onClick={() => onRemove(share)}>
        Remove
      </Operate>
    ),
    "right",
  ],
];

/** A disk stands on its pool's page. */
function Shared({ name, disk }: { name: string; disk: DiskView | undefined }) {
  const place = disk ? href({ page: "pool", name: disk.pool }) : href({ page: "volume", name });
  return <><a href={place}>{name}</a>{disk && <span class="under">disk</span>}</>;
}

/** Who may connect, and who is. */
function Initiators({ share }: { share: ShareView }) {
  const all = share.initiators.length === 0;
  return (
    <>
      {all && "All may connect."}
      <ul class="initiators">
        {initiatorsOf(share).map(({ name, connected }) => (
          <li key={name}>{name} {connected && <Badge tone="good">connected</Badge>}</li>
        ))}
      </ul>
      {share.connected == null && <span class="under">Who is connected is not known.</span>}
      {share.connected?.length === 0 && <span class="under">None is connected.</span>}
      {share.chap_file && <span class="under">With CHAP, <code>{share.chap_file}</code></span>}
    </>
  );
}

function State({ share }: { share: ShareView }) {
  const { tone, word } = shareState(share);
  const told = [share.problem, share.remedy, ...(share.limits ?? [])].filter((text) => text != null);
  return (
    <>
      <Badge tone={tone}>{word}</Badge>
      {told.map((text) => <span key={text} class="under">{sentence(text)}</span>)}
    </>
  );
}
