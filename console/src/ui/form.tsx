/** Fields that several forms have. */

import type { ComponentChildren } from "preact";
import type { Offer } from "../words/offer";

interface TextProps {
  label: string;
  value: string;
  hint?: ComponentChildren;
  placeholder?: string;
  wrong?: string | undefined;
  onText: (text: string) => void;
}

/** A line of text. */
export function Text({ label, value, hint, placeholder, wrong, onText }: TextProps) {
  const id = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} value={value} placeholder={placeholder} spellcheck={false} autocomplete="off" aria-invalid={wrong !== undefined} aria-describedby={`${id}-hint`} onInput={(event) => onText(event.currentTarget.value)} />
      <span class="under" id={`${id}-hint`}>{wrong ? <span class="wrong">{wrong}</span> : hint}</span>
    </div>
  );
}

/** How something is to be offered. */
export function Offered({ of, set, wrong }: { of: Offer; set: (part: Partial<Offer>) => void; wrong: Record<string, string> }) {
  return (
    <>
      <fieldset class="choices">
        <legend>How is it offered?</legend>
        <label class="choice"><input type="checkbox" checked={of.block} onChange={(event) => set({ block: event.currentTarget.checked })} /><span><strong>Block device</strong><span class="under">/dev/hearth/NAME, to be mounted like any disk (the daemon must run as root)</span></span></label>
        <label class="choice"><input type="checkbox" checked={of.vhostUser} onChange={(event) => set({ vhostUser: event.currentTarget.checked })} /><span><strong>Disk for virtual machines</strong><span class="under">by vhost-user, for QEMU and cloud-hypervisor on this host: costs least</span></span></label>
        <label class="choice"><input type="checkbox" checked={of.nbd} onChange={(event) => set({ nbd: event.currentTarget.checked })} /><span><strong>NBD on a Unix socket</strong><span class="under">for QEMU and other NBD clients on this host</span></span></label>
      </fieldset>
      <Text label="NBD on TCP port (optional)" value={of.nbdPort} placeholder="10809" wrong={wrong["nbdPort"]} hint="loopback addresses only, since it has no encryption" onText={(nbdPort) => set({ nbdPort })} />
      <Text label="NBD with TLS, IP:PORT (optional)" value={of.tlsAddress} placeholder="0.0.0.0:10809" wrong={wrong["tlsAddress"]} hint="for other machines; needs the certificates of hearth pki init" onText={(tlsAddress) => set({ tlsAddress })} />
    </>
  );
}
