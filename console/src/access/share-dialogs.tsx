/** The dialogs of shares: what is offered to other machines, and what is taken back. */

import { useState } from "preact/hooks";
import type { Done, VolumeView } from "../api";
import type { ShareAdd, ShareProtocol, ShareView } from "../api-access";
import { part, post, remove } from "../rest";
import { Dialog, Meaning } from "../ui/dialog";
import { toast } from "../ui/toast";
import { INITIATOR_EXAMPLES, listed, protocolsFree, SHARE_PORTS, SHARE_TITLES, whoIsConnected } from "../words/shares";

/** What can be shared: a volume, or a disk beside a cache. */
export type Shareable = Pick<VolumeView, "name" | "health" | "exports" | "stable_path" | "shares">;

interface AddProps {
  /** What can be shared: at least one. */
  among: Shareable[];
  /** Fetches what shows it anew. */
  refresh: () => Promise<unknown>;
  onClose: () => void;
}

export function AddShare({ among, refresh, onClose }: AddProps) {
  // As they were when the dialog was opened: a choice does not go away under the hand.
  const [choices] = useState(among);
  const [of, setOf] = useState(choices[0]!);
  const free = protocolsFree(of.shares ?? []);
  const [protocol, setProtocol] = useState<ShareProtocol>(free[0]!);
  const [addresses, setAddresses] = useState("");
  const [initiators, setInitiators] = useState("");
  const [any, setAny] = useState(false);
  const [chap, setChap] = useState("");
  const choose = (name: string): void => {
    const next = choices.find((one) => one.name === name)!;
    const possible = protocolsFree(next.shares ?? []);
    setOf(next);
    if (!possible.includes(protocol)) setProtocol(possible[0]!);
  };
  const confirm = async (): Promise<void> => {
    const body: ShareAdd = { protocol, addresses: listed(addresses), initiators: listed(initiators), any_initiator: any, chap_file: chap.trim() === "" || protocol !== "iscsi" ? null : chap.trim() };
    const share = await post<ShareView>(`/volumes/${part(of.name)}/shares`, body);
    toast({ kind: "done", title: `${of.name} is shared by ${SHARE_TITLES[protocol]}`, detail: share.target });
    await refresh();
  };
  return (
    <Dialog title={choices.length === 1 ? `Share ${of.name}` : "Share a volume or disk"} confirm="Share it" onConfirm={confirm} onClose={onClose}>
      {choices.length > 1 && (
        <label class="field">
          <span>What?</span>
          <select value={of.name} onChange={(event) => choose(event.currentTarget.value)}>
            {choices.map(({ name }) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
      )}
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

export function RemoveShare({ share, refresh, onClose }: { share: ShareView; refresh: () => Promise<unknown>; onClose: () => void }) {
  const [force, setForce] = useState(false);
  const confirm = async (): Promise<void> => {
    const done = await remove<Done>(`/volumes/${part(share.volume)}/shares/${share.protocol}`, { force });
    toast({ kind: "done", title: share.volume, detail: done.summary ?? "done" });
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
