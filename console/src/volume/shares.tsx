/** A volume or disk offered to other machines: shown, added, removed. */

import { useState } from "preact/hooks";
import { AddShare, RemoveShare, type Shareable } from "../access/share-dialogs";
import type { VolumeView } from "../api";
import type { ShareView } from "../api-access";
import { refreshVolumes } from "../live/store";
import { Copy, Panel } from "../ui/basics";
import { Operate } from "../ui/operate";
import { connectedTold, deviceOf, mayConnect, protocolsFree, servedBy, SHARE_TITLES } from "../words/shares";

/** The commands of a Linux machine that uses the share. */
export function connecting(share: ShareView): string[] {
  const [address = ""] = share.addresses;
  const at = address.lastIndexOf(":");
  const [host, port] = [address.slice(0, at), address.slice(at + 1)];
  if (share.protocol === "nvme-tcp") return [`nvme connect -t tcp -a ${host.replace(/[[\]]/g, "")} -s ${port} -n ${share.target} -l -1`];
  return [`iscsiadm -m discovery -t sendtargets -p ${address}`, `iscsiadm -m node -T ${share.target} -p ${address} --login`];
}

interface SharesProps {
  of: Shareable;
  /** Fetches it anew. */
  refresh: () => Promise<unknown>;
}

export function Shares({ volume }: { volume: VolumeView }) {
  return (
    <Panel title="Shared with other machines" id="shares">
      <SharesOf of={volume} refresh={refreshVolumes} />
    </Panel>
  );
}

/** The same without a frame. */
export function SharesOf({ of, refresh }: SharesProps) {
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<ShareView | null>(null);
  const shares = of.shares ?? [];
  const device = deviceOf(of);
  return (
    <>
      {shares.length === 0 && <p class="calm">Not shared. {device ? "By iSCSI or NVMe/TCP other machines can use it as a disk." : "Only what has a block device can be shared."}</p>}
      {shares.map((share) => <Shown key={share.protocol} share={share} onRemove={() => setRemoving(share)} />)}
      {protocolsFree(shares).length > 0 && device && <Operate label={`Share it: ${of.name}`} onClick={() => setAdding(true)} disabled={of.health === "removing"}>Share it</Operate>}
      {adding && <AddShare among={[of]} refresh={refresh} onClose={() => setAdding(false)} />}
      {removing && <RemoveShare share={removing} refresh={refresh} onClose={() => setRemoving(null)} />}
    </>
  );
}

function Shown({ share, onRemove }: { share: ShareView; onRemove: () => void }) {
  return (
    <section aria-label={`Share by ${SHARE_TITLES[share.protocol]}`}>
      <dl class="places">
        <div><dt>{SHARE_TITLES[share.protocol]}</dt><dd>{share.device ? <Copy text={share.target} /> : <span class="muted">not shared just now</span>}</dd></div>
        <div><dt>Address</dt><dd>{share.addresses.join(", ")}</dd></div>
        <div><dt>World-wide name</dt><dd><code>{share.wwn}</code></dd></div>
        <div><dt>Initiators that may connect</dt><dd>{mayConnect(share)}{share.chap_file && <>; CHAP secrets in <code>{share.chap_file}</code></>}</dd></div>
        <div><dt>Connected</dt><dd>{connectedTold(share)}</dd></div>
        {share.server && <div><dt>Served by</dt><dd>{servedBy(share.server)}</dd></div>}
      </dl>
      {(share.limits ?? []).length > 0 && <ul class="limits">{share.limits!.map((limit) => <li key={limit}>{limit}</li>)}</ul>}
      {share.problem && <p class="wrong" role="alert">{share.problem}{share.remedy ? `; ${share.remedy}` : ""}</p>}
      <details>
        <summary>How to use it from Linux</summary>
        <ul class="commands">{connecting(share).map((text) => <li key={text}><Copy text={text} /></li>)}</ul>
      </details>
      <Operate kind="danger" label={`Remove the share by ${SHARE_TITLES[share.protocol]}`} onClick={onRemove}>Remove the share</Operate>
    </section>
  );
}
