/** A volume or disk offered to other machines: shown, added, removed. */

import { useState } from "preact/hooks";
import type { Done, ShareAdd, ShareProtocol, ShareView, VolumeView } from "../api";
import { refreshVolumes } from "../live/store";
import { part, post, remove } from "../rest";
import { Copy, Panel } from "../ui/basics";
import { Dialog, Meaning } from "../ui/dialog";
import { Operate } from "../ui/operate";
import { toast } from "../ui/toast";
import { INITIATOR_EXAMPLES, listed, servedBy, SHARE_PORTS, SHARE_TITLES, whoIsConnected } from "../words/shares";

/** The commands of a Linux machine that uses the share. */
export function connecting(share: ShareView): string[] {
  const [address = ""] = share.addresses;
  const at = address.lastIndexOf(":");
  const [host, port] = [address.slice(0, at), address.slice(at + 1)];
  if (share.protocol === "nvme-tcp") return [`nvme connect -t tcp -a ${host.replace(/[[\]]/g, "")} -s ${port} -n ${share.target} -l -1`];
  return [`iscsiadm -m discovery -t sendtargets -p ${address}`, `iscsiadm -m node -T ${share.target} -p ${address} --login`];
}

/** What is shared: a volume, or a disk beside a cache. */
type Shareable = Pick<VolumeView, "name" | "health" | "exports" | "stable_path" | "shares">;

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
  const free = (Object.keys(SHARE_TITLES) as ShareProtocol[]).filter((protocol) => !shares.some((share) => share.protocol === protocol));
  const device = of.stable_path ?? Object.values(of.exports).find((place) => place?.startsWith("/dev/"));
  return (
    <>
      {shares.length === 0 && <p class="calm">Not shared. {device ? "By iSCSI or NVMe/TCP other machines can use it as a disk." : "Only what has a block device can be shared."}</p>}
      {shares.map((share) => <Shown key={share.protocol} share={share} onRemove={() => setRemoving(share)} />)}
      {free.length > 0 && device && <Operate label={`Share it: ${of.name}`} onClick={() => setAdding(true)} disabled={of.health === "removing"}>Share it</Operate>}
      {adding && <Add of={of} free={free} refresh={refresh} onClose={() => setAdding(false)} />}
      {removing && <Remove share={removing} refresh={refresh} onClose={() => setRemoving(null)} />}
    </>
  );
}

function Shown({ share, onRemove }: { share: ShareView; onRemove: () => void }) {
  const connected = share.connected == null ? "unknown" : share.connected.length === 0 ? "none" : share.connected.join(", ");
  return (
    <section aria-label={`Share by ${SHARE_TITLES[share.protocol]}`}>
      <dl class="places">
        <div><dt>{SHARE_TITLES[share.protocol]}</dt><dd>{share.device ? <Copy text={share.target} /> : <span class="muted">not shared just now</span>}</dd></div>
        <div><dt>Address</dt><dd>{share.addresses.join(", ")}</dd></div>
        <div><dt>World-wide name</dt><dd><code>{share.wwn}</code></dd></div>
        <div><dt>Initiators that may connect</dt><dd>{share.initiators.length === 0 ? "all" : share.initiators.join(", ")}{share.chap_file && <>; CHAP secrets in <code>{share.chap_file}</code></>}</dd></div>
        <div><dt>Connected</dt><dd>{connected}</dd></div>
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

function Add({ of, free, refresh, onClose }: SharesProps & { free: ShareProtocol[]; onClose: () => void }) {
  const [protocol, setProtocol] = useState<ShareProtocol>(free[0]!);
  const [addresses, setAddresses] = useState("");
  const [initiators, setInitiators] = useState("");
  const [any, setAny] = useState(false);
  const [chap, setChap] = useState("");
  const confirm = async (): Promise<void> => {
    const body: ShareAdd = { protocol, addresses: listed(addresses), initiators: listed(initiators), any_initiator: any, chap_file: chap.trim() === "" || protocol !== "iscsi" ? null : chap.trim() };
    const share = await post<ShareView>(`/volumes/${part(of.name)}/shares`, body);
    toast({ kind: "done", title: `${of.name} is shared by ${SHARE_TITLES[protocol]}`, detail: share.target });
    await refresh();
  };
  return (
    <Dialog title={`Share ${of.name}`} confirm="Share it" onConfirm={confirm} onClose={onClose}>
      <fieldset class="choices row">
        <legend>How?</legend>
        {free.map((word) => (
          <label key={word} class="choice">
            <input type="radio" name="protocol" checked={protocol === word} onChange={() => setProtocol(word)} />
            <span><strong>{SHARE_TITLES[word]}</strong></span>
          </label>
        ))}
      </fieldset>
      <label class="field">
        <span>Addresses of this machine to listen on (empty: 127.0.0.1)</span>
        <input value={addresses} placeholder={`192.0.2.1 or 192.0.2.1:${SHARE_PORTS[protocol]}`} spellcheck={false} autocomplete="off" onInput={(event) => setAddresses(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Initiators that may connect</span>
        <input value={initiators} placeholder={INITIATOR_EXAMPLES[protocol]} spellcheck={false} autocomplete="off" disabled={any} onInput={(event) => setInitiators(event.currentTarget.value)} />
      </label>
      <label class="check">
        <input type="checkbox" checked={any} onChange={(event) => { setAny(event.currentTarget.checked); setInitiators(""); }} />
        <span>Allow every machine that reaches the address. It can read and write all of it.</span>
      </label>
      {protocol === "iscsi" && (
        <label class="field">
          <span>File with CHAP secrets on the daemon's machine (empty: none)</span>
          <input value={chap} placeholder="/etc/hearth/chap-db" spellcheck={false} autocomplete="off" onInput={(event) => setChap(event.currentTarget.value)} />
        </label>
      )}
      <Meaning
        sentences={[
          "A target of this machine (the kernel's, or tgt) offers its block device. It comes back by itself after a restart of the daemon or the machine.",
          "While it is shared, it cannot be stopped or removed; do not mount it on this machine.",
        ]}
      />
    </Dialog>
  );
}

function Remove({ share, refresh, onClose }: { share: ShareView; refresh: () => Promise<unknown>; onClose: () => void }) {
  const [force, setForce] = useState(false);
  const confirm = async (): Promise<void> => {
    const done = await remove<Done>(`/volumes/${part(share.volume)}/shares/${share.protocol}`, { force });
    toast({ kind: "done", title: share.volume, detail: done.told ?? "done" });
    await refresh();
  };
  return (
    <Dialog title={`Remove the share of ${share.volume} by ${SHARE_TITLES[share.protocol]}`} confirm="Remove the share" danger onConfirm={confirm} onClose={onClose}>
      <Meaning
        sentences={[
          whoIsConnected(share.connected),
          "Its data does not change. Shared again, it is the same disk to initiators.",
        ]}
      />
      <label class="check">
        <input type="checkbox" checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />
        <span>Disconnect initiators: what they have in use gets I/O errors.</span>
      </label>
    </Dialog>
  );
}
